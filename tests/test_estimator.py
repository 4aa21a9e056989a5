"""Test `GraphCL` with scikit-learn's tools, and compare it with the command line."""

import re

import networkx
import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import estimator_checks
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GCN, GINConv, global_add_pool

from graphcl import GraphCL, Pooled, knn, load_dataset, load_encoder
from graphcl.errors import InputError
from graphcl.run import main
from tests.conftest import small_graphs

QUICK = {"encoder": {"name": "gin", "hidden_channels": 4}, "epochs": 1, "batch_size": 12}


class Own(nn.Module):
    """Encoder made from PyG's layers; its `forward` has no arguments `size` and `edge_attr`."""

    def __init__(self, in_channels, out_channels=6):
        super().__init__()
        self.conv, self.out_channels = GINConv(nn.Linear(in_channels, out_channels)), out_channels

    def forward(self, x, edge_index, batch):
        return global_add_pool(self.conv(x, edge_index), batch)


@pytest.fixture(scope="module")
def fitted():
    return GraphCL(**QUICK).fit(small_graphs())


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"loss": {"name": "adnce", "mu": 0.5}, "features": "labels+degree"}, "--loss adnce --loss.mu 0.5"),
        ({"method": "simgrace", "loss": "auto", "first": None, "projection": 5, "weight_decay": 0.1},
         "--method simgrace --projection 5 --weight-decay 0.1"),
        ({"loss": "dcl", "first": "identity", "second": {"name": "node_drop", "ratio": 0.3}, "steps": 4, "epochs": 20},
         "--loss=dcl --views.first=identity --views.second node_drop --views.second.ratio 0.3 --steps=4 --epochs=20"),
    ],
)  # fmt: skip
def test_the_same_embeddings_as_the_command_line(settings, words, saved_graphs, tmp_path):
    path, out = saved_graphs(), str(tmp_path / "run")
    words += f" --features {settings.get('features', 'auto')} --encoder.hidden_channels 4 --batch-size 12"
    words += "" if "steps" in settings else " --epochs 3"
    rest = ["--seeds", "5", "--eval", "knn", "--report", "false", "--out", out]
    assert main(["--dataset", path, *words.split(), *rest]) == 0
    with np.load(f"{out}/embeddings.npz") as arrays:
        h = arrays["h"][0]
    estimator = GraphCL(**{**QUICK, "epochs": 3, **settings}, random_state=5)
    assert np.array_equal(estimator.fit_transform(small_graphs()), h)
    assert len(estimator.history_) == (2 if "steps" in settings else 3)
    # An estimator loaded from the run folder gives the same embeddings, also after training again.
    loaded = GraphCL.load(out)
    assert np.array_equal(loaded.transform(small_graphs()), h)
    assert np.array_equal(clone(loaded).fit_transform(small_graphs()), h)


PLAIN_CHECKS = [
    "do_not_raise_errors_in_init_or_set_param", "estimator_cloneable", "estimator_repr", "estimator_tags_renamed",
    "estimators_unfitted", "get_feature_names_out_error", "get_params_invariance", "mixin_order",
    "no_attributes_set_in_init", "parameters_default_constructible", "set_params", "transformer_n_iter",
    "transformers_unfitted", "valid_tag_types",
]  # fmt: skip
ARRAY_CHECKS = [
    "dict_unchanged", "dont_overwrite_parameters", "estimators_dtypes", "estimators_fit_returns_self",
    "estimators_overwrite_params", "estimators_pickle", "f_contiguous_array_estimator", "fit_check_is_fitted",
    "fit_idempotent", "fit_score_takes_y", "methods_sample_order_invariance", "methods_subset_invariance",
    "n_features_in", "pipeline_consistency", "readonly_memmap_input", "set_output_transform",
    "transformer_data_not_an_array", "transformer_general",
]  # fmt: skip
"""Checks of `check_estimator` without and with `fit` on arrays. Left out: checks of messages for sparse, complex,
one-dimensional or empty arrays, of column names of data frames and of their number, and of sample weights."""


class OfRows(GraphCL):
    """`GraphCL` for arrays: converts each row to a graph of one node with the row as features."""

    def fit(self, X, y=None):
        return super().fit(self.graphs(X))

    def transform(self, X):
        return super().transform(self.graphs(X))

    @staticmethod
    def graphs(X):
        nothing = torch.empty(2, 0, dtype=torch.long)
        return [Data(x=torch.tensor(row, dtype=torch.float)[None], edge_index=nothing) for row in np.asarray(X)]


@pytest.mark.filterwarnings("ignore")
def test_scikit_learns_checks():
    found = 0
    for estimator, names in ((GraphCL(epochs=1), PLAIN_CHECKS), (OfRows(**QUICK), ARRAY_CHECKS)):
        for name in names:  # the oldest supported release lacks some checks
            if check := getattr(estimator_checks, f"check_{name}", None):
                check(type(estimator).__name__, estimator)
                found += 1
    assert found >= 24  # as in scikit-learn 1.4


def in_an_array(graphs):
    array = np.empty(len(graphs), dtype=object)
    array[:] = graphs
    return array


