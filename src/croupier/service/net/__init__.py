"""HTTP, servers and databases that all roles use."""
