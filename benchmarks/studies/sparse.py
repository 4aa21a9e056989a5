"""Train weights of WL patterns to find functions in another release: python benchmarks/studies/sparse.py

The search is that of `docs/studies/python_functions.md`, with more packages: old syntax trees in the new release of
their package. Settings are chosen on the validation packages. Finished lines of OUT/results.jsonl are not measured
again.
"""

import copy
from functools import cache, partial
from itertools import groupby, product
from pathlib import Path

import numpy as np
import torch
from kept import kept_lines
from python_graphs import PACKAGES, load
from scipy.sparse import csr_array, diags
from study import add_line, finished_lines, markdown, options, write_tables
from torch.nn.functional import normalize

from graphcl import GIN, ContrastiveModel, Identity, ResidentLoader, TwoViews, embed, train
from graphcl.evaluate.ranking import cosines, rank_by
from graphcl.extensions.sparse.encoder import WLSparse
from graphcl.extensions.sparse.index import SparseRows
from graphcl.graphs.wl import histogram, numbered
from graphcl.loaders.samplers import EpochPairs
from graphcl.losses import Loss, infonce
from graphcl.models.deep_sets import DeepSets
from graphcl.references import wl
from graphcl.references.statistics import bag_of_labels

PACKAGES = {
    "train": PACKAGES["train"] | {
        "twisted": ("21.2.0", "24.7.0"), "mypy": ("0.770", "1.11.0"), "rdflib": ("5.0.0", "7.0.0"),
        "xarray": ("0.13.0", "2024.7.0"), "mne": ("0.20.0", "1.8.0"), "transformers": ("3.0.0", "4.44.0"),
        "moto": ("1.3.16", "5.0.0"), "wagtail": ("2.0", "6.0"), "apache-airflow": ("1.10.10", "2.9.0"),
        "pymc": ("4.0.0", "5.16.0"),
    },
    "validation": PACKAGES["validation"] | {
        "nltk": ("3.6.2", "3.9.1"), "celery": ("4.2.0", "5.4.0"), "ipython": ("7.0.1", "8.26.0"),
    },
    "test": PACKAGES["test"],
}  # fmt: skip
"""Part -> package -> old and new release."""
DEPTH, BATCH, TEMPERATURE, RATE, EPOCHS = 3, 128, 0.05, 0.03, 3
"""Depth, pairs in a batch, temperature, step size and epochs of the learned weights."""
IDF, NORM, MIX = (0.25, 0.5, 1.0), (1.0, 0.9, 0.8), (0.0, 0.1, 0.2, 0.3, 0.5, 1.0)
"""Exponents of the inverse document frequency and of a candidate's norm; weights of the dense cosines in a hybrid."""
DEPTHS, CURVE = (1, 2, 3, 4), (1, 2, 4)
"""Depths of the kernels, and numbers of training packages."""
MODELS = {"bag": (10, 0.1), "gin": (6, 0.05)}
"""Epochs, of which the best one is chosen on the validation packages, and temperatures of the dense encoders."""
PAIRS, MODEL_RATE = 256, 3e-3
"""Pairs in a batch and learning rate of the dense encoders."""
FIGURES, LEARNED = {"mrr": "MRR", "recall_at_1": "recall@1"}, "learned weights"


class Part:
    """The graphs of a part of the packages, in the order of `loader`, and the score of a search in it."""

    def __init__(self, graphs, rows, part):
        self.names = [name for each in PACKAGES.values() for name in each]
        numbers = torch.tensor([self.names.index(name) for name in PACKAGES[part]])
        ids = torch.isin(rows[0], numbers).nonzero().flatten()
        self.graphs, (self.package, self.group, self.release) = [graphs[i] for i in ids.tolist()], rows[:, ids]
        self.loader = ResidentLoader(self.graphs, 256)

    def score(self, similarity):
        """Return the figures of each query in percent: an old tree in the new release of its package."""
        found = []
        for package in self.package.unique():
            old, new = ((self.package == package) & (self.release == each) for each in (0, 1))
            found.append(rank_by(similarity, self.group, old.nonzero().flatten(), new.nonzero().flatten()).values)
        return {name: 100 * torch.cat([each[name] for each in found]).numpy() for name in FIGURES}


