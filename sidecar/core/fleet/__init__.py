"""The rulebook of the fleet: who may be culled or retired, and what becomes of a cull.

``decide(view, request)`` reads what the store holds at one instant and answers with what to write. It is the only
place where the fleet's rules stand: the same function serves the store in memory, one Redis and several of them.
"""
