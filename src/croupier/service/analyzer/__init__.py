"""The analyzer: a population behind the network, its dashboard and task files."""
