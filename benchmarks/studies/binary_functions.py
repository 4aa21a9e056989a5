"""Find a function that was compiled for another architecture: python benchmarks/studies/binary_functions.py

Fetches wheels for x86-64 and aarch64, pairs their functions by symbol (`binary_graphs.py`), trains encoders on the
pairs, and scores the search for the aarch64 function of an x86-64 query, split by project. Needs capstone and
pyelftools. Finished lines of OUT/results.jsonl are not measured again.
"""

import time
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import torch
from binary_graphs import KINDS, PROJECTS, load
from scipy.sparse import csr_array, diags, hstack
from study import COLOURS, add_line, figure, finished_lines, markdown, options, write_svg, write_tables
from study import curve as plot
from torch import nn
from wl import histogram, refine, unary

from graphcl import GIN, ContrastiveModel, NodeDrop, ResidentLoader
from graphcl.evaluate.ranking import expected_figures
from graphcl.losses import Loss
from graphcl.methods.two_views import TwoViews

POOL = 100
"""Candidates of the small pool."""
LOSSES = ("infonce", "dcl", "adnce", "hcl", "debiased")
CURVE = (250, 1000, 4000)
ENCODERS = {"bag": "bag, MLP, pairs", "gin": "GIN, pairs", "both": "GIN and bag, pairs"}
WITHOUT = ("size", "statistics", "bag of instructions", "WL")
STEPS, CHECKS, BATCH, TEMPERATURE, RATES = 500, 4, 256, 0.1, {"bag": 3e-3}
"""Batches of a training, how often the validation projects are searched in it (the best model is kept), functions of a
batch, of the loss, and learning rates other than 0.001: all but the numbers chosen on the validation projects."""
WIDTH, LAYERS = 64, 3


class Functions:
    """All functions: batches of graphs, parts of the split, and the score of a search."""

    def __init__(self, cache):
        graphs, projects = load(cache)
        self.loader = ResidentLoader(graphs, 1)
        self.projects = np.array(projects)
        self.parts = {part: np.flatnonzero(np.isin(self.projects, [*names])) for part, names in PROJECTS.items()}
        self.parts["validation"] = self.parts["validation"][::2]  # every check searches them

    def batch(self, ids):
        """Return the graphs with the numbers `ids` (2 i: function i for x86-64, 2 i + 1: for aarch64) as a batch."""
        batch = self.loader.batch(torch.as_tensor(ids))
        batch.x = batch.x.float().log1p()
        return batch

    def score(self, similarity, part):
        """Return the figures of each query of a part from similarities `[x86-64, aarch64]` of its functions.

        The candidates are the project's functions, or (names in `_100`) the relevant one and 99 others of the part.
        """
        of = torch.from_numpy(np.unique(self.projects[self.parts[part]], return_inverse=True)[1])
        similarity = (torch.as_tensor(similarity).double() * 2**24).round()
        relevant = torch.eye(len(of), dtype=torch.bool)
        draws = torch.rand(relevant.shape, generator=torch.Generator().manual_seed(0)).masked_fill_(relevant, 2)
        own, pool = of[:, None] == of, draws >= draws.topk(POOL).values[:, -1:]
        figures = [expected_figures(similarity.masked_fill(~each, -torch.inf), relevant) for each in (own, pool)]
        names = ("mrr_at_10", "recall_at_1")
        return {f"{n}{tail}": f[n].numpy() for f, tail in zip(figures, ("", "_100"), strict=True) for n in names}

    def vectors(self, part, function, centre):
        """Return the rows of `function(batch)` for a part, `[2, n, D]`.

        `centre`: standardise the columns of each architecture by the training functions.
        """

        def rows(ids, side):
            chunks = torch.from_numpy(2 * ids + side).split(256)
            return torch.cat([function(self.batch(chunk)) for chunk in chunks])

        with torch.no_grad():
            found = torch.stack([rows(self.parts[part], side) for side in (0, 1)])
            if centre:
                some = np.random.default_rng(0).permutation(self.parts["train"])[:2000]
                known = torch.stack([rows(some, side) for side in (0, 1)])
                found = (found - known.mean(1, True)) / known.std(1, keepdim=True).clamp(min=1e-6)
        return found

    def search(self, part, function, centre=False, euclidean=False):
        """Return the figures of the rows of `function`, compared by cosine or by Euclidean distance."""
        queries, candidates = self.vectors(part, function, centre).double()
        if euclidean:
            return self.score(-torch.cdist(queries, candidates), part)
        unit = nn.functional.normalize
        return self.score(unit(queries) @ unit(candidates).T, part)


