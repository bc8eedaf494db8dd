"""Quiet rooms: standard library only, and no clock, sockets, randomness, logging or metrics."""
