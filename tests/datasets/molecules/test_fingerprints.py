"""Test the classical descriptions of molecules."""

import pytest
import torch

pytest.importorskip("rdkit", reason="rdkit is not installed")
from rdkit import Chem, DataStructs
from rdkit.Chem import Descriptors, rdFingerprintGenerator

from graphcl.datasets.molecules.fingerprints import descriptors, ecfp4

SMILES = ("CCO", "OCC", "c1ccccc1O", "[Na+].[Cl-]", "*CC")


def test_similarities_of_fingerprints_are_those_of_rdkit():
    rows = ecfp4(SMILES)
    assert rows.shape == (5, 2048)
    assert torch.equal(rows[0], rows[1])  # the same molecule, written differently
    generator = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=2048)
    first, other = (generator.GetFingerprint(Chem.MolFromSmiles(SMILES[i])) for i in (0, 2))
    both, either = (rows[0] * rows[2]).sum(), torch.maximum(rows[0], rows[2]).sum()
    assert float(both / either) == pytest.approx(DataStructs.TanimotoSimilarity(first, other))


def test_descriptors_are_finite_and_in_rdkits_order():
    rows = descriptors(SMILES)
    names = [name for name, _ in Descriptors.descList]
    assert rows.shape == (5, len(names))
    assert rows.isfinite().all()
    assert torch.expm1(rows[0, names.index("MolWt")]).item() == pytest.approx(46.069, abs=1e-2)
