"""``doctor``: finds what will cause trouble, in Redis, in the sidecar here and in a job of Nomad."""
