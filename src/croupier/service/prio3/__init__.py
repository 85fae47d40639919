"""Prio3SumVec, after the draft "Verifiable Distributed Aggregation Functions": two servers check that counts are in range."""
