"""A whole fleet in virtual time: the real core and the in-memory bucket, and nothing of the hall."""
