"""Graph encoders, readouts, projectors, and files of trained encoders."""
