"""The commands: one click application over a sidecar, its fleet and its settings."""
