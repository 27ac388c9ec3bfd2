"""What clients and the collector send each other: posts, nonces, the config of clients, and their limits.

Everything here may be imported by clients.
"""
