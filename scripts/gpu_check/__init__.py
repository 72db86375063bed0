"""The parts of scripts/gpu-check: what it runs, how it is judged, and what it saves."""
