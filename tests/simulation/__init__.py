"""A whole fleet in virtual time with the real controllers, membership, rules and in-memory store."""
