"""Real servers and real sidecars for the tests: started, watched and ended by their own process id."""
