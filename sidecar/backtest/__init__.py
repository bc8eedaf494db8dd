"""How often each limit of errors would have been reached in a fleet's past, and which limit to set."""
