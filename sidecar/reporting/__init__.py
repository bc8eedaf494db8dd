"""What became of a service over some days: its ledger added up, for a person, a machine, or a weekly mail."""
