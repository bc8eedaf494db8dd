"""Explanations for engineers: the table of words, sentences of it, and samples of errors."""