def by_cosine(rows):
    """Return the similarity of embeddings."""
    return cosines(normalize(rows.double(), dim=1))


def pooled(part, model):
    """Return the similarity of a model's embeddings."""
    return by_cosine(embed(model, part.loader)[0])


def subtree(part, depth):
    """Return the similarity of the WL subtree kernel."""
    batch = part.loader.batch(torch.arange(n := len(part.graphs)))
    found = numbered(batch.x.argmax(1).numpy(), batch.edge_index.numpy(), depth)
    return wl.kernel([histogram(each, batch.batch.numpy()) for each in found], np.arange(n)).similarity(depth, [])


def new_model(part, kind, seed):
    """Return an untrained model."""
    torch.manual_seed(seed)
    width = part.graphs[0].num_features
    return ContrastiveModel(DeepSets(width) if kind == "bag" else GIN(width, 64, readout="log_sum"), projection=128)


def trained(parts, kind, seed):
    """Return a model trained on pairs: of its epochs, the best in the validation part."""
    part, valid = parts["train"], parts["validation"]
    model, best, (epochs, temperature) = new_model(part, kind, seed), [-1.0, None], MODELS[kind]
    sampler = EpochPairs(part.group, PAIRS, True, torch.Generator().manual_seed(seed))

    def check(_):
        found = score(valid, partial(pooled, model=model))
        best[:] = max(best, [found, copy.deepcopy(model.state_dict())], key=lambda each: each[0])

    method = TwoViews(model, Loss("infonce", temperature=temperature))
    loader = ResidentLoader(part.graphs, batch_sampler=sampler)
    train(method, loader, Identity(), Identity(), epochs=epochs, lr=MODEL_RATE, callbacks=[check])
    model.load_state_dict(best[1])
    return model


@torch.no_grad()
def rows_of(part, encoder):
    """Return the sparse rows of a part's graphs as a matrix of SciPy."""
    found = [encoder.rows(each.x, each.edge_index, each.batch, size=each.num_graphs) for each in part.loader]
    return csr_array(SparseRows.cat(found).scipy()[0].astype(float))


def products(rows, candidates=None):
    """Return the similarity of rows of SciPy: their inner products."""
    other = rows if candidates is None else candidates
    return lambda queries, among: torch.from_numpy((rows[queries.numpy()] @ other[among.numpy()].T).toarray())


def learned(part, encoder):
    """Return the similarity of sparse rows."""
    return products(rows_of(part, encoder))


def tuned(part, depth, idf, norm):
    """Return the similarity of WL-OA's columns, weighted by idf^`idf`, divided by the candidate's norm^`norm`.

    The document frequency is that among the new functions of the package.
    """
    rows = rows_of(part, WLSparse(part.graphs[0].num_features, depth))
    rows.data[:] = 1
    for package in part.package.unique():
        own = part.package == package
        new = rows[(own & (part.release == 1)).numpy()]
        weight = np.log((1 + new.shape[0]) / (0.5 + np.bincount(new.indices, minlength=rows.shape[1]))) ** idf
        at = np.repeat(own.numpy(), np.diff(rows.indptr))
        rows.data[at] = weight[rows.indices[at]]
    lengths = np.sqrt((rows * rows).sum(1))
    return products(diags(1 / lengths) @ rows, diags((lengths / lengths.mean()) ** -norm) @ rows)


def without_training():
    """Yield row, setting and the function from a part to the similarity, of all rows without an encoder."""
    yield "bag of labels", "log", lambda part: by_cosine(bag_of_labels(part.loader).double().log1p())
    yield from (("WL", f"depth {each}", partial(subtree, depth=each)) for each in DEPTHS)
    for row, columns in (("WL, log counts", "log_counts"), ("WL-OA", "unary")):
        yield from ((row, f"depth {each}", partial(columns_only, depth=each, columns=columns)) for each in DEPTHS)
    for row, norms in (("WL-OA, idf", NORM[:1]), ("WL-OA, idf and norm", NORM)):
        for idf, norm in product(IDF, norms):
            yield row, f"depth {DEPTH}, idf^{idf}, norm^{norm}", partial(tuned, depth=DEPTH, idf=idf, norm=norm)


