"""`python -m graphcl.run`: train, embed, evaluate, report."""

from __future__ import annotations

import inspect
import signal
import statistics
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Batch

from graphcl.augment import two_views
from graphcl.command_line import parse, wants
from graphcl.config import Config, build_augmentation
from graphcl.datasets import load_dataset
from graphcl.datasets.dataset import GraphDataset
from graphcl.datasets.resident import make_loader
from graphcl.errors import InputError
from graphcl.evaluate import EVALUATORS, FoldScores, paired_gain, summarise, usable_folds
from graphcl.losses import Loss
from graphcl.losses.checks import NonFiniteInputError
from graphcl.memory import keep_freed_memory
from graphcl.methods import Method
from graphcl.model import ContrastiveModel
from graphcl.registry import encoders, methods
from graphcl.report import RunFolder, check_folder, environment, score_lines
from graphcl.train import Epoch, embed, train

Scores = dict[str, list[FoldScores]]  # by evaluator, a seed each


def main(words: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code: 0 done, 2 for a mistake of the user's, said in one line each."""
    words = sys.argv[1:] if words is None else words
    try:
        if text := wants(words):
            print(text, end="")
            return 0
        config = parse(words)
        if config is not None:
            keep_freed_memory()
            run(config)
    except InputError as error:
        print(f"graphcl: {error}".replace("\n", "\ngraphcl: "), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\ngraphcl: stopped; the run folder, if one was made, keeps what had finished.", file=sys.stderr)
        return 128 + signal.SIGINT
    except BrokenPipeError:  # the reader of our output went away, as `| head` does
        return 0
    return 0


def run(config: Config) -> dict[str, Any]:
    """Everything a configuration asks for; returns what `result.json` holds."""
    seconds: dict[str, float] = {}
    check_folder(config)
    device = pick_device(config.device)
    # Two threads gain a fifth on small graphs, but wait for each other many times a step: beside another busy program
    # they lose a hundredfold. One also gives the same figures whatever the number of cores. (The SVM uses all cores.)
    torch.set_num_threads(config.threads)
    with _timed(seconds, "load"):
        dataset = load_dataset(config.dataset, config.data_root, config.mirror, config.features, config.max_degree)
    config = config.model_copy(update={"features": dataset.features})
    # What does not fit together is refused before anything is written.
    _rehearse(config, dataset)
    if dataset.labelled:
        config = _with_usable_folds(config, dataset)
    folder = RunFolder(config)
    told = f"method: {config.method['name']}; loss: {Loss(**config.loss)}; device: {device}"
    print(f"{dataset}, features: {dataset.features}; {told}; {folder.path}/")

    history: list[Epoch] = []
    untrained: Scores = {name: [] for name in config.eval}
    trained: Scores = {name: [] for name in config.eval}
    for seed in config.seeds:
        model = make_model(config, dataset, seed).to(device)
        whole = make_loader(dataset, 1024, device=device)
        with _timed(seconds, "embed"):
            h_before, y = embed(model, whole)
        with _timed(seconds, "train"):
            history += _train(config, dataset, model, seed, folder)
        with _timed(seconds, "embed"):
            h, y = embed(model, whole)
        folder.add_seed(seed, model.encoder, h, y)
        if dataset.labelled and y is not None:
            for name in config.eval:
                with _timed(seconds, "evaluate"):
                    untrained[name].append(_score(config, name, h_before, y, seed))
                    trained[name].append(_score(config, name, h, y, seed))
                before, after = untrained[name][-1].mean, trained[name][-1].mean
                print(f"seed {seed}: untrained {before:.2f}, trained {after:.2f} % ({name})")
        # After each seed, so that no score is lost with a later one.
        result = _result(config, untrained, trained, history, seconds, device)
        folder.add_result(result)

    if dataset.labelled:
        print("\n".join(score_lines(result)))
    else:
        print("These graphs have no class labels, so the embedding is kept but not scored.")
    spent = ", ".join(f"{stage} {value:.1f} s" for stage, value in seconds.items())
    print(f"kept in {folder.path}/; {spent}; median epoch {result['epoch_seconds']:.3f} s")
    return result


def pick_device(name: str) -> torch.device:
    """The device of that name; `auto` is CUDA where there is one.

    Raises:
        InputError: CUDA is asked for and there is none of that number.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        seen = torch.cuda.device_count()
        raise InputError(f"`device` is {name}, but torch sees {seen} CUDA devices; pass --device cpu.")
    return device


def make_model(config: Config, dataset: GraphDataset, seed: int = 0) -> ContrastiveModel:
    """The untrained model of a seed, on the CPU; torch's global generator is left as it was.

    Raises:
        InputError: the encoder needs edge attributes and the graphs have none.
    """
    arguments = {key: value for key, value in config.encoder.items() if key != "name"}
    graph = dataset[0]
    if "edge_dim" in encoders.arguments(config.encoder["name"]).required:
        if graph.get("edge_attr") is None:
            raise InputError(f"encoder `{config.encoder['name']}` needs `edge_attr`, {dataset.name} has none; use gin.")
        arguments["edge_dim"] = 1 if graph.edge_attr.dim() == 1 else graph.edge_attr.size(1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        encoder = encoders[config.encoder["name"]](graph.x.size(1), **arguments)
        return ContrastiveModel(encoder, config.projection, config.head)


def make_method(config: Config, dataset: GraphDataset, model: ContrastiveModel, seed: int = 0) -> Method:
    """The method of a seed around its model; torch's global generator is left as it was.

    Raises:
        InputError: a loss that does not fit the method.
    """
    arguments = {key: value for key, value in config.method.items() if key != "name"}
    wanted = methods.arguments(config.method["name"]).required
    known = {"num_graphs": len(dataset), "first": config.views.first, "second": config.views.second}
    for name, value in known.items():
        if name in wanted:
            arguments[name] = build_augmentation(value) if isinstance(value, dict) else value
    device = next(model.parameters()).device
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        method: Method = methods[config.method["name"]](model, Loss(**config.loss), **arguments)
    return method.to(device)


def _rehearse(config: Config, dataset: GraphDataset) -> None:
    """One step on two graphs, without consequences: what it refuses is refused before anything is written."""
    batch = Batch.from_data_list([dataset[0], dataset[1]])
    generator = torch.Generator().manual_seed(0)
    method = make_method(config, dataset, make_model(config, dataset))
    first, second = build_augmentation(config.views.first), build_augmentation(config.views.second)
    views = two_views(batch, *method.augmentations(first, second), generator)
    with torch.no_grad():
        try:
            method(*views, ids=torch.arange(2), generator=generator)
        except NonFiniteInputError:
            raise InputError(
                f"the untrained encoder already gives NaN or infinity; look for them in the features of {dataset.name}."
            ) from None


def _train(config: Config, dataset: GraphDataset, model: ContrastiveModel, seed: int, folder: RunFolder) -> list[Epoch]:
    device = next(model.parameters()).device
    # Two streams a seed, so that the order of the graphs and their views are independent of each other.
    order = torch.Generator().manual_seed(2 * seed)
    views = torch.Generator(device).manual_seed(2 * seed + 1)
    loader = make_loader(dataset, config.batch_size, True, order, device, config.shuffle_window)
    with _progress(f"seed {seed}", config.epochs) as show:
        return train(
            make_method(config, dataset, model, seed),
            loader,
            build_augmentation(config.views.first),
            build_augmentation(config.views.second),
            epochs=config.epochs,
            lr=config.lr,
            weight_decay=config.weight_decay,
            clip_norm=config.clip_norm,
            amp=config.amp,
            diagnostics=config.diagnostics,
            generator=views,
            callbacks=[lambda epoch: folder.add_epoch(seed, epoch), show],
        )


def _score(config: Config, name: str, h: Tensor, y: Tensor, seed: int) -> FoldScores:
    taken = inspect.signature(EVALUATORS[name]).parameters  # `scale` is for the SVM only
    settings = {key: value for key, value in config.evaluation.model_dump().items() if key in taken}
    return EVALUATORS[name](h, y, seed=seed, **settings)


def _result(
    config: Config,
    untrained: Scores,
    trained: Scores,
    history: list[Epoch],
    seconds: dict[str, float],
    device: torch.device,
) -> dict[str, Any]:
    scores = {
        name: {
            "untrained": vars(summarise(untrained[name])),
            "trained": vars(summarise(trained[name])),
            "gain": vars(paired_gain(trained[name], untrained[name])),
            "per_seed": [
                {"untrained": vars(before), "trained": vars(after)}
                for before, after in zip(untrained[name], trained[name], strict=True)
            ],
        }
        for name in config.eval
        if trained[name]
    }
    protocol = {"folds": config.evaluation.folds, "inner_folds": config.evaluation.inner_folds}
    total = sum(epoch.seconds for epoch in history)
    return {
        **({"scores": scores, **protocol} if scores else {}),
        "epochs": config.epochs,
        "seconds": dict(seconds),
        "epoch_seconds": statistics.median(epoch.seconds for epoch in history) if history else 0.0,
        "data_share": sum(epoch.data_seconds for epoch in history) / total if history else 0.0,
        **environment(device),
        "config": config.model_dump(),
    }


def _with_usable_folds(config: Config, dataset: GraphDataset) -> Config:
    """The settings with as many folds as the smallest class allows; a note says so where those are fewer."""
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always")
        folds, inner = usable_folds(dataset.y, config.evaluation.folds, config.evaluation.inner_folds)
    for note in notes:
        print(f"graphcl: {note.message}", file=sys.stderr)
    evaluation = config.evaluation.model_copy(update={"folds": folds, "inner_folds": inner})
    return config.model_copy(update={"evaluation": evaluation})


@contextmanager
def _timed(seconds: dict[str, float], stage: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    seconds[stage] = seconds.get(stage, 0.0) + time.perf_counter() - start


@contextmanager
def _progress(label: str, epochs: int) -> Iterator[Any]:
    """A progress bar on a terminal, a log line an epoch elsewhere."""
    from tqdm import tqdm

    line = "loss {0.loss:.4f}, alignment {0.alignment:.3f}, uniformity {0.uniformity:.3f}, {0.seconds:.2f} s"
    if not sys.stderr.isatty():
        yield lambda epoch: print(f"{label}, epoch {epoch.epoch}: {line.format(epoch)}")
        return
    with tqdm(total=epochs, desc=label, leave=False) as bar:

        def show(epoch: Epoch) -> None:
            bar.set_postfix_str(line.format(epoch))
            bar.update()

        yield show


if __name__ == "__main__":
    sys.exit(main())
