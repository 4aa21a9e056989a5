"""Contrastive losses of two views' projections, one file per paper.

A file `NAME.py` in this package that defines a function `NAME` provides the public loss `graphcl.losses.NAME`.
`Loss("adnce", mu=0.5)` returns a module that computes the loss `adnce` with fixed arguments.
"""

import importlib
import pkgutil

from graphcl.losses.engine.comparison import Pairs
from graphcl.losses.engine.pairs import compare, explicit
from graphcl.losses.engine.pairwise import pairwise
from graphcl.losses.module import Loss

__all__ = ["Loss", "Pairs", "compare", "explicit", "pairwise"]

for _file in pkgutil.iter_modules(__path__):
    _module = importlib.import_module(f"{__name__}.{_file.name}")
    if hasattr(_module, _file.name):
        globals()[_file.name] = getattr(_module, _file.name)
        __all__ += [_file.name]
