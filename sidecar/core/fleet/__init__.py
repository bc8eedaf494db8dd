"""The rules of the fleet: which container may be culled or retired, and what the outcome of a cull is.

``decide(view, request)`` reads what the store holds at one instant and returns what to write. The same
function serves the store in memory and Redis. Two rules stand in Lua as well, because they have to hold for every
version: ``store/lua/commit.lua`` counts the grants of the window, ``beat.lua`` the suspects that recover by themselves.
"""
