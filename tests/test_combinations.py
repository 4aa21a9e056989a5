"""Every command with every evaluator, kind of data and kind of encoder: each works, or is refused in a line."""

import functools
import random
import shutil

import pytest
import torch
from matplotlib.figure import Figure

from graphcl.commands.run import main
from graphcl.commands.show import main as show
from graphcl.evaluate.needs import takes
from graphcl.experiment import transfer
from graphcl.extensions.molecules import encoder as fingerprints
from graphcl.models.saved import load_encoder
from graphcl.registry import evaluators
from tests.combinations import FOLDS, SMALL, draw, outcome, without_refused, write_data

KINDS = (
    "classes", "bare", "edges", "groups", "groups and classes", "groups unused", "pairs", "two towers", "nodes",
    "molecules", "molecules, classes", "molecules, split", "molecules, numbers", "molecules, groups",
)  # fmt: skip

FOLDED = ("classes", "edges", "groups and classes", "molecules, classes")
"""Kinds that a run scores on folds."""
SLOW = {("nodes", "logreg"), ("molecules, split", "ogb_forest"), ("molecules, numbers", "ogb_forest")}
"""Pairs of a kind and an evaluator that take seconds; another kind tries the evaluator."""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    pytest.importorskip("rdkit", reason="rdkit is not installed")
    found = write_data(tmp_path_factory.mktemp("kinds"))
    assert tuple(found) == KINDS
    return found


def draw_nothing(monkeypatch):
    """Let figures be made but not be drawn, which takes longer than all the rest."""
    empty = '<svg viewBox="0 0 1 1"></svg>'
    monkeypatch.setattr(Figure, "savefig", lambda figure, file, **options: file.write(empty))


@pytest.mark.parametrize("command", ["run", "diagnose"])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "edges"])
def test_every_evaluator_works_or_is_refused_in_a_line(command, kind, data, tmp_path, capsys, monkeypatch):
    whole = fingerprints._morgan  # all 2,048 columns take minutes
    monkeypatch.setattr(fingerprints, "_morgan", lambda smiles, kind: whole(smiles, kind)[:, :32])
    works, options, out = [], ["--epochs", 0, *SMALL], tmp_path / "out"
    if command == "diagnose":
        options = ["--epochs", 0, "--quick", "--rows", "majority,wl_oa,untrained"]
    names = [name for name in evaluators if (kind, name) not in SLOW]
    for name in (*names, "none"):
        folds = FOLDS if name != "none" and takes(name, "folds") else []
        assert not outcome(command, [*data[kind], "--eval", name, *options, *folds], out, capsys)[0], name
        if out.exists():
            works.append(name)
            draw_nothing(monkeypatch)  # the first one was drawn
    assert works or (command, kind) == ("diagnose", "nodes")


MEETINGS = [
    ("groups", "--eval instance --hard-negatives 2 --epochs 2", ""),
    ("classes", "--micro-batch 4 --sync-batchnorm", "leave out `sync_batchnorm`"),
    ("classes", "--micro-batch 4 --method simgrace", "`micro_batch` does not fit SimGRACE"),
    ("nodes", "--micro-batch 4", "`micro_batch` does not fit GRACE"),
    ("classes", "--capture", "`capture` needs a CUDA device"),
    ("molecules, groups", "--eval retrieval --epochs 1", ""),
    ("molecules, groups", "--eval retrieval --epochs 1 --encoder wl_sparse --projector none", ""),
    ("groups and classes", "--eval logreg --encoder wl_sparse --projector none", "`eval` logreg needs dense rows"),
    (
        "groups and classes",
        "--evaluation.scale true --encoder wl_sparse --projector none",
        "`evaluation.scale` centres",
    ),
    ("molecules, groups", "--eval retrieval --evaluation.within project", "`evaluation.within` project: the graphs"),
    ("groups", "--eval svm", "`eval` svm does not fit groups, which has groups but no classes; pass --eval retrieval."),
]
"""Kind of data, further arguments, and the message; "" if the run works."""


@pytest.mark.parametrize(("kind", "arguments", "line"), MEETINGS)
def test_two_features_meet(kind, arguments, line, data, tmp_path, capsys):
    out = tmp_path / "out"
    shutil.rmtree(out, ignore_errors=True)
    assert main([*data[kind], *SMALL, *arguments.split(), "--out", str(out)]) == (2 if line else 0)
    assert line in capsys.readouterr().err
    assert out.exists() != bool(line)
    if not line:
        load_encoder(out)


