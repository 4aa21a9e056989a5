"""Import every benchmark and study, plan the studies' sweeps, and run the suite on tiny sets."""

import gzip
import importlib
import json
import runpy
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Batch

from graphcl import load_dataset
from graphcl.losses import infonce
from graphcl.registry import losses, methods
from graphcl.sweep import make_plan
from tests.conftest import restored

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SCRIPTS = sorted(path for path in BENCHMARKS.rglob("*.py") if "results" not in path.parts)
SWEEPS = {
    "adnce_weights",
    "batch_size",
    "founding",
    "leaderboard",
    "precision",
    "published",
    "sensitivity",
    "temperature",
}
EXTRA = {"binary_graphs": "capstone"}
"""Script -> package that only it needs."""


@pytest.fixture(autouse=True)
def scripts(monkeypatch):
    """Find imports as a script does; restore the registry, threads and modules afterwards."""
    for folder in ("studies", "."):
        monkeypatch.syspath_prepend(str(BENCHMARKS / folder))
    assert {*methods, *losses}  # found before the block
    loaded, threads = set(sys.modules), torch.get_num_threads()
    with restored(methods, losses):
        yield
    torch.set_num_threads(threads)
    for name in set(sys.modules) - loaded:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(BENCHMARKS)):
            del sys.modules[name]


class PlannedError(Exception):
    """Raised in place of running."""


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_is_imported_and_its_sweep_is_planned(path, monkeypatch, tmp_path):
    if path.stem in EXTRA:
        pytest.importorskip(EXTRA[path.stem])
    content = runpy.run_path(str(path))
    if path.parent.name != "studies" or path.stem not in SWEEPS:
        return
    import study

    def plan(self, folder, spec):
        assert make_plan(spec).cells
        raise PlannedError

    monkeypatch.setattr(study.Study, "_run", plan)
    monkeypatch.setattr(sys, "argv", [path.stem, "--docs", str(tmp_path)])
    with pytest.raises(PlannedError):
        content["main"]()


def test_the_study_of_mutual_information_draws_gaussians_of_that_information(monkeypatch, tmp_path):
    """Means and deviations over batches are those of theory, which the page shows beside them."""
    import mutual_information as page

    values = page.estimated(1, 64, 400, page.ESTIMATES)
    error = {name: of_batches.std(ddof=1) / 20 for name, of_batches in values.items()}
    assert values["NWJ"].mean() == pytest.approx(1, abs=4 * error["NWJ"])
    assert values["NWJ"].std(ddof=1) == pytest.approx(page.nwj_deviation(1, 64), rel=0.2)
    expected = page.true_jensen_shannon(1)
    assert values["Jensen-Shannon"].mean() == pytest.approx(expected, abs=4 * error["Jensen-Shannon"])
    assert values["chi-square"].mean() == pytest.approx(page.true_chi_square(1), rel=0.1)

    monkeypatch.setattr(page, "ROWS", (8,))
    monkeypatch.setattr(sys, "argv", ["mutual_information", "--docs", str(tmp_path), "--batches", "2"])
    page.main()
    text = (tmp_path / "mutual_information.md").read_text()
    assert [text.count(f"| 8 | {nats} | ") for nats in page.NATS] == [2] * 5
    assert "| +5 | " in text


def test_a_study_runs_its_sweep_and_takes_finished_cells(inline, monkeypatch, tmp_path):
    from study import Study

    words = ["--out", str(tmp_path), "--seeds", "1", "--epochs", "1", "--workers", "1"]
    found = []
    for finished in ([], ["--finished"]):
        monkeypatch.setattr(sys, "argv", ["study", *words, *finished])
        cells = Study("small").run("part", {"dataset": ["synthetic"]}, eval=["knn"])
        found.append((*cells.accuracy(dataset="synthetic"), cells.untrained(dataset="synthetic")[0].accuracy))
    assert found[0] == found[1]
    assert 50 < found[0][0] <= 100


def test_the_pages_show_the_kept_scores():
    import pairs
    import published
    import semi_supervised
    import wl
    from kept import STUDIES, Kept

    kept, studies = Kept(), Kept(STUDIES)
    pages = published.tables(kept) | {published.DOCS / "wl.md": {"wl": wl.table(kept)}}
    for name in ("adnce_weights", "batch_size", "founding", "leaderboard", "precision", "sensitivity", "temperature"):
        page = published.DOCS / f"{name}.md"
        pages[page] = pages.get(page, {}) | importlib.import_module(name).tables(studies)
    pages[published.DOCS / "founding.md"] |= semi_supervised.tables(studies)
    pages |= {published.DOCS / f"{name}.md": pairs.tables(studies, name) for name in pairs.TABLES}
    assert len(kept.lines) == len(published.SETS)
    for page, tables in pages.items():
        for name, table in tables.items():
            assert f"<!-- {name} -->\n\n{table}\n\n<!-- end -->" in page.read_text(), f"{page.name}: {name}"


