"""Files, optional packages, memory and signals."""
