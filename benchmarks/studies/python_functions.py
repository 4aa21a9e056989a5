"""Find a function of a Python package in another release: python benchmarks/studies/python_functions.py

Fetches wheels by pip, pairs functions whose syntax tree changed (`python_graphs.py`), trains encoders on the pairs, and
scores the search for the new tree of an old one among the functions of the new release, split by package. Finished
lines of OUT/results.jsonl are not measured again.
"""

import copy
import time
from functools import cache, partial
from itertools import product
from pathlib import Path

import numpy as np
import torch
from late_interaction import late_interaction, reranked, to_candidates
from python_graphs import PACKAGES, load
from scipy.sparse import csr_array, diags, hstack
from study import COLOURS, add_line, curve, figure, finished_lines, markdown, options, write_svg, write_tables
from torch.nn.functional import cross_entropy, normalize

from graphcl import GIN, ContrastiveModel, Identity, NodeDrop, ResidentLoader, TwoViews, embed, train
from graphcl.evaluate.ranking import cosines, rank_by
from graphcl.graphs.wl import histogram, refine, unary
from graphcl.loaders.pairs import EpochPairs
from graphcl.losses import Loss
from graphcl.methods.method import Method, Outcome
from graphcl.models.deep_sets import DeepSets
from graphcl.references.statistics import bag_of_labels, graph_statistics

BATCH, TEMPERATURES, RATE, WIDTH = 256, {"bag": 0.1, "gin": 0.05}, 3e-3, 64
"""Pairs of a batch, temperatures of all losses, learning rate, and width of GIN."""
EPOCHS = {"bag": 15, "gin": 10, "views": 3}
"""Numbers of epochs; the best one is chosen on the validation packages."""
LATE = {"size": 32, "steps": 120, "lr": 1e-3}
"""Training of late interaction: pairs of a batch, number of batches and learning rate."""
LOSSES, CURVE = ("infonce", "dcl", "adnce", "hcl", "debiased"), (250, 1000, 4000)
ROWS = {"bag": "bag, MLP, pairs", "gin": "GIN, pairs"}
WITHOUT = ("number of nodes", "bag of labels", "statistics", "WL", "WL-OA")
FIGURES = {"mrr": "MRR", "recall_at_1": "recall@1", "recall_at_10": "recall@10"}


class Part:
    """The graphs of a part of the packages, in the order of `loader`, and the score of a search in it."""

    def __init__(self, graphs, rows, part, packages=PACKAGES):
        self.names = [name for each in packages.values() for name in each]
        numbers = torch.tensor([self.names.index(name) for name in packages[part]])
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


def kernel(part, depth, assignment, weigh):
    """Return the similarity of the WL or WL-OA kernel, normalised; `weigh`: by inverse document frequency."""
    batch = part.loader.batch(torch.arange(len(part.graphs)))
    labels, graph = batch.x.argmax(1).numpy(), batch.batch.numpy()
    counts = [histogram(each, graph) for each in refine(labels, batch.edge_index.numpy(), depth)]
    rows = csr_array(hstack([unary(each) if assignment else each for each in counts]), dtype=float)
    if weigh:
        rows = rows @ diags(np.log((1 + rows.shape[0]) / np.bincount(rows.indices, minlength=rows.shape[1]).clip(1)))
    rows = csr_array(diags(1 / np.sqrt((rows * rows).sum(1))) @ rows)
    return lambda queries, candidates: torch.from_numpy((rows[queries.numpy()] @ rows[candidates.numpy()].T).toarray())


def size(part):
    """Return the similarity of two numbers of nodes, by their ratio."""
    nodes = torch.tensor([each.num_nodes for each in part.graphs]).double().log()
    return lambda queries, candidates: -(nodes[queries, None] - nodes[candidates]).abs()


def bag(part, scale):
    """Return the similarity of two bags of labels."""
    return by_cosine(scale(bag_of_labels(part.loader).double()))


