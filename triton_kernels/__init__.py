"""Attention operators with learned sinks. Imported as sinkflex.kernels; api.py is the door."""
