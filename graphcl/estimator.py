"""Define `GraphCL`, a scikit-learn transformer that trains a graph encoder and embeds graphs."""

from __future__ import annotations

import copy
import functools
import os
from collections.abc import Iterator
from functools import partial
from typing import Any, get_args

import numpy as np
import torch.utils.data
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from graphcl.arguments import Role, keywords, named_arguments, resembling, shown, to_python
from graphcl.config import TRAINING, Config, make_config
from graphcl.config.resolve import NAMED, REPLACED
from graphcl.config.settings import as_spec
from graphcl.datasets import GraphDataset, load_dataset
from graphcl.datasets.dataset import with_groups
from graphcl.datasets.load import claiming, is_item, load_targets, usual_of_targets
from graphcl.datasets.pair_file import with_pairs
from graphcl.datasets.settings import KEPT_SETTINGS, Added
from graphcl.datasets.tables import NoGraphLeftError, kept_rows
from graphcl.errors import InputError, warn
from graphcl.experiment.encoder_input import load_for
from graphcl.experiment.runtime import pick_device
from graphcl.experiment.trial import Trial, warn_of_columns
from graphcl.loaders.loader import make_loader
from graphcl.models.contrastive import Embeddings, with_projector
from graphcl.models.interface import OwnEncoder, takes_categories
from graphcl.models.saved import installed_encoders, read_encoder, read_saved, save_encoder
from graphcl.models.wrapper import Tower, TwoTowers
from graphcl.system.files import new_file
from graphcl.system.hub import HubModel, read_card
from graphcl.system.processes import one_thread
from graphcl.tasks.task import make_task
from graphcl.training.loop import embed

Named = str | dict[str, Any]
"""A registered name, without or with arguments: `"adnce"` or `{"name": "adnce", "mu": 0.5}`."""
_RUN = Config()
"""Default settings, as on the command line."""
_ADDED = tuple(name for name in Added.model_fields if name in KEPT_SETTINGS)
"""Settings of how graphs are read that extensions add and an encoder's file keeps."""
_SETTINGS = tuple(
    name
    for name in Config.model_fields
    if name in {*TRAINING, "features", "max_degree", "device", *_ADDED} - {"views", "loss", "method"}
)
"""Settings of a run that are keywords of `GraphCL`, in the order of the command line."""
_READING = ("invalid", *_ADDED)
"""Parameters of how graphs are read, but for their features."""
_FEW = 256
"""Fewer graphs than this are embedded by one thread."""
_NAMED = tuple(setting.removeprefix("views.") for setting in NAMED)


def _elsewhere(name: str) -> str:
    """Return how to pass the argument `name` of a loss, encoder, view or method to `GraphCL`, or an empty string."""
    for setting, registry in NAMED.items():
        parameter = setting.removeprefix("views.")
        for registered in sorted(registry, key=lambda registered: registered != _RUN.views.first["name"]):
            defaults = registry.arguments(registered).defaults
            for meant in resembling(name, defaults, cutoff=2):  # cutoff 2 admits only equal names and synonyms
                both = ", and `second` likewise" if parameter == "first" else ""
                return f'pass {parameter}={{"name": "{registered}", "{meant}": {defaults[meant]!r}}}{both}'
    return ""


