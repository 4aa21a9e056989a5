"""Molecules: tables of SMILES, OGB's sets, their graphs, splits, encoder, fingerprints, and an installed encoder."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Annotated, Literal

from pydantic import Field

from graphcl.arguments import KEPT, Settings
from graphcl.system.optional import optional

PRETRAINED = Path(__file__).with_name("pretrained") / "molecules.pt"
"""Encoder that is installed under the name `molecules`."""


class MoleculeSettings(Settings):
    """Settings of `load_dataset` and of commands that only molecules have."""

    smiles: Annotated[str | None, Field(title="COLUMN")] = None
    """column of the SMILES in a table; default: smiles"""
    standardise: Annotated[bool, KEPT] = False
    """reduce each molecule to its largest fragment, neutralised"""
    coding: Annotated[Literal["ogb", "hu"], KEPT] = "ogb"
    """columns of atoms and bonds: ogb, 9 and 3; or hu, 2 and 2, for encoder molecule_gin"""


def import_rdkit(module: str) -> ModuleType:
    """Import and return a module of RDKit, such as `Chem`."""
    return optional(f"rdkit.{module}", "molecules need RDKit", "molecules")
