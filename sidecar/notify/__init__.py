"""Messages to people: which alerts there are, and the webhook that takes them. The rest is Alertmanager's."""
