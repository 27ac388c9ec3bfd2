"""One pass over the people for the tables of all pairs."""
