"""Log and metrics: observers of what happens."""
