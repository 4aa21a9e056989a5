"""`python -m graphcl.run`: train, embed, evaluate, report."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from graphcl.config import Config
from graphcl.config.entry_point import entry_point
from graphcl.config.run_command import RUN
from graphcl.datasets import load_dataset
from graphcl.datasets.dataset import GraphDataset
from graphcl.datasets.order import check_shard
from graphcl.distributed.launch import Group, launch, report_once
from graphcl.experiment.build import dry_run, setup_runtime
from graphcl.experiment.output import open_output
from graphcl.experiment.run_folder import check_folder
from graphcl.experiment.scores import with_usable_evaluation
from graphcl.experiment.seed import Clock, run_seed
from graphcl.experiment.tracking import check_trackers
from graphcl.system.memory import keep_freed_memory


@entry_point("the run folder, if one was made, keeps what had finished")
def main(arguments: Sequence[str]) -> None:
    """Run what the command line asks for."""
    with report_once():
        config = RUN.parse(arguments)
    if config is not None:
        keep_freed_memory()
        run(config)


def run(config: Config) -> dict[str, Any]:
    """Run every seed of a configuration and return what `result.json` holds; on ranks other than 0, nothing.

    Raises:
        InputError: the settings cannot be used.
    """
    clock = Clock()
    with launch(config.rank_timeout) as group:
        device = setup_runtime(config, group.local_rank)
        dataset = _load(config, group)
        clock.lap("load")
        config = group.broadcast_object(_completed(config, dataset, group) if group.is_main else config)
        with open_output(config, dataset, device, group, clock.seconds) as output:
            for seed in group.broadcast_object(output.unfinished):
                with output.of_seed(seed) as (observer, checkpoints):
                    result = run_seed(
                        config, dataset, seed, device,
                        group=group, rows=output.rows, observer=observer, checkpoints=checkpoints,
                    )  # fmt: skip
                output.add(seed, result)  # weights, embeddings, scores
            return output.finish()  # summary and report.html


def _load(config: Config, group: Group) -> GraphDataset:
    """Return the data set; rank 0 downloads it before the others read it."""
    if group.is_main:
        check_folder(config)
        check_trackers(config.track)
    else:
        group.barrier()
    dataset = load_dataset(config.dataset, config.data_root, config.mirror, config.features, config.max_degree)
    if group.is_main:
        group.barrier()
    return dataset


def _completed(config: Config, dataset: GraphDataset, group: Group) -> Config:
    """Return the settings completed by the data set; raise InputError for what does not fit, before any file."""
    config = config.model_copy(update={"features": dataset.features})
    dry_run(config, dataset)
    check_shard((group.rank, group.size), config.batch_size, len(dataset))
    return with_usable_evaluation(config, dataset)


if __name__ == "__main__":
    sys.exit(main())
