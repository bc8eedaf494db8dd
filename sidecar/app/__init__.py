"""Composition: builds the parts from the configuration and runs them in one task group."""
