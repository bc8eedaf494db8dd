"""Explanations for engineers: the table of reasons, and samples of errors."""
