"""Doors in: what the app tells us becomes messages for the hall."""
