"""Contrastive losses of two views' projections.

Every loss registered in a file of `graphcl.losses.formulas` is a function of this package, `graphcl.losses.NAME`.
`Loss("adnce", mu=0.5)` returns a module that computes the loss `adnce` with fixed arguments.
"""

import importlib
import pkgutil

from graphcl.losses import formulas
from graphcl.losses.loss import Loss, Pairs, pairwise
from graphcl.losses.rows import compare, explicit
from graphcl.registry import losses as _registry

for _file in pkgutil.iter_modules(formulas.__path__, f"{formulas.__name__}."):
    importlib.import_module(_file.name)
globals().update(_registry.registered(formulas.__name__))

__all__ = ["Loss", "Pairs", "compare", "explicit", "pairwise"]
__all__ += _registry.registered(formulas.__name__)
