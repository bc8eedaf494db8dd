"""Messages to people: which conditions need one, which sidecar sends it, and the format of each receiver."""
