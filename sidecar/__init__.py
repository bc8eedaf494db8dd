"""health-arbiter: a sidecar that decides, with its whole fleet, when a container should be put down."""

__version__ = "0.1.0"
