"""Scans of all pairs of concurrent experiments, and of all experiments by segment; others use these names."""

from kanab.scan.readout import PairReadout, SegmentReadout
from kanab.scan.scan import scan_interactions, scan_segments

__all__ = [
    "PairReadout",
    "SegmentReadout",
    "scan_interactions",
    "scan_segments",
]
