"""Messages to people: episodes, rules, payloads, receivers, the outbox."""
