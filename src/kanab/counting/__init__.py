"""From rows, frames, files and databases to counted tables. Others call `count`."""

from kanab.counting.class_table import read_classes
from kanab.counting.csvfile import count_csv

__all__ = ["count_csv", "read_classes"]