def columns_only(part, depth, columns):
    """Return the similarity of sparse rows without training."""
    return learned(part, WLSparse(part.graphs[0].num_features, depth, columns))


def weights_of(parts, seed, packages=None):
    """Return an encoder whose weights are trained on pairs: of its epochs, the best on the validation packages.

    A batch holds pairs of one package. `packages` are drawn by the seed; default: all.
    """
    part, draw = parts["train"], torch.Generator().manual_seed(seed)
    known = part.package.unique()
    used = torch.isin(part.package, known[torch.randperm(len(known), generator=draw)[:packages]])
    encoder = WLSparse(part.graphs[0].num_features, DEPTH)
    encoder.fit(part.loader, part.group.where(used, -1))
    optimiser, best = torch.optim.Adam(encoder.parameters(), lr=RATE), (-1.0, None)
    old = (used & (part.release == 0)).nonzero().flatten()
    for _ in range(EPOCHS):
        for some in of_one_package(old, part.package[old], draw):
            batch = part.loader.batch(torch.cat([some, some + 1]))  # a pair's graphs are neighbours
            z = encoder(batch.x, batch.edge_index, batch.batch, size=batch.num_graphs)
            loss = infonce(*z.chunk(2), temperature=TEMPERATURE)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        found = score(parts["validation"], partial(learned, encoder=encoder))
        best = max(best, (found, copy.deepcopy(encoder.state_dict())), key=lambda each: each[0])
    encoder.load_state_dict(best[1])
    return encoder


def of_one_package(graphs, package, draw):
    """Return graphs in batches of some 128 of one package, in random order."""
    graphs, found = graphs[order := torch.randperm(len(graphs), generator=draw)], []
    for each in package.unique():
        own = graphs[package[order] == each]
        found += own.tensor_split(max(1, round(len(own) / BATCH)))
    return [found[i] for i in torch.randperm(len(found), generator=draw).tolist()]


def hybrid(one, two, weight):
    """Return the function from a part to `weight` times a similarity and 1 - `weight` times another."""

    def similarity(part):
        first, second = one(part), two(part)
        return lambda *which: weight * first(*which) + (1 - weight) * second(*which)

    return similarity


def score(part, similarity):
    """Return the mean reciprocal rank over the queries of a part, in percent."""
    return part.score(similarity(part))["mrr"].mean()


def trainings(parts, seed):
    """Yield row, setting and the function from a part to the similarity, of the learned weights, GIN and both."""
    sparse = cache(partial(learned, encoder=weights_of(parts, seed)))
    yield LEARNED, "", sparse
    dense = cache(partial(pooled, model=trained(parts, "gin", seed)))
    yield "GIN, pairs", "", dense
    yield from (("hybrid", f"weight {each}", hybrid(dense, sparse, each)) for each in MIX)


def others(parts, seed):
    """Yield the same for other rows of a seed."""
    for kind, name in (("gin", "GIN"), ("bag", "bag")):
        yield f"{name}, untrained", "", partial(pooled, model=new_model(parts["train"], kind, seed))
    yield "bag, pairs", "", partial(pooled, model=trained(parts, "bag", seed))
    for packages in CURVE:
        yield f"{LEARNED}: {packages}", "", partial(learned, encoder=weights_of(parts, seed, packages))


def measure(parts, file, seeds):
    """Measure the rows that are not in `file` yet; append a line each, with the figures of every query, in percent.

    The setting of a row is the best of the validation packages.
    """
    test, valid = parts["test"], parts["validation"]
    asked = {
        test.names[each]: int(((test.package == each) & (test.release == 0)).sum()) for each in test.package.unique()
    }

    def keep(rows, seed):
        done = {each["row"] for each in finished_lines(file) if each["seed"] == seed}
        for row, settings in groupby(rows, lambda each: each[0]):
            if row in done:
                continue
            found = [(score(valid, similarity), setting, similarity) for _, setting, similarity in settings]
            chosen, setting, similarity = max(found, key=lambda each: each[0])
            figures = test.score(similarity(test))
            print(
                f"{row}, seed {seed}, {setting}: validation {chosen:.2f}, MRR {figures['mrr'].mean():.2f}", flush=True
            )
            figures = {name: figures[name].round(2).tolist() for name in FIGURES}
            add_line(file, row=row, seed=seed, setting=setting, validation=chosen, queries=asked, **figures)

    keep(without_training(), 0)
    for rows, seed in product((trainings, others), range(seeds)):
        last = "hybrid" if rows is trainings else f"{LEARNED}: {CURVE[-1]}"
        if (last, seed) not in {(each["row"], each["seed"]) for each in finished_lines(file)}:
            keep(rows(parts, seed), seed)


