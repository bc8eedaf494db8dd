"""Benchmarks of the real daemon beside a baseline in the same run; by hand, with ``tests/bench/run``."""
