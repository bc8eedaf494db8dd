"""Actions at a cull besides the failing health check."""
