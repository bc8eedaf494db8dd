"""The status page: its files, its state and its stream of changes."""
