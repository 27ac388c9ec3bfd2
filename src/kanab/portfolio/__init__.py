"""Many experiments, read together: combined and shrunk.

Others import the names in ``__all__`` from here, or a module of this folder by its name.
"""

from kanab.portfolio.combine import Combined, CombinedEffect, combine
from kanab.portfolio.meta import MetaAnalysis, meta_analysis
from kanab.portfolio.shrinkage import Shrinkage, ShrunkEffect, shrink
from kanab.portfolio.together import Portfolio, PortfolioEffect, read_portfolio

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
