"""The configuration: fields, loading, validation, and the syntax of values."""
