"""Molecules: tables of SMILES, their graphs, fingerprints and splits."""
