"""What happens on a cull beside the health check."""
