"""What clients and the collector send each other."""
