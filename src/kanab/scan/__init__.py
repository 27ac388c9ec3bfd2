"""Scans of all pairs of concurrent experiments, and of all experiments by segment; others use these names."""

from kanab.scan.scan import scan_interactions, scan_segments
from kanab.scan.scan_readout import PairReadout, SegmentReadout

__all__ = [
    "PairReadout",
    "SegmentReadout",
    "scan_interactions",
    "scan_segments",
]
