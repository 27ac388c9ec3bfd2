"""Count rows, frames, files and databases into tables of classes.

Others import ``count`` and ``SourceOptions`` from ``dispatch``, ``count_columns`` from ``columns``, and the names in
``__all__`` from here.
"""

from kanab.counting.class_table import read_classes

__all__ = ["read_classes"]
