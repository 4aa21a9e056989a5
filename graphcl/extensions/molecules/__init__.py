"""Molecules: tables of SMILES, OGB's sets, their graphs, splits, encoder, fingerprints, and an installed encoder."""

from pathlib import Path

PRETRAINED = Path(__file__).with_name("pretrained") / "molecules.pt"
"""Encoder that is installed under the name `molecules`."""
