"""One pass over the people for the tables of all pairs; others use `counting.count_pairs`."""
