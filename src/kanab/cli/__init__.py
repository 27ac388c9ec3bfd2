"""The command line: the same verbs as Python."""
