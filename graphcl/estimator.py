"""`GraphCL`: contrastive training as a scikit-learn transformer, from graphs to embeddings."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from graphcl.config import Config, make_config
from graphcl.datasets import load_dataset
from graphcl.datasets.loader import make_loader
from graphcl.errors import InputError
from graphcl.experiment.build import TRAINING, describe, dry_run, pick_device
from graphcl.experiment.encoder_input import load_for
from graphcl.experiment.seed import run_seed
from graphcl.models.contrastive import with_projector
from graphcl.models.interface import OwnEncoder, takes_categories
from graphcl.models.saved import load_encoder, read_saved, save_encoder
from graphcl.system.files import new_file, write_whole
from graphcl.training.loop import embed

Named = str | dict[str, Any]
"""A registered name, without or with arguments: `"adnce"` or `{"name": "adnce", "mu": 0.5}`."""


class GraphCL(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Scikit-learn transformer that trains a graph encoder by contrastive learning and embeds graphs with it.

    `fit` trains as `python -m graphcl.run` does: the same settings and seed give the same embeddings. `transform`
    returns a float32 array `[n, H]`; put a `StandardScaler` between it and a scikit-learn classifier.

    `X` can be anything that `load_dataset` accepts: a PyG data set, a list of `Data` or networkx graphs, a name, or a
    path. Labels are optional, and training does not use them. `GridSearchCV` and similar tools can split a list or a
    PyG data set. `transform` builds node features in the same way as `fit` did.

    Args:
        loss: the loss, by name or as `{"name": "adnce", "mu": 0.5}`; "auto": the method's usual loss, else infonce.
        method: the method, which says how views are contrasted; "auto": the loss's usual method.
        first: augmentation for the first view, such as `{"name": "node_drop", "ratio": 0.1}`; default: `random4`, or
            the only kind that the method accepts.
        second: augmentation for the second view; default as for `first`.
        encoder: a registered encoder; or your own module, of which a copy is trained; or a function that creates a
            module from the number of node feature columns. See `ContrastiveModel` for how the module is called. H is
            the module's `out_channels`.
        features: node features, see `load_dataset`.
        max_degree: larger degrees share the last column.
        projection: width of the projection; default: the encoder's width.
        projector: mlp, linear or residual.
        epochs: passes over the data.
        steps: optimiser steps in total, instead of `epochs`.
        batch_size: graphs in a batch.
        shuffle_window: graphs shuffled together, for data sets larger than the memory; default: all.
        lr: Adam's learning rate.
        weight_decay: Adam's L2 penalty.
        clip_norm: largest allowed norm of the gradient; default: no clipping.
        amp: whether to compute in bfloat16.
        non_finite: action on a NaN or infinite loss or gradient: stop, or skip the step and count it.
        precise_bn: recompute BatchNorm statistics over all graphs after training, see `graphcl.models.calibrate`.
        device: auto, cpu, cuda or cuda:N; auto uses CUDA if available.
        random_state: the seed; None or a `RandomState` draws a new seed at each `fit`.

    Attributes:
        model_: the trained `ContrastiveModel`, in evaluation mode.
        history_: list with one `Epoch` per epoch; empty in a loaded estimator.
        description_: the `EncoderDescription` that `save` writes with the weights.
        n_features_in_: number of node feature columns.
        seed_: the seed that `fit` used.

    Raises:
        InputError: `fit` got invalid settings or graphs; or `transform` got graphs with other node feature columns.

    Example:
        >>> import networkx as nx
        >>> rings, stars = [nx.cycle_graph(n) for n in range(3, 9)], [nx.star_graph(n) for n in range(3, 9)]
        >>> embedder = GraphCL(loss={"name": "adnce", "mu": 0.5}, features="degree", epochs=2, batch_size=4)
        >>> embedder.fit(rings + stars).transform(stars).shape
        (6, 96)
    """

    def __init__(
        self,
        loss: Named = "adnce",
        method: Named = "auto",
        first: Named | None = None,
        second: Named | None = None,
        encoder: Named | OwnEncoder = "gin",
        *,
        features: str = "auto",
        max_degree: int = 64,
        projection: int | None = None,
        projector: str = "mlp",
        epochs: int = 20,
        steps: int | None = None,
        batch_size: int = 128,
        shuffle_window: int | None = None,
        lr: float = 0.01,
        weight_decay: float = 0.0,
        clip_norm: float | None = None,
        amp: bool = False,
        non_finite: str = "stop",
        precise_bn: bool = False,
        device: str = "auto",
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.loss = loss
        self.method = method
        self.first = first
        self.second = second
        self.encoder = encoder
        self.features = features
        self.max_degree = max_degree
        self.projection = projection
        self.projector = projector
        self.epochs = epochs
        self.steps = steps
        self.batch_size = batch_size
        self.shuffle_window = shuffle_window
        self.lr = lr
        self.weight_decay = weight_decay
        self.clip_norm = clip_norm
        self.amp = amp
        self.non_finite = non_finite
        self.precise_bn = precise_bn
        self.device = device
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> GraphCL:
        """Train on the graphs `X` and return the estimator; `y` is ignored."""
        own = None if isinstance(self.encoder, str | dict) else self.encoder
        seed = self._seed()
        config = self._config(seed)
        device = pick_device(config.device)
        categories = own is None and takes_categories(config.encoder["name"])
        dataset = load_dataset(
            _listed(X), features=config.features, max_degree=config.max_degree, categories=categories
        )
        dry_run(config, dataset, own)
        result = run_seed(config, dataset, seed, device, rows=(), encoder=own)
        self.history_, self.model_, self.seed_ = result.history, result.model.eval(), seed
        self.description_ = describe(config, dataset, self.model_, own)
        self.n_features_in_ = dataset.num_features
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Return the embeddings `[n, H]` of the graphs `X`."""
        check_is_fitted(self)
        dataset = load_for(self.description_, _listed(X))
        device = next(self.model_.parameters()).device
        h, _ = embed(self.model_, make_loader(dataset, 1024, device=device))
        return h.numpy()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the encoder and its description to a new file, which `load` and `load_encoder` read.

        Raises:
            InputError: the file exists already.
        """
        check_is_fitted(self)
        weights = {self.seed_: self.model_.encoder.state_dict()}
        write_whole(new_file(path), lambda file: save_encoder(file, self.description_, weights))

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        encoder: OwnEncoder | None = None,
        seed: int | None = None,
        device: str = "auto",
    ) -> GraphCL:
        """Return a fitted estimator from a file that `save` or a run wrote. Code in the file is never run.

        The file does not contain the projector, which only training needs, so the projector of `model_` is untrained.

        Args:
            path: path of the file, or of a run folder.
            encoder: if your own encoder was trained, a module like it, or a function that creates one.
            seed: seed of the encoder to load, if the file contains several; default: the first.
            device: device of the loaded model, as for the class.

        Raises:
            InputError: see `graphcl.load_encoder`.
        """
        module, description = load_encoder(path, seed, encoder)
        named = {"name": description.encoder.name, **(description.encoder.arguments or {})}
        try:
            settings = make_config({k: v for k, v in description.settings.items() if k in TRAINING}).model_dump()
        except InputError as error:
            raise InputError(f"{Path(path)} is corrupted: {error}".replace("\n", " ")) from None
        settings = {key: value for key, value in settings.items() if key in TRAINING and key in description.settings}
        seed = next(iter(read_saved(path)[1])) if seed is None else seed
        loaded = cls(
            **settings.pop("views", {}),
            **settings,
            encoder=named if encoder is None else encoder,
            features=description.features,
            max_degree=description.max_degree,
            device=device,
            random_state=seed,
        )
        loaded.model_, loaded.description_ = with_projector(module).to(pick_device(device)), description
        loaded.history_, loaded.seed_, loaded.n_features_in_ = [], seed, description.in_channels
        return loaded

    @property
    def _n_features_out(self) -> int:
        """Number of output columns H; scikit-learn's `get_feature_names_out` needs it."""
        width: int = self.description_.out_channels
        return width

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.transformer_tags.preserves_dtype = []
        return tags

    def _seed(self) -> int:
        if isinstance(self.random_state, int | np.integer):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31))

    def _config(self, seed: int) -> Config:
        names = {*TRAINING, "features", "max_degree", "device"} - {"views"}
        values = {name: _plain(getattr(self, name)) for name in names}
        views = {"first": _plain(self.first), "second": _plain(self.second)}
        values["views"] = {key: value for key, value in views.items() if value is not None}
        if isinstance(self.encoder, str | dict):
            values["encoder"] = _plain(self.encoder)
        try:
            return make_config({**values, "seeds": [seed]})
        except InputError as error:
            # the message names the settings of a run, so replace the names that differ from this class's arguments
            text = str(error).replace("`views.", "`").replace("`seeds.0`", "`random_state`")
            raise InputError(text) from None


def _listed(X: Any) -> Any:
    """Return an object array of graphs as a list, as scikit-learn's splitters may produce one; else `X` unchanged."""
    return list(X) if isinstance(X, np.ndarray) and X.dtype == object else X


def _plain(value: Any) -> Any:
    """Return a setting with NumPy scalars, as in a parameter grid, converted to Python numbers."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value.item() if isinstance(value, np.generic) else value