@pytest.mark.parametrize(
    "seed", [*range(12), *(pytest.param(seed, marks=pytest.mark.several) for seed in range(12, 100))]
)
def test_drawn_options_work_or_are_refused_in_a_line(seed, data, tmp_path, capsys):
    rng, out = random.Random(seed), tmp_path / "out"
    kind, options = draw(rng, data)
    while True:  # until all that is refused is left out
        arguments = [word for option, value in options.items() for word in (f"--{option}", value)]
        length = [] if "steps" in options else ["--epochs", 2]
        wrong, lines = outcome("run", [*data[kind], *arguments, *length, *SMALL], out, capsys)
        assert not wrong, (kind, options)
        if out.exists():
            break
        assert options, (kind, lines)
        options = without_refused(options, lines, rng)
    load_encoder(out)


OF_RUNS = ("--positives", "--targets", "--towers", "--method", "--split", "--target")
"""Options of a run that a command on its encoder has not."""
AFTER = {
    "embed": ["{run}", "{dataset}", "h.npz"],
    "embed, table": ["{run}", "{dataset}", "h.csv"],
    "embed, targets": ["{run}", "{dataset}", "--role target", "t.npz"],
    "transfer, probe": ["{run}", "{data}", "--mode probe --seeds 0", "probed"],
    "transfer, finetune": ["{run}", "{data}", "--mode finetune --seeds 0 --epochs 1", "tuned"],
    "predict": ["{run}", "{dataset}", "p.csv"],
    "predict, probe": ["probed", "{dataset}", "q.csv"],
    "predict, finetune": ["tuned", "{dataset}", "r.csv"],
    "export": ["{run}", "--format pt2", "e.pt2"],
}
"""Command on the encoder of a run -> its arguments, the last of which is the output."""


LIKE_AUTO = {(kind, "gat") for kind in ("bare", "groups", "groups and classes", "groups unused", "pairs", "nodes")}
"""Kinds for which `gat` takes the same path as the usual encoder; other kinds try it with and without edge columns."""
PROGRAMS = {}
"""Encoder and columns of its inputs -> program of `torch.export`."""


@pytest.fixture
def fast(monkeypatch):
    """Trace encoders that differ in their weights only once, which takes a second, and fine-tune on three folds."""
    trace = torch.export.export

    def export(module, args, inputs, **options):
        key = repr(module), *((name, value.shape[1:], value.dtype) for name, value in inputs.items())
        if key not in PROGRAMS:
            PROGRAMS[key] = trace(module, args, inputs, **options)
        return PROGRAMS[key]

    monkeypatch.setattr(torch.export, "export", export)
    monkeypatch.setattr(transfer, "fold_splits", functools.partial(transfer.fold_splits, folds=3))


@pytest.mark.usefixtures("fast")
@pytest.mark.parametrize(
    ("kind", "encoder"),
    [(kind, encoder) for kind in KINDS for encoder in ("auto", "gat", "wl_sparse") if (kind, encoder) not in LIKE_AUTO],
)
def test_every_command_takes_the_encoder_of_every_run_or_refuses_it_in_a_line(
    kind, encoder, data, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    words, run = data[kind], tmp_path / "run"
    more = [*SMALL, *(FOLDS if kind in FOLDED else []), *(["--projector", "none"] if encoder == "wl_sparse" else [])]
    assert not outcome("run", [*words, "--encoder", encoder, "--epochs", 0, *more], run, capsys)[0]
    if not run.exists():
        return
    places = [k for k, word in enumerate(words) if word in OF_RUNS]
    dataset = [word for k, word in enumerate(words) if not {k, k - 1}.intersection(places)]
    with_targets = dataset + [word for k in places if words[k] in ("--target", "--split") for word in words[k : k + 2]]
    filled = {"{run}": [str(run)], "{dataset}": dataset, "{data}": with_targets}
    works = []
    if encoder != "auto":  # whose reports are drawn
        draw_nothing(monkeypatch)
    for name, parts in AFTER.items():
        if name == "export" and kind not in ("classes", "edges", "nodes", "molecules", "pairs"):
            continue  # each takes a second
        out = tmp_path / parts[-1]
        arguments = [word for part in parts[:-1] for word in filled.get(part, part.split())]
        assert not outcome(name.partition(",")[0], arguments, out, capsys)[0], name
        works += [name] * out.exists()
        out.unlink() if out.is_file() else None
    assert "embed" in works
    assert show([str(run)]) == 0
