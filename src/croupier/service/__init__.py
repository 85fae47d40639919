"""The deployed roles: wire format, transports, stores, shuffler and analyzer. docs/protocol.md, docs/threat-model.md."""
