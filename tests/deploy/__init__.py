"""The shipped files for deployments, and rules that their own tools do not check."""