def test_kept_scores_are_those_of_the_sweep(tmp_path):
    from kept import Kept

    from graphcl.evaluate import FoldScores

    scores = [FoldScores(seed, (70.0 + seed, 80.0), (1.0, 1.0), (), 2, 3) for seed in (0, 1)]
    records = [{"commit": commit, "versions": {"torch": "2.13.0"}} for commit in ("abc", "def")]
    trained = list(zip(scores, records, strict=True))
    Kept(tmp_path).add("MUTAG", "graphcl", {"trained": trained, "untrained": trained[:1]})
    kept = Kept(tmp_path)
    assert [each["commit"] for each in kept.lines["MUTAG"]["graphcl"]] == ["abc", "def", "abc"]
    assert [each.accuracy for each in kept.scores("MUTAG", "graphcl")] == [(70.0, 80.0), (71.0, 80.0)]
    assert [*kept.references("MUTAG", "graphcl")] == ["untrained"]
    assert kept.text("MUTAG", "graphcl") == "75.25 ± 0.35 (2)"
    assert kept.text("MUTAG", "graphcl", "calibrated") == "-"


def test_the_suite_runs_on_tiny_sets(tmp_path):
    import gpu
    import pipelines
    import suite
    import timing

    clock = timing.clock
    words = ["--quick", "--sets", "molpcba", "--threads", "1", "--cpu-time", "--linear", "--no-memory"]
    suite.main([*words, "--out", str(tmp_path / "tiny")])
    timing.clock = clock
    for row in json.loads((tmp_path / "tiny.json").read_text())["sets"]:
        assert all(0 < row[f"{name}_data"] < row[name] for name in pipelines.PIPELINES)
    assert "| molpcba (generated) | 400 |" in (tmp_path / "tiny.md").read_text()
    found = gpu.main(["--dry-run", "--sets", "proteins", "--batch-sizes", "32", "--out", str(tmp_path)])
    (row,) = found["rows"]
    assert all(row[each] > 0 for each in ("graphs_per_s", *gpu.MODES, "pyg", "views_ms"))
    assert [(row["recipe"], row["step_ms"] > 0) for row in found["recipes"]] == [("graphcl", True)]


def test_the_model_of_a_step_on_a_gpu():
    """The first bound is the largest of traffic, arithmetic and launches; docs/gpu.md holds the table of the counts."""
    import floor
    import gpu

    row = {"operations": 100, "launches": 50, "bytes": 3.35e9, "flops": 67e6, "least_bytes": 3.35e6}
    for changed, least in (({}, 0.1), ({"least_bytes": 3.35e9}, 1.0), ({"flops": 134e9}, 2.0)):
        assert floor.step_bounds(row | changed, "H100") == pytest.approx((least, 4.0 + 2.0))
    assert gpu.predicted() in (BENCHMARKS.parent / "docs" / "gpu.md").read_text()


def test_the_page_has_the_figures_of_the_h200():
    page = (BENCHMARKS.parent / "docs" / "gpu.md").read_text()
    for row in json.loads((BENCHMARKS / "results" / "nvidia-h200.json").read_text())["rows"]:
        figures = [round(row[each], -2) for each in ("pyg", "graphs_per_s", "captured", "captured, bfloat16")]
        cells = [row["set"].upper(), *(f"{each:,}" for each in (row["batch"], *figures))]
        assert f"| {' | '.join(cells)} |" in page


def test_the_page_has_the_figures_beside_pygcl():
    import pygcl

    rows = json.loads((BENCHMARKS / "results" / "pygcl.json").read_text())["rows"]
    assert pygcl.page(rows) in (BENCHMARKS.parent / "docs" / "speed.md").read_text()
    ratios = [ratio for row in rows for ratio in pygcl.ratios(row)]
    readme = (BENCHMARKS.parent / "README.md").read_text()
    assert f"take {min(ratios):.1f} to {max(ratios):.1f} times as long" in readme


def test_the_page_has_the_figures_of_growth():
    import growth

    rows = json.loads(growth.RESULT.read_text())["rows"]
    assert growth.page(rows) in (BENCHMARKS.parent / "docs" / "speed.md").read_text()


def test_the_losses_on_a_gpu_in_a_dry_run(capsys):
    import losses_gpu

    losses_gpu.main(["--dry-run", "--repeats", "1", "--width", "16"])
    assert capsys.readouterr().out.splitlines()[-1].count(" ms") == 7


