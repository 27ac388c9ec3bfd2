"""Many experiments, read together: combined and shrunk.

Others import the names in ``__all__`` from here, or a module of this folder by its name.
"""

from kanab.portfolio.meta import MetaAnalysis, Shrinkage, ShrunkEffect, meta_analysis, shrink
from kanab.portfolio.together import Combined, CombinedEffect, Portfolio, PortfolioEffect, combine, read_portfolio

__all__ = [
    "Combined",
    "CombinedEffect",
    "MetaAnalysis",
    "Portfolio",
    "PortfolioEffect",
    "Shrinkage",
    "ShrunkEffect",
    "combine",
    "meta_analysis",
    "read_portfolio",
    "shrink",
]
