"""Test FlatNCE's claim for low precision in training: python benchmarks/studies/precision.py

InfoNCE and FlatNCE at tau 0.05, the model in bfloat16 and in float32 (the loss is in float32 in both cases). Page:
docs/studies/precision.md; docs/figures/precision.py shows the gradient alone.
"""

from kept import STUDIES, Kept
from study import Study, markdown, means, plus_minus, protocol

from graphcl.evaluate import holm, paired_test
from graphcl.sweep.write import gain_text

SETS = ("MUTAG", "PROTEINS", "NCI1", "IMDB-BINARY")
ROWS = {
    f"{loss}, {dtype}": (loss, amp)
    for loss in ("infonce", "flatnce")
    for dtype, amp in (("float32", False), ("bfloat16", True))
}
"""Row -> loss, and whether the model is in bfloat16."""
COMPARED = (
    ("infonce, bfloat16", "infonce, float32"),
    ("flatnce, bfloat16", "flatnce, float32"),
    ("flatnce, float32", "infonce, float32"),
    ("flatnce, bfloat16", "infonce, bfloat16"),
)


def tables(kept):
    """Return the tables of the page: accuracies, and differences with tests."""
    sets = [each for each in SETS if each in kept.lines["precision"]]
    scores = {(row, each): kept.scores("precision", each, row) for row in ("untrained", *ROWS) for each in sets}
    lines = [[row, *(plus_minus(means(scores[row, each])) for each in sets)] for row in ("untrained", *ROWS)]
    tests = {(*pair, each): paired_test(*(scores[row, each] for row in pair)) for pair in COMPARED for each in sets}
    adjusted = dict(zip(tests, holm([test.p for test in tests.values()]), strict=True))
    gains = [
        [f"{one} over {two}", *(gain_text(tests[one, two, each].mean, adjusted[one, two, each]) for each in sets)]
        for one, two in COMPARED
    ]
    return {"accuracy": markdown(["", *sets], lines), "tests": markdown(["", *sets], gains)}


def main():
    study, kept = Study("precision", seeds=10), Kept(STUDIES)
    for dataset in () if study.given.finished else study.sets(*SETS):
        losses = [{"name": loss, "negatives": "all", "temperature": 0.05} for loss in ("infonce", "flatnce")]
        axes = {"recipe": ["graphcl"], "dataset": [dataset], "loss": losses, "amp": [False, True]}
        seeds = study.seeds(dataset)
        cells = study.run(dataset, axes, seeds=seeds, **protocol(dataset))
        rows = {
            row: cells.scored(loss=f"{loss}(negatives=all, temperature=0.05)", amp=str(amp).lower())
            for row, (loss, amp) in ROWS.items()
        }
        kept.add("precision", dataset, rows | {"untrained": cells.scored_untrained()})
    study.keep(**tables(kept))


if __name__ == "__main__":
    main()
