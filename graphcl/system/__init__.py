"""Helpers for files, processes, memory, signals and optional packages."""