def without_training():
    """Yield row, setting and the function from a part to the similarity, of all rows without an encoder."""
    nodes, labels, statistics, *kernels = WITHOUT
    yield nodes, "", size
    yield from ((labels, each.__name__, partial(bag, scale=each)) for each in (torch.clone, torch.log1p))
    yield statistics, "", lambda part: by_cosine(graph_statistics(part.loader))
    for row, depth, weigh in product(kernels, range(1, 5), (False, True)):
        setting = f"depth {depth}{', idf' * weigh}"
        yield row, setting, partial(kernel, depth=depth, assignment=row == "WL-OA", weigh=weigh)


def pooled(part, model):
    """Return the similarity of a model's embeddings."""
    return by_cosine(embed(model, part.loader)[0])


@torch.no_grad()
def late(part, model):
    """Return late interaction of the nodes as a second stage: it orders the 100 best candidates of the embeddings."""
    model.eval()
    nodes = torch.cat([model.encode_nodes(batch)[1] for batch in part.loader])
    ptr = torch.tensor([0, *(each.num_nodes for each in part.graphs)]).cumsum(0)
    return reranked(pooled(part, model), to_candidates(nodes, ptr))


def with_kernel(part, model, of_kernel):
    """Return the mean of a model's and a kernel's similarity."""
    one, two = pooled(part, model), of_kernel(part)
    return lambda queries, candidates: (one(queries, candidates) + two(queries, candidates)) / 2


class Late(Method):
    """Contrasts the late interactions of a batch's pairs."""

    def forward(self, view1, view2, *, ids=None, generator=None):
        """Return the loss of a batch."""
        (h, one), (other, two) = map(self.model.encode_nodes, (view1, view2))
        scores = late_interaction(one, view1.ptr, two, view2.ptr) / TEMPERATURES["gin"]
        own = torch.arange(len(scores))
        loss = (cross_entropy(scores, own) + cross_entropy(scores.T, own)) / 2  # InfoNCE of both directions
        return Outcome(loss, h, h, other)


def new_model(kind, width, seed):
    """Return an untrained model."""
    torch.manual_seed(seed)
    return ContrastiveModel(DeepSets(width) if kind == "bag" else GIN(width, WIDTH, readout="log_sum"), projection=128)


def batches(part, seed, size, pairs=None, views=False):
    """Return a loader of `pairs` groups (default: all), or of single graphs as `views`."""
    draw = torch.Generator().manual_seed(seed)
    known = part.group.unique()
    kept = torch.isin(part.group, known[torch.randperm(len(known), generator=draw)[:pairs]]).nonzero().flatten()
    graphs, groups = [part.graphs[i] for i in kept.tolist()], None if views else part.group[kept]
    return ResidentLoader(graphs, batch_sampler=EpochPairs(groups, size, True, draw))


