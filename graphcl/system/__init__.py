"""Helpers for files, memory, signals and optional packages."""
