"""Define the version, in a file of its own that the build can read without importing torch."""

__version__ = "0.1.0"
