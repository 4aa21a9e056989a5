"""Import all public names of the package; `graphcl` imports this module when a public name is first used."""

from typing import TYPE_CHECKING, Any

from graphcl import losses
from graphcl.augment import (
    AttributeMask,
    Augmentation,
    Compose,
    Decision,
    EdgePerturb,
    Identity,
    NodeDrop,
    OneOf,
    Subgraph,
    apply_decision,
    random2,
    random3,
    random4,
    two_views,
)
from graphcl.config import Config, make_config, read_config
from graphcl.datasets import dataset_names, load_dataset, open_on_disk, write_on_disk
from graphcl.datasets.loader import make_loader
from graphcl.datasets.resident import ResidentLoader
from graphcl.errors import InputError
from graphcl.evaluate import knn, logreg, svm
from graphcl.losses import Loss
from graphcl.methods import TwoViews
from graphcl.models.contrastive import ContrastiveModel
from graphcl.models.gin import GIN, GINE
from graphcl.models.molecule import MoleculeGINE
from graphcl.models.pooled import Pooled
from graphcl.models.saved import EncoderDescription, load_encoder, save_encoder
from graphcl.training.loop import embed, train
from graphcl.version import __version__

if TYPE_CHECKING:
    from graphcl.estimator import GraphCL
else:

    def __getattr__(name: str) -> Any:
        if name == "GraphCL":  # imported on first use, because it loads scikit-learn
            from graphcl.estimator import GraphCL

            return GraphCL
        raise AttributeError(f"module 'graphcl' has no attribute {name!r}")


__all__ = [
    "GIN",
    "GINE",
    "AttributeMask",
    "Augmentation",
    "Compose",
    "Config",
    "ContrastiveModel",
    "Decision",
    "EdgePerturb",
    "EncoderDescription",
    "GraphCL",
    "Identity",
    "InputError",
    "Loss",
    "MoleculeGINE",
    "NodeDrop",
    "OneOf",
    "Pooled",
    "ResidentLoader",
    "Subgraph",
    "TwoViews",
    "__version__",
    "apply_decision",
    "dataset_names",
    "embed",
    "knn",
    "load_dataset",
    "load_encoder",
    "logreg",
    "losses",
    "make_config",
    "make_loader",
    "open_on_disk",
    "random2",
    "random3",
    "random4",
    "read_config",
    "save_encoder",
    "svm",
    "train",
    "two_views",
    "write_on_disk",
]
