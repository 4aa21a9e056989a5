"""Contrastive losses: one file per paper, each a function of two views' projections.

`Loss("adnce", mu=0.5)` holds a loss by name with its arguments; `graphcl.registry.losses` knows every name.
"""

from graphcl.losses.adnce import adnce
from graphcl.losses.dcl import dcl
from graphcl.losses.flatnce import flatnce
from graphcl.losses.infonce import infonce
from graphcl.losses.module import Loss
from graphcl.losses.pairs import Pairs, compare

__all__ = ["Loss", "Pairs", "adnce", "compare", "dcl", "flatnce", "infonce"]
