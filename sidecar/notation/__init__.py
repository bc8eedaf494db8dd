"""How people write durations, addresses, shares, kinds and the URLs of Redis."""
