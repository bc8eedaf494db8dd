"""Sockets, TLS, the bearer token, threads, and what the handlers of requests use."""
