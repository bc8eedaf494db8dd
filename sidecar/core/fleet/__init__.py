"""The rules of the fleet: which container may be culled or retired, and what the outcome of a cull is.

``decide(view, request)`` reads what the store holds at one instant and returns what to write. The rules are nowhere
else: the same function serves the store in memory and Redis.
"""
