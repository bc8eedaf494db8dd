"""Keeps the state of the fleet: in memory or in Redis, on one server or several."""
