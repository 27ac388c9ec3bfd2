"""Web pages over releases and collectors."""