class GraphCL(HubModel, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Scikit-learn transformer that trains a graph encoder by contrastive learning and embeds graphs with it.

    `fit` trains as `python -m graphcl.run` does: the same settings and seed give the same embeddings. `transform`
    returns a float32 array `[n, H]`, where H is the encoder's `out_channels`; of the encoder `wl_sparse`, a sparse
    matrix. In a pipeline, put a `StandardScaler` between this transformer and a classifier.

    `X` can be anything that `load_dataset` accepts: a PyG data set, a list of `Data` or networkx graphs, a name
    or a path, or what an extension reads, such as a list, Series or DataFrame of SMILES. Labels are
    optional, and training does not use them. `GridSearchCV` and similar tools can split a list, a pandas Series or a
    PyG data set. `transform` builds node features in the same way as `fit` did.

    The arguments of a loss, method, view or encoder are parameters too: `set_params(loss__temperature=0.5)`, or
    `graphcl__loss__temperature` in the grid of a pipeline. scikit-learn's scores are fractions in [0, 1]; the scores of
    `graphcl.svm` and of a run are percentages.

    Args:
        loss: name of a loss, or a dict with its arguments: `{"name": "adnce", "mu": 0.5}`; "auto": the usual loss of
            the method, else infonce.
        method: contrastive method, by name or as a dict; "auto": the usual method of the loss.
        first: augmentation for the first view, such as `{"name": "node_drop", "ratio": 0.1}`; default: `random4`, or
            the only kind that the method accepts; with `positives="group"`: identity.
        second: augmentation for the second view; default as for `first`.
        encoder: name of a registered encoder, or a dict with its arguments; "auto": the usual one of the source, else
            gin. Or a module of your own, which is copied before training. Or a function that takes the number of node
            feature columns and returns a module. `ContrastiveModel` documents the call.
        target_encoder: with `towers="separate"`, the encoder of the targets, in the same forms; "auto": as `encoder`,
            or of vectors a perceptron.
        **settings: settings of `graphcl run` as keywords, with its names, ranges and defaults: features, max_degree,
            device, standardise_columns, projection, projector, positives, singles, batch_size, shuffle_window,
            precise_bn, those of extensions, such as standardise, and those of
            `graphcl.training.settings.TrainingSettings`, such as epochs and lr. `graphcl run --help all` explains them.
        invalid: on an invalid row or graph (see `load_dataset`): "stop" raises InputError; "skip" warns, and `fit`
            leaves it out, `transform` returns NaN in its place.
        warm_start: whether `fit` goes on from the encoder of the last `fit` or of `load`; the projector starts anew.
        random_state: the seed; with None or a `RandomState`, each `fit` draws a new seed.

    Attributes:
        model_: the trained `ContrastiveModel`, in evaluation mode.
        history_: list with one `Epoch` per epoch; empty in a loaded estimator.
        description_: the `EncoderDescription` that `save` writes with the weights.
        card_: text of the model card, if a run wrote one; else None.
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

    _frozen = False
    """Whether `fit` keeps the encoder, which is installed with graphcl."""

    @partial(named_arguments, advice=_elsewhere)
    @keywords(Config, _SETTINGS)
    def __init__(
        self,
        loss: Named = "auto",
        method: Named = "auto",
        first: Named | None = None,
        second: Named | None = None,
        encoder: Named | OwnEncoder = "auto",
        *,
        target_encoder: Named | OwnEncoder = "auto",
        invalid: str = "stop",
        warm_start: bool = False,
        random_state: int | np.random.RandomState | None = _RUN.seeds[0],
        **settings: Any,
    ) -> None:
        self.loss = loss
        self.method = method
        self.first = first
        self.second = second
        self.encoder = encoder
        self.target_encoder = target_encoder
        self.invalid = invalid
        self.warm_start = warm_start
        self.random_state = random_state
        for name in _SETTINGS:
            setattr(self, name, settings.pop(name, getattr(_RUN, name)))
        if settings:
            raise TypeError  # `named_arguments` names the argument

    def set_params(self, **params: Any) -> GraphCL:
        """Set parameters, including arguments of a loss, method, view or encoder (`loss__temperature`); return self."""
        self._frozen = self._frozen and set(params) <= {*_READING, "device", "random_state"}
        inner = {key: value for key, value in params.items() if key.partition("__")[0] in _NAMED and "__" in key}
        super().set_params(**{key: value for key, value in params.items() if key not in inner})
        for key, value in inner.items():
            part, _, argument = key.partition("__")
            named = getattr(self, part)
            if not isinstance(named, str | dict):
                raise InputError(f"`{key}` needs a named {part}, got {named!r}; set `{part}` to a name too.")
            named = {"name": named} if isinstance(named, str) else named
            setattr(self, part, {**named, argument: value})
        return self

    def fit(self, X: Any, y: Any = None, groups: Any = None, pairs: Any = None, targets: Any = None) -> GraphCL:
        """Train on the graphs `X` and return the estimator; `y` is ignored.

        With `groups`, one number or string per graph (-1, None or "": no group), train on pairs of graphs of a group,
        as with `positives="group"` and graphs that have a `group`. Groups are positives, not labels.

        With `pairs`, tuples `(query, target)` or `(query, target, negative, ...)` of ids or the path of a table, see
        `graphcl.datasets.pair_file.with_pairs`, train on these; `targets` are the graphs of the targets, if not `X`.
        Or they are vectors, a matrix `[n, d]`, `{"h": matrix, "id": ids}` or a file, which get a tower of their own.
        """
        if self._frozen and groups is None and pairs is None:
            return self
        seed, X, groups, targets = self._seed(), _listed(X), _listed(groups), _listed(targets)
        trained: Any = getattr(self, "model_", None) if self.warm_start else None
        if isinstance(trained, TwoTowers):
            raise InputError("`warm_start` goes on from one encoder, but the last fit trained two; leave it out.")
        config = self._config(seed, X, groups, pairs, targets)
        own = self._own_encoders(config.towers)
        start = own if trained is None else (trained.encoder, trained.encoder)
        categories = own[0] is None and takes_categories(config.encoder["name"])
        read = {"max_degree": config.max_degree, "categories": categories, **self._reading()}
        dataset = load_dataset(X, features=config.features, **read)
        if groups is not None:
            if dataset.invalid and len(groups) == len(dataset) + len(dataset.invalid):
                groups = [groups[row] for row in kept_rows(len(dataset), dataset.invalid)]
            dataset = with_groups(dataset, groups)
        if pairs is not None:
            others = None if targets is None else load_targets(targets, features=config.features, **read)
            dataset = with_pairs(dataset, pairs, others)
        elif targets is not None:
            raise InputError("`targets` needs the `pairs` of queries and targets; pass [(query, target), ...].")
        elif config.positives not in ("views", "group"):
            raise InputError(f"`positives` {config.positives} is a list of pairs; pass it to `fit` as `pairs`.")
        task = make_task(config, dataset)
        trial = Trial(task, seed, pick_device(config.device), start)
        trial.try_step()
        warn_of_columns(task)
        result = trial.run(rows=())
        self.history_, self.model_, self.seed_ = result.history, result.model.eval(), seed
        self.description_ = trial.task.description(self.model_, own)
        self.n_features_in_, self.card_ = dataset.num_features, None
        return self

    def transform(self, X: Any, role: Role = "query") -> Any:
        """Return the embeddings `[n, H]` of the graphs `X`; of an invalid one, NaN if `invalid` is "skip".

        With separate towers, `role` is "query" or "target", whose `X` may be vectors as in `fit`. Of the encoder
        `wl_sparse`, the result is a `scipy.sparse.csr_matrix` whose columns are those of the training graphs; other
        columns of `X` are left out, as words that a `CountVectorizer` does not know. The row of an invalid graph is
        empty.
        """
        h = self._embedded(X, role)
        return self.model_.features(h)

    def sparse_rows(self, X: Any) -> Any:
        """Return the embeddings of the graphs `X` by the encoder `wl_sparse`, with all of their columns.

        `graphcl.extensions.sparse.index.SparseIndex` searches them.
        """
        h = self._embedded(X, "query")
        if not isinstance(h, Embeddings):
            raise InputError(f"{type(self.model_.encoder).__name__} gives dense rows; use `transform`.")
        return h

    def explain(self, one: Any, other: Any, k: int = 10, min_depth: int = 0) -> list[Any]:
        """Return the k patterns that add most to the cosine of two graphs by the encoder `wl_sparse`.

        `graphcl.extensions.sparse.explain.pattern_figure` draws them. Patterns below depth `min_depth` are left out.
        """
        check_is_fitted(self)
        explain: Any = getattr(self.model_, "explain", None)
        if explain is None:
            raise InputError(f"patterns need the encoder wl_sparse, got {type(self.model_.encoder).__name__}.")
        graphs = load_for(self.description_, [one, other], **self._reading())
        return list(explain(graphs[0], graphs[1], k, min_depth))

    def _embedded(self, X: Any, role: Role) -> Any:
        """Return the embeddings of all graphs `X`, see `transform`."""
        check_is_fitted(self)
        if role not in get_args(Role):
            raise InputError(f"`role` must be 'query' or 'target', got {shown(role)}.")
        model, description = self.model_, self.description_
        if isinstance(model, TwoTowers) and role == "target":
            model, description = model.target, description.target or description
        X = [X] if is_item(X) else _listed(X)
        try:
            with one_thread():
                dataset = load_for(description, X, role=role, **self._reading())
        except NoGraphLeftError as error:
            warn(str(error))
            h, invalid = model.no_rows(), error.invalid
        else:
            device = next(model.parameters()).device
            with one_thread(len(dataset) < _FEW):
                h = embed(model, make_loader(dataset, 1024, device=device))[0]
            invalid = dataset.invalid
        if not invalid or isinstance(X, GraphDataset):
            return h
        places, size = kept_rows(len(h), invalid), len(h) + len(invalid)
        if isinstance(h, Embeddings):
            return h.spread(places, size)
        rows = torch.full((size, h.size(1)), torch.nan)
        rows[places] = h
        return rows

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the encoder and its description to a new file, which `load` and `load_encoder` read.

        Raises:
            InputError: the file exists already.
        """
        check_is_fitted(self)
        models = [self.model_, self.model_.target] if isinstance(self.model_, TwoTowers) else [self.model_]
        weights = [{self.seed_: model.encoder.state_dict()} for model in models]
        save_encoder(new_file(path), self.description_, *weights)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        encoder: OwnEncoder | None = None,
        seed: int | None = None,
        device: str = "auto",
        target_encoder: OwnEncoder | None = None,
    ) -> GraphCL:
        """Return a fitted estimator from a file that `save` or a run wrote. Code in the file is never run.

        The file does not contain the projector, which only training needs, so the projector of `model_` is untrained.

        Args:
            path: path of the file, or of a run folder.
            encoder: needed only if the trained encoder is a module of your own: a module of the same architecture, or a
                function that creates the module.
            seed: seed of the encoder to load, if the file contains several encoders; default: the first seed.
            device: device of the loaded model: auto, cpu, cuda or cuda:N.
            target_encoder: as `encoder`, for the targets of two encoders.

        Raises:
            InputError: see `graphcl.load_encoder`.
        """
        module, description = read_encoder(path, seed, encoder)
        target = description.target
        if target is not None and target.encoder.arguments is None:  # one module may be the encoder of both
            target_encoder = target_encoder or encoder
        saved: dict[str, Any] = description.settings
        values = {key: value for key, value in saved.items() if key in {*TRAINING, *_ADDED}}
        if values.get("method", {}).get("name") in REPLACED:
            values.pop("method")
        settings = make_config(values, own=()).model_dump(include=set(values))
        seed = next(iter(read_saved(path)[1])) if seed is None else seed
        loaded = cls(
            **settings.pop("views", {}),
            **settings,
            encoder=description.encoder.spec if encoder is None else encoder,
            target_encoder="auto" if target is None else target_encoder or target.encoder.spec,
            features=description.features,
            max_degree=description.max_degree,
            device=device,
            random_state=seed,
        )
        model = with_projector(module)
        if isinstance(module, Tower) and target is not None:
            second: Any = read_encoder(path, seed, target_encoder, "target")[0]
            model = TwoTowers(module, second).eval()
        loaded.model_, loaded.description_ = model.to(pick_device(device)), description
        loaded.history_, loaded.seed_, loaded.n_features_in_ = [], seed, description.in_channels
        loaded.card_ = read_card(path)
        return loaded

    @classmethod
    def pretrained(cls, name: str, device: str = "auto", **settings: Any) -> GraphCL:
        """Return a fitted estimator with the encoder `name`, which is installed with graphcl.

        `fit` keeps the encoder, also in a clone, so it can be a step of a pipeline or a ColumnTransformer. After
        `set_params` of anything but how graphs are read, and with `groups` or `pairs`, `fit` trains.

        Args:
            name: name of the encoder; docs/molecules.md describes `molecules`.
            device: as for `load`.
            **settings: further parameters, such as `invalid` and `standardise`.

        Raises:
            InputError: no such encoder is installed.

        Example:
            >>> from graphcl import load_dataset
            >>> GraphCL.pretrained("molecules").transform(load_dataset(["CCO", "c1ccccc1"])).shape
            (2, 768)
        """
        if name not in (names := installed_encoders()):
            raise InputError(f"no encoder {name!r} is installed; choose from: {', '.join(names)}.")
        loaded = copy.copy(_installed(cls, name, device))  # type: ignore[arg-type]
        with one_thread():
            loaded.model_ = copy.deepcopy(loaded.model_)  # the caller may train it
        loaded._frozen = True
        return loaded.set_params(**settings)

    def __sklearn_clone__(self) -> GraphCL:
        return copy.copy(self) if self._frozen else super().__sklearn_clone__()

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the names of the output columns, graphcl0, graphcl1, ...; names of input columns are ignored."""
        return np.asarray(super().get_feature_names_out())

    @property
    def _n_features_out(self) -> int:
        """Number of output columns H; scikit-learn's `get_feature_names_out` needs it."""
        return int(self.description_.out_channels)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.transformer_tags.preserves_dtype = []
        return tags

    def _own_encoders(self, towers: str) -> tuple[OwnEncoder | None, OwnEncoder | None]:
        """Return the encoders of queries and targets that are not registered."""
        if self.target_encoder != "auto" and towers != "separate":
            raise InputError("`target_encoder` needs separate encoders of queries and targets; pass towers='separate'.")
        query = None if isinstance(self.encoder, str | dict) else self.encoder
        if self.target_encoder == "auto":
            return query, query
        return query, None if isinstance(self.target_encoder, str | dict) else self.target_encoder

    def _reading(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _READING}

    def _seed(self) -> int:
        if isinstance(self.random_state, int | np.integer):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31))

    def _config(self, seed: int, X: Any, groups: Any, pairs: Any, targets: Any) -> Config:
        """Return the settings of a run; those with their default are left out, as an encoder may imply others."""
        values = {name: to_python(getattr(self, name)) for name in ("loss", *_SETTINGS)}
        values = {name: value for name, value in values.items() if value != getattr(_RUN, name)}
        views = {"first": self.first, "second": self.second}
        values["views"] = {name: to_python(view) for name, view in views.items() if view is not None}
        named = {"encoder": self.encoder, "target_encoder": self.target_encoder}
        values |= {name: to_python(spec) for name, spec in named.items() if isinstance(spec, str | dict)}
        values |= {"seeds": [seed], "method": to_python(self.method)}
        if isinstance(X, str):
            values["dataset"] = X
        if groups is not None:
            values["positives"] = "group"
        if pairs is not None:
            values |= {"positives": "pairs", "eval": _RUN.eval}  # `retrieval` would hold pairs out
        usual = {} if pairs is None else usual_of_targets(targets)
        if "target_encoder" in usual and (spec := as_spec(values.get("target_encoder", "auto")))["name"] == "auto":
            values["target_encoder"] = {**spec, "name": usual["target_encoder"]}
        values = usual | values
        if self.encoder == "auto" and self.features in ("auto", "labels") and (kind := claiming(X)) is not None:
            values["encoder"] = kind.usual(X).get("encoder", "auto")
        try:
            return make_config(values)
        except InputError as error:
            # the message names settings of a run, some of which this class names differently
            text = str(error).replace("`views.", "`").replace("`seeds.0`", "`random_state`")
            raise InputError(text) from None


@functools.cache
def _installed(kind: type[GraphCL], name: str, device: str) -> GraphCL:
    """Return a fitted estimator, read once, as reading takes longer than embedding a graph."""
    return kind.load(name, device=device)


def _listed(X: Any) -> Any:
    """Return as a list a generator, or what scikit-learn's splitters give: a Series or array of one axis; else `X`."""
    streamed = isinstance(X, Iterator | torch.utils.data.IterableDataset)
    return list(X) if streamed or (hasattr(X, "dtype") and getattr(X, "ndim", 0) == 1) else X
