"""Keys of open cohorts, and what is encrypted with them."""
