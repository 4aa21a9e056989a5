"""The commands: `NAME.py` holds the settings, the help text and `main` of `graphcl NAME`.

What needs PyTorch is imported in the functions that use it, so that help texts are fast.
"""

COMMANDS = {
    "run": "train an encoder by contrastive learning, embed the data set, score the embedding",
    "sweep": "run settings x data sets x seeds in parallel and make tables",
    "diagnose": "answer what carries a score: edges, features, sizes, copies or training",
    "embed": "embed graphs with a trained encoder",
    "predict": "predict the targets of new graphs by a finished run",
    "transfer": "probe or fine-tune a trained encoder on another data set",
    "show": "redraw the report of a run",
    "export": "write a trained encoder as ONNX or pt2, to run without this library",
    "pack": "write a data set to disk, for memory-mapping",
}
"""Command -> summary, in the order of `graphcl --help`."""