def total(batch):
    """Return log(1 + counts) of kinds and mnemonics in each graph."""
    sums = torch.zeros(batch.num_graphs, batch.x.size(1)).index_add_(0, batch.batch, batch.x.expm1())
    return sums.log1p()


def kinds_only(batch):
    """Return log(1 + counts) of kinds in each graph."""
    return total(batch)[:, : len(KINDS)]


def size(batch):
    """Return log(1 + n) for the numbers of blocks and edges."""
    edges = torch.bincount(batch.batch[batch.edge_index[0]], minlength=batch.num_graphs)
    return torch.stack([batch.ptr.diff(), edges], 1).float().log1p()


def statistics(batch):
    """Return the size, and a histogram of degrees in logarithms."""
    degree = torch.bincount(batch.edge_index[0], minlength=len(batch.batch)).clamp(max=9)
    shares = torch.zeros(batch.num_graphs, 10).index_put_((batch.batch, degree), torch.ones(1), accumulate=True)
    return torch.cat([size(batch), shares.log1p()], 1)


class Encoder(nn.Module):
    """The bag (standardised), GIN, both side by side, or GIN of the kinds alone, which both architectures share."""

    def __init__(self, kind, width):
        super().__init__()
        self.columns = len(KINDS) if kind == "kinds" else width
        self.gin = GIN(self.columns, WIDTH, LAYERS, readout="log_sum") if kind != "bag" else None
        self.norm = nn.BatchNorm1d(width) if kind in ("bag", "both") else None
        self.out_channels = (WIDTH * LAYERS if self.gin else 0) + (width if self.norm else 0)

    def forward(self, x, edge_index, batch, size):
        """Return the embeddings `[size, out_channels]`."""
        found = [self.gin(x[:, : self.columns], edge_index, batch=batch, size=size)] if self.gin else []
        if self.norm is not None:
            sums = torch.zeros(size, x.size(1)).index_add_(0, batch, x.expm1())
            found.append(self.norm(sums.log1p()))
        return torch.cat(found, 1)


def new_model(data, kind):
    """Return an untrained model."""
    width = data.loader.batch(torch.tensor([0])).x.size(1)
    return ContrastiveModel(Encoder(kind, width), projection=128)


def train(data, kind, seed, pairs=None, loss="infonce", views=False):
    """Train an encoder, and return the model of the best check on the validation projects.

    `pairs`: number of training functions, drawn at random (None: all). `views`: contrast two views of one graph.
    """
    torch.manual_seed(seed)
    draw = np.random.default_rng(seed)
    model = new_model(data, kind)
    method = TwoViews(model, Loss(loss, temperature=TEMPERATURE))
    optimiser = torch.optim.Adam(method.parameters(), RATES.get(kind, 1e-3))
    known = draw.permutation(data.parts["train"])[:pairs]
    drop, best = NodeDrop(0.2), (-1.0, None)
    checks = [round(STEPS * (i + 1) / CHECKS) for i in range(CHECKS)]
    queue = np.empty(0, int)
    for step in range(1, STEPS + 1):
        if len(queue) < min(BATCH, len(known)):
            queue = draw.permutation(known)
        ids, queue = queue[:BATCH], queue[BATCH:]
        side = draw.integers(2, size=len(ids))
        if views:
            batch = data.batch(2 * ids + side)
            first, second = drop(batch), drop(batch)
        else:
            first, second = data.batch(2 * ids + side), data.batch(2 * ids + 1 - side)
        optimiser.zero_grad()
        method(first, second).loss.backward()
        optimiser.step()
        if step in checks:
            search = {"function": model.eval().encode, "centre": True} if views else {"function": model.eval()}
            score = data.search("validation", **search)["mrr_at_10"].mean()
            if score > best[0]:
                best = score, {key: value.clone() for key, value in model.state_dict().items()}
            model.train()
    model.load_state_dict(best[1])
    return model.eval()


def searched(data, model, pairs):
    """Return the validation score, what is compared, and the search: projections if the model is trained on `pairs`.

    The other models' embeddings are standardised in each architecture, without which they compare badly.
    """
    search = partial(data.search, function=model if pairs else model.encode, centre=not pairs)
    return 100 * search("validation")["mrr_at_10"].mean(), "projections" if pairs else "embeddings, centred", search


