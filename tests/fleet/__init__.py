"""A whole fleet in virtual time, driven by the controllers, the rules and the store of this product."""
