"""All pairs of concurrent experiments, and all experiments by segment, in one pass."""

from kanab.scan.readout import PairReadout, SegmentReadout
from kanab.scan.scan import scan_interactions, scan_segments

__all__ = [
    "PairReadout",
    "SegmentReadout",
    "scan_interactions",
    "scan_segments",
]