def kernel(data, part, kinds, depth, assignment, weigh):
    """Return the WL or WL-OA kernel `[x86-64, aarch64]` of a part, normalised.

    A node's first label is which of `kinds` its block has. `weigh`: by inverse document frequency in the part.
    """
    ids = data.parts[part]
    batch = data.batch(np.concatenate([2 * ids, 2 * ids + 1]))
    columns = [[*KINDS].index(kind) for kind in kinds]
    labels = ((batch.x[:, columns] > 0).long() << torch.arange(len(kinds))).sum(1).numpy()
    counts = [histogram(each, batch.batch.numpy()) for each in refine(labels, batch.edge_index.numpy(), depth)]
    rows = csr_array(hstack([unary(each) if assignment else each for each in counts]), dtype=float)
    if weigh:
        rows = rows @ diags(np.log((1 + rows.shape[0]) / np.bincount(rows.indices, minlength=rows.shape[1]).clip(1)))
    rows = csr_array(diags(1 / np.sqrt((rows * rows).sum(1)).clip(1e-12)) @ rows)
    return (rows[: len(ids)] @ rows[len(ids) :].T).toarray()


LABELS = {"none": (), "calls": ("call",), "calls and floats": ("call", "float"), "six kinds": (
    "call", "return", "float", "multiply", "shift", "constant")}  # fmt: skip


def without_training(data):
    """Yield row, setting and the function that scores a part, of all rows without an encoder."""
    vectors = {"size": [size], "statistics": [statistics], "bag of instructions": [total, kinds_only]}
    for row, functions in vectors.items():
        for function, centre, euclidean in product(functions, (False, True), (False, True)):
            setting = f"{function.__name__}{', centred' * centre}{', distance' * euclidean}"
            yield row, setting, partial(data.search, function=function, centre=centre, euclidean=euclidean)
    for row, assignment in (("WL", False), ("WL-OA", True)):
        for (name, kinds), depth, weigh in product(LABELS.items(), range(4), (False, True)):
            if depth or kinds:
                setting = f"labels {name}, depth {depth}{', idf' * weigh}"
                given = {"kinds": kinds, "depth": depth, "assignment": assignment, "weigh": weigh}
                yield row, setting, lambda part, given=given: data.score(kernel(data, part, **given), part)


def cells(seeds):
    """Return the rows with an encoder that are to be measured: row, seed and arguments of `train` (None: untrained)."""
    found = []
    for seed in range(seeds):
        found += [("GIN of kinds, untrained", seed, None)]
        found += [("GIN of kinds, two views", seed, {"kind": "kinds", "views": True})]
        found += [("GIN of kinds, pairs", seed, {"kind": "kinds"})]
        found += [(name, seed, {"kind": kind}) for kind, name in ENCODERS.items()]
    for seed, pairs, (kind, name) in product(range(seeds), CURVE, ENCODERS.items()):
        found.append((f"{name}: {pairs}", seed, {"kind": kind, "pairs": pairs}))
    for seed, loss in product(range(seeds), LOSSES[1:]):
        found.append((f"GIN, {loss}", seed, {"kind": "gin", "loss": loss}))
    return found


def measure(data, file, seeds):
    """Measure the rows that are not in `file` yet; append a line each, with the figures of every query, in percent."""
    done = {(each["row"], each["seed"]) for each in finished_lines(file)}

    def keep(row, seed, chosen, setting, search, started):
        figures = {name: 100 * each for name, each in search("test").items()}
        means = {name: f"{each.mean():.2f}" for name, each in figures.items()}
        print(f"{row}, seed {seed}, {setting}: validation {chosen:.2f}, {means}", flush=True)
        found = {name: each.round(2).tolist() for name, each in figures.items()}
        add_line(file, row=row, seed=seed, setting=setting, validation=chosen, seconds=time.time() - started, **found)

    started, best = time.time(), {}
    if ("size", 0) not in done:
        for row, setting, search in without_training(data):
            chosen = 100 * search("validation")["mrr_at_10"].mean()
            best[row] = max(best.get(row, (-1.0,)), (chosen, setting, search), key=lambda each: each[0])
        for row, found in best.items():
            keep(row, 0, *found, started)
    for row, seed, arguments in cells(seeds):
        if (row, seed) in done:
            continue
        started = time.time()
        if arguments is None:
            torch.manual_seed(seed)
            model = new_model(data, "kinds").eval()
        else:
            model = train(data, seed=seed, **arguments)
        keep(row, seed, *searched(data, model, bool(arguments) and not arguments.get("views")), started)


