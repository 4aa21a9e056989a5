"""Test FlatNCE's claim for low precision in training: python benchmarks/studies/precision.py

InfoNCE and FlatNCE at tau 0.05, the model in bfloat16 and in float32 (the loss is in float32 in both cases). Page:
docs/studies/precision.md; docs/figures/precision.py shows the gradient alone.
"""

from study import Study, protocol

SETS = ("MUTAG", "PROTEINS", "NCI1", "IMDB-BINARY")


def main():
    study = Study("precision")
    tables = {}
    for dataset in study.sets(*SETS):
        axes = {
            "recipe": ["graphcl"],
            "dataset": [dataset],
            "loss": [{"name": loss, "negatives": "all", "temperature": 0.05} for loss in ("infonce", "flatnce")],
            "amp": [False, True],
        }
        table = {"rows": ["loss", "amp"], "baseline": {"amp": False}}
        cells = study.run(dataset, axes, table, diagnostics=True, **protocol(dataset))
        tables[dataset] = cells.markdown()
    study.keep(**tables)


if __name__ == "__main__":
    main()
