"""Replacing the sidecar without a gap: the run lock, the standby, and the transfer of sockets and state."""
