"""What travels: documents, reports, transports, tasks and their queries. docs/protocol.md specifies it."""
