"""`GraphCL`: contrastive training as a transformer of scikit-learn's, from graphs to embeddings."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from graphcl.commands.embed import load_for
from graphcl.config.settings import Config, make_config
from graphcl.datasets import load_dataset
from graphcl.datasets.resident import make_loader
from graphcl.errors import InputError
from graphcl.experiment.seed import TRAINING, describe, make_model, pick_device, rehearse, train_seed
from graphcl.models.contrastive import OwnEncoder, takes_categories, with_head
from graphcl.models.saved import load_encoder, read_saved, save_encoder
from graphcl.system.files import new_file, write_whole
from graphcl.training.loop import embed

Named = str | dict[str, Any]
"""A registered name, or one with arguments: `"adnce"`, `{"name": "adnce", "mu": 0.5}`."""


class GraphCL(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Learns to embed graphs by contrast, without labels; then embeds any graphs.

    `fit` trains as `python -m graphcl.run` does: the same settings and seed give the same embeddings. `transform` gives
    an array `[n, H]` in float32, to which scikit-learn's classifiers are best applied behind a `StandardScaler`.

    Graphs (`X`) are whatever `load_dataset` takes: a PyG data set, a list of `Data` or of networkx graphs, a name, a
    path; with labels or without, which training does not see. A list or a PyG data set may be split by `GridSearchCV`
    and its like. For the graphs of `transform`, node features are made as they were for those of `fit`.

    Args:
        loss: a loss, by name or as `{"name": "adnce", "mu": 0.5}`; "auto": as the method is meant.
        method: how views are contrasted; "auto": as the loss is meant.
        first: the augmentation that makes the first view, such as `{"name": "node_drop", "ratio": 0.1}`; by default a
            pool of four, or what the method takes.
        second: the augmentation that makes the second view.
        encoder: a registered encoder; or a module of your own, of which a copy is trained, or a function that makes one
            of the number of columns: see `ContrastiveModel` for its call, H is its `out_channels`.
        features: what nodes start from, see `load_dataset`.
        max_degree: degrees from this on share a column.
        projection: width of the projection; the encoder's by default.
        head: the projector: mlp, linear or residual.
        epochs: passes over the data.
        steps: optimiser steps in all, instead of the epochs.
        batch_size: graphs in a batch.
        shuffle_window: graphs shuffled together, for sets larger than the memory; all by default.
        lr: Adam's learning rate.
        weight_decay: Adam's L2 penalty.
        clip_norm: largest norm of the gradient; no clipping by default.
        amp: whether to compute in bfloat16.
        non_finite: what to do about a loss or gradient of NaN or infinity: stop, or skip the step and count it.
        device: auto, cpu, cuda or cuda:N; auto takes CUDA where there is one.
        random_state: the seed; None or a `RandomState` draws one anew at each fit.

    Attributes:
        model_: the trained `ContrastiveModel`, in evaluation mode.
        history_: an `Epoch` for each epoch; empty in a loaded estimator.
        description_: an `EncoderDescription`, what is saved with the weights.
        n_features_in_: columns of the node features.
        seed_: the seed that was used.

    Raises:
        InputError: at `fit`, for settings or graphs that cannot be used; at `transform`, for graphs with other columns.

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
        head: str = "mlp",
        epochs: int = 20,
        steps: int | None = None,
        batch_size: int = 128,
        shuffle_window: int | None = None,
        lr: float = 0.01,
        weight_decay: float = 0.0,
        clip_norm: float | None = None,
        amp: bool = False,
        non_finite: str = "stop",
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
        self.head = head
        self.epochs = epochs
        self.steps = steps
        self.batch_size = batch_size
        self.shuffle_window = shuffle_window
        self.lr = lr
        self.weight_decay = weight_decay
        self.clip_norm = clip_norm
        self.amp = amp
        self.non_finite = non_finite
        self.device = device
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> GraphCL:
        """Train on graphs; `y` is not looked at."""
        own = None if isinstance(self.encoder, str | dict) else self.encoder
        seed = self._seed()
        config = self._config(seed)
        device = pick_device(config.device)
        categories = own is None and takes_categories(config.encoder["name"])
        dataset = load_dataset(
            _listed(X), features=config.features, max_degree=config.max_degree, categories=categories
        )
        rehearse(config, dataset, own)
        model = make_model(config, dataset, seed, own).to(device)
        self.history_ = train_seed(config, dataset, model, seed)
        self.model_, self.seed_ = model.eval(), seed
        self.description_ = describe(config, dataset, model, own)
        self.n_features_in_ = dataset.num_features
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Embeddings `[n, H]` of graphs."""
        check_is_fitted(self)
        dataset = load_for(self.description_, _listed(X))
        device = next(self.model_.parameters()).device
        h, _ = embed(self.model_, make_loader(dataset, 1024, device=device))
        return h.numpy()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the encoder and how it was made into a new file, which `load` and `load_encoder` read.

        Raises:
            InputError: the file is there already.
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
        """A fitted estimator from a file that `save` wrote, or from a run's; no code of the file's is run.

        The projector, of use in training only, is not in the file: that of `model_` is new.

        Args:
            path: of the file, or of a run's folder.
            encoder: a module like the one that was trained, or a function that makes one, where it was your own.
            seed: whose weights; the first by default.
            device: where it is to compute.

        Raises:
            InputError: see `graphcl.load_encoder`.
        """
        module, description = load_encoder(path, seed, encoder)
        named = {"name": description.encoder.name, **(description.encoder.arguments or {})}
        try:
            settings = make_config({k: v for k, v in description.settings.items() if k in TRAINING}).model_dump()
        except InputError as error:
            raise InputError(f"{Path(path)} is damaged: {error}".replace("\n", " ")) from None
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
        loaded.model_, loaded.description_ = with_head(module).to(pick_device(device)), description
        loaded.history_, loaded.seed_, loaded.n_features_in_ = [], seed, description.in_channels
        return loaded

    @property
    def _n_features_out(self) -> int:
        """How many names `get_feature_names_out` gives."""
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
        except InputError as error:  # whose names are those of the command line
            text = str(error).replace("`views.", "`").replace("`seeds.0`", "`random_state`")
            raise InputError(text) from None


def _listed(X: Any) -> Any:
    """Graphs in an array of objects as a list, anything else as it is."""
    return list(X) if isinstance(X, np.ndarray) and X.dtype == object else X


def _plain(value: Any) -> Any:
    """Settings with numpy's numbers, as a grid gives them, as Python's."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value.item() if isinstance(value, np.generic) else value
