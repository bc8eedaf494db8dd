"""Hands: what acts on the world outside, the hook that looks at a cull, and the messages that tell of it."""
