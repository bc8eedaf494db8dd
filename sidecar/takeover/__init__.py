"""Several processes of one sidecar: election by the run lock, a standby, and the hand-over between them."""
