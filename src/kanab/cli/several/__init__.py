"""Commands about several releases at once."""
