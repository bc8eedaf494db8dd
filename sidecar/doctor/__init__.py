"""Looks at everything that a sidecar needs, and says what is wrong with it."""
