"""Import all public names of the package; `graphcl` imports this module when a public name is first used."""

from typing import TYPE_CHECKING, Any

from graphcl import losses
from graphcl.augment import (
    AttributeMask,
    Augmentation,
    Compose,
    Decision,
    EdgeDrop,
    EdgePerturb,
    FeatureMask,
    Identity,
    NodeDrop,
    OneOf,
    PerGraph,
    Subgraph,
    apply_decision,
    drop_and_mask,
    random2,
    random3,
    random4,
    two_views,
)
from graphcl.commands.partition import embed_partition
from graphcl.config import Config, make_config, read_config
from graphcl.datasets import dataset_names, load_dataset, open_on_disk, write_on_disk
from graphcl.errors import InputError, load_module
from graphcl.evaluate import knn, logreg, svm
from graphcl.experiment.predict import predict
from graphcl.loaders.loader import make_loader
from graphcl.loaders.resident import ResidentLoader
from graphcl.loaders.samplers import EpochBatches, EpochPairs, ListedPairs
from graphcl.losses import Loss
from graphcl.methods import (
    ADGCL,
    BYOL,
    JOAO,
    InfoGraph,
    JOAOv2,
    MemoryBank,
    MoCo,
    SimGRACE,
    SimSiam,
    TwoViews,
)
from graphcl.models.contrastive import ContrastiveModel
from graphcl.models.gin import GIN, GINE
from graphcl.models.pooled import Pooled
from graphcl.models.saved import EncoderDescription, load_encoder, save_encoder
from graphcl.run import run
from graphcl.training.checkpoint import Checkpoints
from graphcl.training.loop import embed, train
from graphcl.training.settings import TrainingSettings
from graphcl.version import __version__

if TYPE_CHECKING:
    from graphcl.estimator import GraphCL
    from graphcl.extensions.molecules.encoder import MoleculeGINE
    from graphcl.extensions.nodes.methods import BGRL, DGI, GRACE
else:
    # imported on first use: the estimator loads scikit-learn, and the core imports no extension
    _PLACES = {"GraphCL": "estimator", "MoleculeGINE": "extensions.molecules.encoder"}
    _PLACES |= dict.fromkeys(("BGRL", "DGI", "GRACE"), "extensions.nodes.methods")

    def __getattr__(name: str) -> Any:
        if name in _PLACES:
            return getattr(load_module(f"graphcl.{_PLACES[name]}"), name)
        raise AttributeError(f"module 'graphcl' has no attribute {name!r}")


__all__ = [
    "ADGCL",
    "BGRL",
    "BYOL",
    "DGI",
    "GIN",
    "GINE",
    "GRACE",
    "JOAO",
    "AttributeMask",
    "Augmentation",
    "Checkpoints",
    "Compose",
    "Config",
    "ContrastiveModel",
    "Decision",
    "EdgeDrop",
    "EdgePerturb",
    "EncoderDescription",
    "EpochBatches",
    "EpochPairs",
    "FeatureMask",
    "GraphCL",
    "Identity",
    "InfoGraph",
    "InputError",
    "JOAOv2",
    "ListedPairs",
    "Loss",
    "MemoryBank",
    "MoCo",
    "MoleculeGINE",
    "NodeDrop",
    "OneOf",
    "PerGraph",
    "Pooled",
    "ResidentLoader",
    "SimGRACE",
    "SimSiam",
    "Subgraph",
    "TrainingSettings",
    "TwoViews",
    "__version__",
    "apply_decision",
    "dataset_names",
    "drop_and_mask",
    "embed",
    "embed_partition",
    "knn",
    "load_dataset",
    "load_encoder",
    "logreg",
    "losses",
    "make_config",
    "make_loader",
    "open_on_disk",
    "predict",
    "random2",
    "random3",
    "random4",
    "read_config",
    "run",
    "save_encoder",
    "svm",
    "train",
    "two_views",
    "write_on_disk",
]
