"""What we ship to deploy with, and rules about it that its own tools do not check."""