def by_package(lines, row, name="mrr"):
    """Return package -> a figure of each seed and query of a row, `[seeds, queries]`."""
    found = [each for each in lines if each["row"] == row]
    ends = np.cumsum([*found[0]["queries"].values()])[:-1]
    return dict(zip(found[0]["queries"], np.split(np.array([each[name] for each in found]), ends, axis=1), strict=True))


def cell(lines, row, name="mrr"):
    """Return the mean over packages of a figure, its deviation over seeds, and their number if it is not three."""
    seeds = np.mean([each.mean(1) for each in by_package(lines, row, name).values()], axis=0)
    number = f" ({len(seeds)})" * (len(seeds) != 3 and row not in {each for each, *_ in without_training()})
    return f"{seeds.mean():.1f}" + f" ± {seeds.std(ddof=1):.1f}" * (len(seeds) > 1) + number


def difference(lines, row, packages, other="WL-OA", name="mrr"):
    """Return the difference of two rows in Markdown: the mean over packages with a bootstrap interval over queries."""
    one, two = by_package(lines, row, name), by_package(lines, other, name)
    gains, draw = [one[each].mean(0) - two[each].mean(0) for each in packages], np.random.default_rng(0)
    drawn = [draw.multinomial(n := len(each), np.full(n, 1 / n), 10_000) @ each / n for each in gains]
    low, high = np.percentile(np.mean(drawn, axis=0), [2.5, 97.5])
    return f"{np.mean([each.mean() for each in gains]):+.1f} ({low:+.1f} to {high:+.1f})"


def write(lines, docs):
    """Write the tables of the page."""
    packages = [*PACKAGES["test"]]
    names = [row for row in dict.fromkeys(each["row"] for each in lines) if ":" not in row]
    names.sort(key=lambda row: np.mean([each.mean() for each in by_package(lines, row).values()]))
    rows = [
        [row, *(cell(lines, row, name) for name in FIGURES)]
        + [difference(lines, row, packages, name=name) for name in FIGURES]
        for row in names
    ]
    pairs = (LEARNED, "WL-OA"), ("hybrid", "WL-OA"), ("hybrid", LEARNED)
    single = []
    for each in packages:
        means = [f"{by_package(lines, row)[each].mean():.1f}" for row in ("WL-OA", LEARNED, "GIN, pairs", "hybrid")]
        gains = [difference(lines, row, [each], other) for row, other in pairs]
        single.append([each, by_package(lines, "WL-OA")[each].shape[1], *means, *gains])
    known = {count: f"{LEARNED}: {count}" for count in CURVE} | {len(PACKAGES["train"]): LEARNED}
    known = {count: row for count, row in known.items() if any(each["row"] == row for each in lines)}
    several = [[count, cell(lines, row), difference(lines, row, packages)] for count, row in known.items()]
    heads = [" - ".join(pair) for pair in pairs]
    write_tables(
        docs / "sparse.md",
        rows=markdown(["row", *FIGURES.values(), *(f"{each} - WL-OA" for each in FIGURES.values())], rows),
        packages=markdown(["package", "queries", "WL-OA", LEARNED, "GIN, pairs", "hybrid", *heads], single),
        curve=markdown(["training packages", "MRR", "MRR - WL-OA"], several),
    )


def main():
    """Fetch and build the trees, measure what is missing, and write the page."""
    parser = options("sparse")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache/graphcl/python_functions")
    parser.add_argument("--out", type=Path, default=Path("sweeps/sparse"))
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    torch.set_num_threads(1)
    file = given.out / "results.jsonl"
    if not given.finished:
        known = load(given.cache, PACKAGES, "sparse")
        measure({part: Part(*known, part) for part in PACKAGES}, file, given.seeds)
    write(kept_lines("sparse", None if given.finished else file), given.docs)


if __name__ == "__main__":
    main()