def to_networkx(graphs):
    return [networkx.from_edgelist(graph.edge_index.T.tolist()) for graph in graphs]


@pytest.mark.parametrize("given", [load_dataset, in_an_array, to_networkx])
def test_searching_a_grid(given):
    """GridSearchCV splits data sets, arrays and networkx graphs; NumPy numbers and `loss__temperature` may be searched.

    The search trains clones, so the given dicts are unchanged.
    """
    graphs, encoder = small_graphs(), QUICK["encoder"].copy()
    pipeline = make_pipeline(GraphCL(**QUICK, features="degree"), StandardScaler(), KNeighborsClassifier(3))
    grid = {
        "graphcl__loss": ["dcl"],
        "graphcl__loss__temperature": [0.2, 0.5],
        "graphcl__batch_size": np.array([10]),
        "graphcl__encoder__hidden_channels": [np.int64(3)],
    }
    search = GridSearchCV(pipeline, grid, cv=2, error_score="raise").fit(given(graphs), np.arange(36) % 2)
    assert 0.8 < search.best_score_ <= 1  # a fraction, as scikit-learn's scores are
    fitted = search.best_estimator_["graphcl"]
    assert fitted.transform(graphs).shape == (36, 9)
    assert (fitted.loss["name"], fitted.loss.keys()) == ("dcl", {"name", "temperature"})
    assert (fitted.encoder, QUICK["encoder"]) == ({"name": "gin", "hidden_channels": 3}, encoder)


def test_pandas_series_of_graphs_and_labels():
    pd = pytest.importorskip("pandas")
    graphs, y = pd.Series(small_graphs()), pd.Series(["ring", "star"] * 18)
    pipeline = make_pipeline(GraphCL(**QUICK), KNeighborsClassifier(3))
    assert set(pipeline.fit(graphs, y).predict(graphs[::-1])) <= {"ring", "star"}
    h = pipeline[0].transform(graphs)
    of_numbers = knn(h, np.arange(36) % 2, folds=3, inner_folds=2).accuracy
    for labels in (y, y.astype("category"), y.to_numpy(dtype=object), np.arange(36) % 2 * 1.0):
        assert knn(h, labels, folds=3, inner_folds=2).accuracy == of_numbers


def test_generators(fitted):
    h = clone(fitted).fit(iter(small_graphs())).transform(iter(small_graphs()))
    assert np.array_equal(h, fitted.transform(small_graphs()))


def test_labels_teach_nothing(fitted):
    graphs = small_graphs(labelled=False)
    assert np.array_equal(fitted.transform(graphs), GraphCL(**QUICK).fit_transform(graphs))
    other = clone(fitted).fit(small_graphs(), np.arange(36)[::-1])
    assert np.array_equal(fitted.transform(graphs), other.transform(graphs))


def test_molecules_stay_categories():
    """Category features are kept for a list of graphs and for a single graph; other features raise InputError."""
    graphs = small_graphs(molecules=True)
    embedder = GraphCL(**QUICK | {"encoder": {"name": "molecule_gine", "hidden_channels": 4, "num_layers": 2}})
    h = embedder.fit_transform(graphs)
    for one in (graphs[3:4], graphs[3]):
        np.testing.assert_allclose(embedder.transform(one), h[3:4], rtol=1e-4, atol=1e-5)
    with pytest.raises(InputError, match="`x` of own holds numbers; the encoder was trained on own with categories"):
        embedder.transform([graph.clone().apply(torch.Tensor.float, "x") for graph in graphs])


def test_an_encoder_of_ones_own_that_computes_with_categories_is_refused():
    """An encoder that computes with integer `x` raises InputError; an encoder that converts `x` is trained."""
    graphs = small_graphs()
    for graph in graphs:
        graph.x = graph.x.long()
    dataset = load_dataset(graphs, categories=True)
    with pytest.raises(
        InputError, match=r"encoder does not accept the `x` of own, which holds categories \(.*Embedding"
    ):
        GraphCL(**QUICK | {"encoder": Pooled(GCN(3, 4, 1))}).fit(dataset)

    class Embedded(GCN):
        def forward(self, x, edge_index):
            return super().forward(x.float(), edge_index)

    assert GraphCL(**QUICK | {"encoder": Pooled(Embedded(3, 4, 1))}).fit_transform(dataset).shape == (len(graphs), 4)


def test_seeds():
    outcomes = {}
    for name, state in {"0": 0, "one": np.int64(1), "drawn": np.random.RandomState(0), "any": None}.items():
        estimator = GraphCL(**QUICK, random_state=state).fit(small_graphs())
        outcomes[name] = estimator.transform(small_graphs()).tobytes()
        assert type(estimator.seed_) is int
    assert len(set(outcomes.values())) == 4
    again = GraphCL(**QUICK, random_state=np.random.RandomState(0)).fit_transform(small_graphs())
    assert again.tobytes() == outcomes["drawn"]


