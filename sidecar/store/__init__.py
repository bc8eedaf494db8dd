"""Where the fleet's state is kept: in memory or in Redis, on one server or several."""
