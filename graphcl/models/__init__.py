"""Encoders, pooling, projector, and saved encoders."""
