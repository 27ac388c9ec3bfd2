"""From rows, frames, files and databases to counted tables. Others call `count`."""
