"""`graphcl embed`: embed graphs with a trained encoder and write the embeddings to a file."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import Batch

from graphcl.cli.commands import EMBED, Embed
from graphcl.cli.entry_point import program
from graphcl.commands.embedding_files import WRITERS, Block, write_parquet
from graphcl.config.settings import TABLE
from graphcl.errors import InputError
from graphcl.experiment.build import pick_device
from graphcl.experiment.encoder_input import load_for
from graphcl.loaders.loader import make_loader
from graphcl.models.nodes import MODELS
from graphcl.models.saved import load_encoder
from graphcl.system.files import new_file, write_whole
from graphcl.training.loop import embed_batches


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the arguments of `graphcl embed` and run the command."""
    with program("nothing was written") as this:
        settings = EMBED.parse(arguments)
        if settings is not None:
            print(embed(settings))
    return this.code


def embed(settings: Embed) -> str:
    """Write the embeddings of a data set to a new file and return a status line.

    Raises:
        InputError: the file exists or cannot be written, or the encoder or the graphs cannot be used.
    """
    suffix = Path(settings.out).suffix
    if suffix not in WRITERS:
        raise InputError(f"`out` must end in {' or '.join(WRITERS)}, got {settings.out!r}.")
    out, write = new_file(settings.out, settings.force), WRITERS[suffix]
    if write is write_parquet and importlib.util.find_spec("pyarrow") is None:
        raise InputError('.parquet files need pyarrow: pip install "graphcl[parquet]", or pass an .npz file.')
    device = pick_device(settings.device)
    torch.set_num_threads(settings.threads)
    encoder, description = load_encoder(settings.encoder, settings.seed)
    molecules = settings.model_dump(include=TABLE)
    dataset = load_for(description, settings.dataset, settings.data_root, settings.mirror, **molecules)
    loader = make_loader(dataset, settings.batch_size, device=device)
    model = MODELS[dataset.rows](encoder.to(device), projector="none")
    blocks = _blocks(model, loader, dataset.classes)
    write_whole(out, lambda file: write(file, blocks, dataset.num_rows, description.out_channels))
    return (
        f"{dataset}, features: {dataset.features}; {description.out_channels} numbers per {dataset.rows[:-1]} in {out}"
    )


def _blocks(model: nn.Module, loader: Iterable[Batch], classes: Tensor | None) -> Iterator[Block]:
    """Yield a `Block` of embeddings, ids and labels for each batch.

    Args:
        model: model with the trained encoder.
        loader: batches of the graphs, in order.
        classes: original class values `[C]`, into which `y` is an index; None if `y` holds no classes.
    """
    done = 0
    for h, batch in embed_batches(model, loader):
        n = len(h)
        ids, y = batch.get("id"), batch.get("y")
        ids = ids.tolist() if isinstance(ids, Tensor) else ids
        own = isinstance(ids, list) and len(ids) == n and all(isinstance(each, int | str) for each in ids)
        if isinstance(y, Tensor) and y.dim() > 0 and y.size(0) == n:
            y = (y if classes is None else classes[y.cpu()]).cpu().numpy()
        else:
            y = None  # not one row per graph, so it cannot be written as labels
        yield Block(h.cpu().numpy(), np.asarray(ids if own else range(done, done + n)), y)
        done += n
