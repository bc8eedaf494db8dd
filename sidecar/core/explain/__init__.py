"""What an engineer is told: reasons, remedies, runbooks, history."""