def test_the_compared_pipelines_have_the_same_encoder_and_loss():
    import pyg_pipeline
    import shapes
    from ours import Ours

    dataset = shapes.generate("proteins", 40)
    ours, theirs = Ours(dataset), pyg_pipeline.PyGModel(dataset.num_features)
    theirs.load_state_dict(ours.model.state_dict(), strict=False)
    batch = Batch.from_data_list(list(dataset))
    z1, z2 = ours.model(batch), theirs(batch)
    torch.testing.assert_close(z1, z2, rtol=0, atol=1e-4 * float(z2.detach().abs().max()))  # sums over whole graphs
    torch.testing.assert_close(infonce(z1, z2.flip(0)), pyg_pipeline.info_nce(z1, z2.flip(0)))


def test_molecules_get_their_measured_properties(tmp_path):
    """A property is the median over the tables; held-out molecules and those without any vector are left out."""
    pytest.importorskip("rdkit", reason="the extra `molecules` is not installed")
    import pretrain_molecules as script

    names = {"64-17-5": "CCO", "71-43-2": "c1ccccc1", "50-00-0": "C=O", "7440-44-0": "C", "57-13-6": "NC(N)=O"}
    identifiers = "\n".join(f"0\t{number}\t\t\t{smiles}" for number, smiles in names.items()) + "\n"
    with zipfile.ZipFile(tmp_path / "wheel", "w") as wheel:
        for name, content in zip(script.TABLES, (identifiers, ""), strict=True):
            wheel.writestr(name, content)
        rows = {"Misc/webbook_constants.tsv": "64175\t160\t351\n71432\t\t353\n"}
        rows["Misc/wikidata_properties.tsv"] = "64-17-5\t158\t\n57-13-6\t406\t\n"
        for name in script.MEASURED:
            content = f"CAS\tTm\tTb\n{rows.get(name, '')}".encode()
            wheel.writestr(f"chemicals/{name}", gzip.compress(content) if name.endswith(".gz") else content)
    (tmp_path / "tasks.csv").write_text("smiles\nNC(N)=O\n")
    found = script.compounds(tmp_path / "wheel", [tmp_path / "tasks.csv"])
    assert sorted(found) == ["50-00-0", "64-17-5", "71-43-2"]
    rows = script.vectors(["descriptors", "properties", "conformers"], found, tmp_path / "wheel")
    ethanol, benzene, formaldehyde = (rows[[*found].index(key)] for key in ("64-17-5", "71-43-2", "50-00-0"))
    assert rows.shape == (3, 321 + 25 + 11)
    assert ethanol[321] == 159
    assert np.isnan([benzene[321], *formaldehyde[321:346]]).all()
    assert benzene[322] > ethanol[322] > 350
    assert benzene[-1] < 0.01 < ethanol[-1]  # only benzene is flat: the distance from the best plane
    script.write([*found.values()], rows[:, 321:346], tmp_path / "out", "small")
    assert len(np.load(tmp_path / "out" / "vectors.npy")) == len(load_dataset(str(tmp_path / "out" / "graphs"))) == 2


def test_a_table_of_pairs_has_the_rows_of_its_runs(tmp_path):
    """Options of a row replace those of the page's command; a bag is that of its run, the other rows of the first."""
    import pairs
    from kept import Kept

    words = pairs.words_of("--dataset old.pt --seeds 0 1 --epochs 30", "--epochs 2 --batch-by project", tmp_path)
    expected = f"--dataset {tmp_path}/old.pt --seeds 0 1 --epochs 2 --batch-by project"
    assert words == expected.split()

    def result(**rows):
        score = {"chosen": (1.0,), "inner": (), "folds": 1, "inner_folds": 1, "metric": "mrr"}
        figures = {"mrr_low": 40.0, "mrr_high": 60.0, "recall_at_1": 30.0, "unknown": 1.0}
        seeds = [
            {row: {"seed": seed, "accuracy": [mrr + seed], **score, "figures": figures} for row, mrr in rows.items()}
            for seed in range(3)
        ]
        return {"scores": {"retrieval": {"per_seed": seeds}}, "commit": "abc", "versions": {"torch": "2.13.0"}}

    results = {
        "GIN, plain batches": result(trained=50, bag_trained=45, wl=40),
        "GIN, batches of one package": result(trained=60, bag_trained=46, wl=99),
    }
    pairs.keep(Kept(tmp_path), "python_functions", "releases", results)
    kept = Kept(tmp_path)
    lines = pairs.table(kept, "python_functions", "releases", [*results]).splitlines()
    assert lines[0].startswith("| row | MRR | 95 % over queries | recall@1 | MRR - GIN, plain batches (p) |")
    assert [line.split(" | ")[0] for line in lines[2:]] == [
        "| WL kernel",
        "| bag, plain batches",
        "| bag, batches of one package",
        "| GIN, plain batches",
        "| GIN, batches of one package",
    ]
    assert lines[-1] == "| GIN, batches of one package | 61.0 ± 1.0 | 40.0 to 60.0 | 30.0 | +10.00 (< 0.001) |"