def of_row(lines, row, name="mrr_at_10"):
    """Return a figure of each seed and query of a row, `[seeds, queries]`."""
    return np.array([each[name] for each in lines if each["row"] == row])


def difference(lines, row, other, draws=10_000):
    """Return the difference in MRR of two rows with its 95 % interval, from a bootstrap over queries."""
    seeds = [{each["seed"] for each in lines if each["row"] == name} for name in (row, other)]
    if not row.startswith(WITHOUT):  # those have one seed
        lines = [each for each in lines if each["seed"] in seeds[0] & seeds[1]]
    gains = of_row(lines, row).mean(0) - of_row(lines, other).mean(0)
    drawn = np.random.default_rng(0).multinomial(len(gains), np.full(len(gains), 1 / len(gains)), draws)
    low, high = np.percentile(drawn @ gains / len(gains), [2.5, 97.5])
    return f"{gains.mean():+.1f} ({low:+.1f} to {high:+.1f})"


def write(lines, data, docs):
    """Write the tables and the figure of the page."""
    names = {"mrr_at_10": "MRR@10", "recall_at_1": "recall@1", "mrr_at_10_100": "MRR@10 of 100",
             "recall_at_1_100": "recall@1 of 100"}  # fmt: skip
    plain = dict.fromkeys(each["row"] for each in lines if ":" not in each["row"])
    plain = [row for row in plain if row not in {f"GIN, {loss}" for loss in LOSSES}]
    plain.sort(key=lambda row: of_row(lines, row).mean())

    def cell(row, name="mrr_at_10", where=slice(None)):
        means = of_row(lines, row, name)[:, where].mean(1)
        spread = f" ± {means.std():.1f}" * (len(means) > 1)
        return f"{means.mean():.1f}{spread}" + f" ({len(means)})" * (len(means) != 3 and not row.startswith(WITHOUT))

    reference, gin = ENCODERS["bag"], ENCODERS["gin"]
    rows = [[row, *(cell(row, name) for name in names), difference(lines, row, reference)] for row in plain]
    tested = data.projects[data.parts["test"]]
    shown = [row for row in ("bag of instructions", "WL-OA", *ENCODERS.values()) if row in plain]
    by_project = [[project, (tested == project).sum(), *(cell(row, where=tested == project) for row in shown)]
                  for project in PROJECTS["test"]]  # fmt: skip
    by_loss = [[f"`{loss}`", cell(row), difference(lines, row, gin)] for loss in LOSSES
               if len(of_row(lines, row := gin if loss == "infonce" else f"GIN, {loss}"))]  # fmt: skip
    most = len(data.parts["train"])
    curve = {pairs: [name if pairs == most else f"{name}: {pairs}" for name in ENCODERS.values()]
             for pairs in (*CURVE, most)}  # fmt: skip
    curve = {pairs: row for pairs, row in curve.items() if all(len(of_row(lines, each)) for each in row)}
    by_pairs = [[pairs, *map(cell, row), difference(lines, row[1], row[0]), difference(lines, row[2], row[0])]
                for pairs, row in curve.items()]  # fmt: skip
    write_tables(
        docs / "binary_functions.md",
        rows=markdown(["row", *names.values(), "MRR@10 - bag on pairs"], rows),
        projects=markdown(["project", "queries", *shown], by_project),
        curve=markdown(["pairs", *ENCODERS.values(), "GIN - bag", "both - bag"], by_pairs),
        losses=markdown(["loss", "MRR@10", "difference to `infonce`"], by_loss),
    )
    drawing, ((axis,),) = figure(1, width=4.2)
    for colour, name, at in zip(COLOURS, ENCODERS.values(), range(3), strict=False):
        plot(axis, [*curve], [of_row(lines, row[at]).mean(1) for row in curve.values()], colour, name)
    axis.set(xscale="log", xlabel="training pairs", ylabel="MRR@10 on the test projects")
    axis.legend()
    write_svg(drawing, docs / "binary_functions.svg")


def main():
    """Fetch, build, train and score what is missing, and write the page's tables and figure."""
    parser = options("binary_functions")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache/graphcl/binary_functions")
    parser.add_argument("--out", type=Path, default=Path("sweeps/binary_functions"))
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    torch.set_num_threads(1)
    data, file = Functions(given.cache), given.out / "results.jsonl"
    print({part: len(ids) for part, ids in data.parts.items()}, flush=True)
    if not given.finished:
        measure(data, file, given.seeds)
    write(finished_lines(file), data, given.docs)


if __name__ == "__main__":
    main()
