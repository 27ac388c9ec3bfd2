"""Pages about releases and about what a collector will seal next, and the same as plain data.

Others import ``dashboard`` (``Dashboard``, ``Site``) and ``release_sources`` (``FileReleases``, ``CollectorReleases``).
"""
