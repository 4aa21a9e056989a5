"""Data sets of the TU collection."""
