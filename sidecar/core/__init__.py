"""Pure rules: no sockets, clock, randomness, logging or metrics."""