def test_attributes_saving_and_loading(fitted, tmp_path):
    path, h = tmp_path / "encoder.pt", fitted.transform(small_graphs())
    fitted.save(path)
    torch.load(path, weights_only=True)  # holds no code
    loaded = GraphCL.load(path)
    for each in (fitted, loaded):
        assert each.get_feature_names_out().tolist() == [f"graphcl{number}" for number in range(12)]
        assert (each.n_features_in_, each.seed_, each.model_.training) == (3, 0, False)
        assert (h.shape, h.dtype) == ((36, 12), np.float32)
        assert np.array_equal(each.transform(small_graphs()), h)
    assert (len(fitted.history_), loaded.history_, loaded.loss["name"]) == (1, [], "infonce")
    assert clone(loaded).get_params() == loaded.get_params()
    loaded.save(tmp_path / "again.pt")
    with pytest.raises(InputError, match="exists already and is never overwritten; give another file"):
        fitted.save(path)
    for call in (lambda: GraphCL().save("here.pt"), lambda: GraphCL().transform(small_graphs())):
        with pytest.raises(NotFittedError):
            call()


@pytest.mark.parametrize("own", [Own, Own(3)], ids=["class", "module"])
def test_a_module_of_ones_own(own, tmp_path):
    before = [each.clone() for each in own.parameters()] if isinstance(own, nn.Module) else []
    estimator = GraphCL(**{**QUICK, "encoder": own, "epochs": 2}).fit(small_graphs())
    assert all(map(torch.equal, before, own.parameters() if before else []))  # a copy was trained
    h = estimator.transform(small_graphs())
    assert h.shape == (36, 6)
    assert np.array_equal(clone(estimator).fit_transform(small_graphs()), h)
    assert not np.array_equal(GraphCL(**{**QUICK, "encoder": own, "epochs": 0}).fit_transform(small_graphs()), h)
    estimator.save(tmp_path / "own.pt")
    loaded = GraphCL.load(tmp_path / "own.pt", encoder=own)
    assert np.array_equal(loaded.transform(small_graphs()), h)
    assert np.array_equal(clone(loaded).fit_transform(small_graphs()), h)
    with pytest.raises(InputError, match="holds weights of `Own`, which is not registered here"):
        GraphCL.load(tmp_path / "own.pt")
    assert load_encoder(tmp_path / "own.pt", encoder=own)[0].out_channels == 6


PASS_LOSS = 'pass loss={"name": "adnce", "temperature": 0.2}.'
PASS_VIEW = 'pass first={"name": "random4", "ratio": 0.2}, and `second` likewise.'
MISTAKES = [
    ({"loss": "adnse"}, "`loss`: unknown loss 'adnse'; did you mean adnce"),
    ({"first": "node_dropp"}, "`first`: unknown augmentation 'node_dropp'; did you mean node_drop"),
    ({"second": {"name": "node_drop", "ratio": 2.0}}, "`second.ratio` must be in [0, 1), got 2.0."),
    ({"epochs": 1.5}, "`epochs` must be a whole number, got 1.5."),
    ({"random_state": -1}, "`random_state` must be in [0, 4294967296), got -1."),
    ({"random_state": "x"}, "'x' cannot be used to seed a numpy.random.RandomState instance"),
    ({"encoder": "gine"}, "encoder `gine` needs `edge_attr`, which own lacks; use gin."),
    ({"encoder": 3}, "`encoder` must be a module or a function of the number of columns that returns one, g"),
    ({"encoder": nn.Linear(3, 3)}, "Linear.forward takes no `edge_index` and no `batch`; a graph encoder"),
    ({"loss": "supcon"}, "trains on the labels of all graphs"),
    ({"loss": {"name": "adnce", "tau": 1.0}}, "`loss.tau` is not a known key"),
    ({"temperature": 0.5}, f"`GraphCL` has no argument `temperature`; {PASS_LOSS}"),
    ({"tau": 0.5}, f"`GraphCL` has no argument `tau`; {PASS_LOSS}"),
    ({"aug_ratio": 0.5}, f"`GraphCL` has no argument `aug_ratio`; {PASS_VIEW}"),
    ({"augmentation": 1}, "`GraphCL` has no argument `augmentation`; did you mean first and second?"),
]


def test_mistakes():
    """Invalid values raise a one-line error in `fit`, not in the constructor, as scikit-learn requires."""
    for settings, says in MISTAKES:
        if known := settings.keys() <= GraphCL().get_params().keys():
            estimator = GraphCL(**settings)
        with pytest.raises((ValueError, TypeError), match=f"^[^\n]*{re.escape(says)}[^\n]*$"):
            estimator.fit(small_graphs()) if known else GraphCL(**settings)
    with pytest.raises(InputError, match="`first__ratio` needs a named first, got None; set `first` to a name too"):
        GraphCL().set_params(first__ratio=0.1)


def test_graphs_that_do_not_fit(fitted):
    wide = [Data(x=torch.ones(3, 7), edge_index=graph.edge_index[:, :0]) for graph in small_graphs()]
    with pytest.raises(InputError, match=r"has 7 columns of `x` \(labels\); the encoder was trained on own with 3 co"):
        fitted.transform(wide)
    with pytest.raises(ValueError, match=r"graph 0 must be a square adjacency matrix of real numbers, got \[3, 4\]"):
        fitted.transform(np.ones((3, 4)))
