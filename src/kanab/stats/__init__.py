"""Pure functions: a tally in, a frozen result out. No input or output, no privacy rules."""
