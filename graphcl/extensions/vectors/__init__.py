"""Vectors as the targets of pairs: texts, spectra, images or measurements, as numbers of another model."""
