"""Real servers, real sidecars and fakes for the tests."""