def trained(parts, kind, seed, pairs=None, loss="infonce", views=False, epochs=None):
    """Return a model trained on pairs or on two views: of some checks, the best in the validation part.

    With fewer pairs there are more epochs than `epochs`, up to eight times as many.
    """
    train_part, valid = parts["train"], parts["validation"]
    model, best = new_model(kind, train_part.graphs[0].num_features, seed), [-1.0, None]
    loader, view = batches(train_part, seed, BATCH, pairs, views), NodeDrop(0.2) if views else Identity()
    times = 1 if pairs is None else min(8, len(train_part.graphs) // 2 // pairs)

    def check(epoch):
        if epoch.epoch % times == 0:
            found = valid.score(pooled(valid, model))["mrr"].mean()
            best[:] = max(best, [found, copy.deepcopy(model.state_dict())], key=lambda each: each[0])

    epochs = epochs or EPOCHS["views" if views else kind]
    method = TwoViews(model, Loss(loss, temperature=TEMPERATURES[kind]))
    train(method, loader, view, view, epochs=epochs * times, lr=RATE, callbacks=[check])
    model.load_state_dict(best[1])
    return model


def interacting(parts, model, seed):
    """Return a copy of a model trained on by late interaction."""
    model = copy.deepcopy(model)
    loader = batches(parts["train"], seed, LATE["size"])
    train(Late(model, "infonce"), loader, Identity(), Identity(), steps=LATE["steps"], lr=LATE["lr"])
    return model


def searches(parts, name, seed, of_kernel, **how):
    """Yield row and the function from a part to the similarity, of the models of one cell."""
    if name == "GIN, untrained":
        model = new_model("gin", parts["train"].graphs[0].num_features, seed)
    else:
        model = trained(parts, seed=seed, **how)
    yield name, partial(pooled, model=model)
    if name == "GIN, untrained":
        yield "late interaction, untrained", partial(late, model=model)
    if name == ROWS["gin"]:
        yield "GIN, pairs, and WL-OA", partial(with_kernel, model=model, of_kernel=of_kernel)
        yield "late interaction, pairs", partial(late, model=interacting(parts, model, seed))


def cells(seeds):
    """Return the encoders that are to be measured: row, seed and arguments of `trained`."""
    found = []
    for seed in range(seeds):
        found += [(name, seed, {"kind": kind}) for kind, name in ROWS.items()]
        found += [("GIN, untrained", seed, {}), ("GIN, two views", seed, {"kind": "gin", "views": True})]
        found += [(f"{name}: {pairs}", seed, {"kind": kind, "pairs": pairs})
                  for pairs, (kind, name) in product(CURVE, ROWS.items())]  # fmt: skip
        found += [(f"loss: {loss}", seed, {"kind": "gin", "loss": loss}) for loss in LOSSES[1:]]
    return found


def measure(parts, file, seeds):
    """Measure the rows that are not in `file` yet; append a line each, with the figures of every query, in percent."""

    most = len(parts["train"].graphs) // 2

    def keep(row, seed, setting, chosen, similarity, started):
        found = parts["test"].score(similarity(parts["test"]))
        print(f"{row}, seed {seed}, {setting}: validation {chosen:.2f}, MRR {found['mrr'].mean():.2f}", flush=True)
        figures = {name: each.round(2).tolist() for name, each in found.items()}
        figures |= {"validation": chosen, "seconds": time.time() - started, "pairs": most}
        add_line(file, row=row, seed=seed, setting=setting, **figures)

    def validated(similarity):
        return parts["validation"].score(similarity(parts["validation"]))["mrr"].mean()

    if not finished_lines(file):
        started, best = time.time(), {}
        for row, setting, similarity in without_training():
            found = validated(similarity), setting, similarity
            best[row] = max(best.get(row, (-1.0,)), found, key=lambda each: each[0])
        for row, (chosen, setting, similarity) in best.items():
            keep(row, 0, setting, chosen, similarity, started)
    lines = finished_lines(file)
    setting = next(each["setting"] for each in lines if each["row"] == "WL-OA")
    of_kernel = next(each for row, name, each in without_training() if (row, name) == ("WL-OA", setting))
    for name, seed, how in cells(seeds):
        if (name, seed) in {(each["row"], each["seed"]) for each in lines}:
            continue
        started = time.time()
        for row, similarity in [*searches(parts, name, seed, of_kernel, **how)][::-1]:  # the row of `cells` last
            keep(row, seed, "", validated(similarity), similarity, started)


def of_row(lines, row, name="mrr"):
    """Return a figure of each seed and query of a row, `[seeds, queries]`."""
    return np.array([each[name] for each in lines if each["row"] == row])


def cell(lines, row, name="mrr"):
    """Return mean ± deviation over seeds in Markdown, with the number of seeds of an encoder if it is not three."""
    means = of_row(lines, row, name).mean(1)
    spread, seeds = f" ± {means.std():.1f}" * (len(means) > 1), f" ({len(means)})" * (len(means) != 3)
    return f"{means.mean():.1f}{spread}{seeds * (row not in WITHOUT)}"


@cache
def weights(queries, draws=10_000):
    """Return how often each query is in each bootstrap sample, as a fraction `[draws, queries]`."""
    return np.random.default_rng(0).multinomial(queries, np.full(queries, 1 / queries), draws) / queries


def difference(lines, row, other):
    """Return the difference in MRR of two rows with its 95 % interval, from a bootstrap over queries."""
    seeds = [{each["seed"] for each in lines if each["row"] == name} for name in (row, other)]
    if not {row, other} & {*WITHOUT}:  # those have one seed
        lines = [each for each in lines if each["seed"] in seeds[0] & seeds[1]]
    gains = of_row(lines, row).mean(0) - of_row(lines, other).mean(0)
    low, high = np.percentile(weights(len(gains)) @ gains, [2.5, 97.5])
    return f"{gains.mean():+.1f} ({low:+.1f} to {high:+.1f})"


def write(lines, docs):
    """Write the tables and the figure of the page."""
    plain = [row for row in dict.fromkeys(each["row"] for each in lines) if ":" not in row]
    plain.sort(key=lambda row: of_row(lines, row).mean())
    of = "WL-OA", ROWS["bag"]
    rows = [[row, *(cell(lines, row, name) for name in FIGURES), *(difference(lines, row, each) for each in of)]
            for row in plain]  # fmt: skip
    by_loss = [[f"`{loss}`", cell(lines, row), difference(lines, row, ROWS["gin"])] for loss in LOSSES
               if len(of_row(lines, row := ROWS["gin"] if loss == "infonce" else f"loss: {loss}"))]  # fmt: skip
    known = {pairs: [f"{name}: {pairs}" for name in ROWS.values()] for pairs in CURVE}
    known[lines[0]["pairs"]] = [*ROWS.values()]
    known = {pairs: names for pairs, names in known.items() if all(len(of_row(lines, each)) for each in names)}
    by_pairs = [[pairs, *(cell(lines, each) for each in names), difference(lines, *names[::-1])]
                for pairs, names in known.items()]  # fmt: skip
    write_tables(
        docs / "python_functions.md",
        rows=markdown(["row", *FIGURES.values(), *(f"MRR - {each}" for each in of)], rows),
        curve=markdown(["pairs", *ROWS.values(), "GIN - bag"], by_pairs),
        losses=markdown(["loss", "MRR", "difference to `infonce`"], by_loss),
    )
    drawing, ((axis,),) = figure(1, width=4.2)
    for colour, name, at in zip(COLOURS, ROWS.values(), range(2), strict=False):
        curve(axis, [*known], [of_row(lines, names[at]).mean(1) for names in known.values()], colour, name)
    axis.axhline(of_row(lines, "WL-OA").mean(), color="#666666", linestyle="--", linewidth=1, label="WL-OA")
    axis.set(xscale="log", xlabel="training pairs", ylabel="MRR on the test packages")
    axis.set_xticks([*known], [*known])
    axis.minorticks_off()
    axis.legend(loc="center left")
    write_svg(drawing, docs / "python_functions.svg")


def run(name, packages, graphs, measure, write):
    """Fetch and build the trees of `packages`, kept as `graphs`; measure what is missing; write the page of a study."""
    parser = options(name)
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache/graphcl/python_functions")
    parser.add_argument("--out", type=Path, default=Path("sweeps") / name)
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    torch.set_num_threads(1)
    file = given.out / "results.jsonl"
    if not given.finished:
        known = load(given.cache, packages, graphs)
        measure({part: Part(*known, part, packages) for part in packages}, file, given.seeds)
    write(finished_lines(file), given.docs)


if __name__ == "__main__":
    run("python_functions", PACKAGES, "trees", measure, write)
