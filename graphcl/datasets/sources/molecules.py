"""Read molecules."""

from __future__ import annotations

from typing import Any

from graphcl.datasets.molecules.columns import SUFFIXES
from graphcl.datasets.molecules.smiles import load_molecules
from graphcl.datasets.molecules.table import is_molecules
from graphcl.datasets.settings import Attributes, SplitTable
from graphcl.datasets.sources import Graphs, Request, Source
from graphcl.registry import sources


@sources.register("molecules", takes=f"molecules: a table ({', '.join(SUFFIXES)}) or a list of SMILES")
class Molecules(Source):
    """Table of molecules, a DataFrame, a list or Series of SMILES or of RDKit molecules, or one molecule."""

    settings = frozenset(SplitTable.model_fields) - frozenset(Attributes.model_fields)

    def claims(self, source: Any, request: Request) -> bool:
        """Return whether `source` holds molecules."""
        return is_molecules(source, request.settings.smiles)

    def read(self, source: Any, request: Request) -> object:
        """Return the graphs of the valid molecules."""
        parser, graphs, benchmark = load_molecules(source, request.settings)
        return Graphs(parser.table.name, *graphs, benchmark, True, parser.invalid)
