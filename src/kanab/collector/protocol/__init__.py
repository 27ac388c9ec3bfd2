"""What clients and the collector send each other: posts, nonces, the config, limits. Clients may import all of it."""
