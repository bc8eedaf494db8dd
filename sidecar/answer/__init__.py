"""Doors out: what balancers, schedulers and people are told. They read snapshots and wait for nothing."""
