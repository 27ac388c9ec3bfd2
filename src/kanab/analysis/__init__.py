"""From a release or a source to a readout. Others call `analyze` and `readout`, or build an `Reading`."""
