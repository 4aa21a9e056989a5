"""`graphcl transfer`: evaluate a trained encoder on another data set.

- Probe: the encoder is frozen, and its embeddings are scored as in a run; so are those of an untrained encoder (same
  architecture, initialised with the seed).
- Fine-tuning (`graphcl.experiment.finetune`): once from the trained and once from the untrained weights, with the same
  linear layer, order of graphs and dropout masks for a given seed. A data set without a split is fine-tuned in ten
  folds: each is the test part once, the next one is then the validation part, the others the training part.
- `--label-rate 0.01` trains on 1 % of the labels of every class, as in the semi-supervised protocol of You et al. (who
  select the epoch on the test folds).
- If the file contains encoders of several seeds, each seed uses its own encoder, and the deviation `± seeds` includes
  the variation of pretraining. If it contains one encoder, all seeds use it, and `± seeds` covers the transfer only.

Hu et al., "Strategies for Pre-training Graph Neural Networks", ICLR 2020 (arXiv 1905.12265), section 5; You et al.,
"Graph Contrastive Learning with Augmentations", NeurIPS 2020, section 5.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from graphcl.arguments import Count, NonNegative, Positive, Ratio, interval
from graphcl.cli.command_line import Command, flag
from graphcl.config import make_config
from graphcl.config.settings import TABLE, DatasetName, EncoderFile, Evaluators, Hardware, Imports, Place, Seeds
from graphcl.datasets.settings import SplitTable
from graphcl.errors import InputError
from graphcl.system.memory import keep_freed_memory


class Transfer(Hardware, Place, SplitTable, Imports):
    """Use a trained encoder on another data set: probe its frozen embeddings and those of an untrained encoder, or
    fine-tune it with labels and train the same architecture from scratch.
    """

    encoder: EncoderFile
    dataset: DatasetName
    mode: Literal["probe", "finetune"]
    """probe the frozen embeddings, or finetune the encoder with labels"""
    seeds: Annotated[Seeds | None, Field(title="N ...", description="seeds; default: the file's, or 0 1 2")] = None
    eval: Annotated[Evaluators | None, Field(title="NAME ...")] = None
    """probe: svm, logreg, knn, or ogb for a split; default: svm or ogb"""
    epochs: Count = Field(100, description="fine-tuning: passes over the training part")
    batch_size: Annotated[int, interval("[2, 1e9)", "BatchNorm needs several nodes")] = 32
    """fine-tuning: graphs in a batch"""
    lr: Positive = Field(0.001, description="fine-tuning: Adam's learning rate")
    weight_decay: NonNegative = Field(0.0, description="fine-tuning: Adam's L2 penalty")
    dropout: Ratio = Field(0.5, description="fine-tuning: dropout ratio of the embedding, in [0, 1)")
    label_rate: Annotated[float, interval("(0, 1]")] = 1.0
    """fine-tuning: fraction of the training part's labels to use"""
    out: str | None = Field(None, title="FOLDER", description="new or unfinished folder; default: runs/NAME-MODE-N")


COMMAND = Command(
    "graphcl transfer ENCODER --dataset NAME --mode probe|finetune [--KEY VALUE ...]", Transfer, positional="encoder"
)

MODE_SETTINGS = {
    "probe": ("eval",),
    "finetune": ("epochs", "batch_size", "lr", "weight_decay", "dropout", "label_rate"),
}
"""Mode -> settings that only this mode uses."""
RUN_SETTINGS = {"seeds", "eval", "dataset", "out", *Place.model_fields, *Hardware.model_fields, *TABLE}
"""Settings that mean the same in a run."""


def run(settings: Transfer) -> None:
    """Check that the settings belong to the mode, and run the transfer.

    Raises:
        InputError: see `graphcl.experiment.transfer.transfer`.
    """
    others = set[str]()
    for mode, names in MODE_SETTINGS.items():
        if mode != settings.mode:
            others.update(names)
            if idle := [flag(name) for name in names if name in settings.model_fields_set]:
                raise InputError(f"{', '.join(idle)}: for --mode {mode} only.")
    if settings.mode == "probe" and settings.eval == []:
        raise InputError("a probe scores embeddings, got `eval` none; name an evaluator, or use graphcl embed.")
    config = make_config(settings.model_dump(include=RUN_SETTINGS, exclude_none=True))
    from graphcl.experiment.transfer import transfer  # imported here, as help texts need no torch

    keep_freed_memory()
    tuning = settings.model_dump(include=set(MODE_SETTINGS["finetune"]))
    transfer(
        settings.encoder,
        config,
        tuning if settings.mode == "finetune" else None,
        settings.model_dump(exclude=others),
    )


main = COMMAND.main(run, "finished results are in the folder, if it was created")
