"""Sockets, connections, TLS and tokens: what the doors have in common."""
