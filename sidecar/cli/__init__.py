"""What people type: one command line over a running sidecar, its fleet and its settings."""
