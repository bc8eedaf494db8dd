"""Listeners and connections, TLS, tokens and threads."""
