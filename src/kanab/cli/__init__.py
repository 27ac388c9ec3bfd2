"""The command line: one module per command, and a few for what commands share. Others start `main`."""
