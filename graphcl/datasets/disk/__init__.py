"""Data sets in a folder, memory-mapped."""
