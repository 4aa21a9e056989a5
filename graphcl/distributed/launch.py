"""Join the process group of a job: the ranks that `torchrun` started, or this process alone.

Without torchrun, the group has one process, so callers need no special case. Wrap training code in
`across(ranks.process_group)`, so that losses and methods work on the global batch. When a rank dies, collectives on the
other ranks fail or time out. These ranks then end with a one-line message, and torchrun ends the job.

The module imports torch only for several ranks, so that help texts are fast.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from graphcl.errors import EXIT_CODE, InputError, reason

if TYPE_CHECKING:
    import torch.distributed as dist

_PATIENCE = timedelta(days=7)
"""Timeout of `Ranks`'s collectives, in which other ranks wait while rank 0 loads, embeds and scores."""


class LostRankError(InputError):
    """Error of a rank that cannot continue because another rank failed."""

    exit_code = EXIT_CODE


class Ranks:
    """The ranks of a job: here one, this process, with collectives that return at once.

    Attributes:
        rank: number of this process, from 0.
        size: number of processes.
        local_rank: number of this process on its machine; None without torchrun.
        process_group: argument for `graphcl.distributed.ranks.across`; None for one process.
    """

    rank, size = 0, 1
    local_rank: int | None = None
    process_group: dist.ProcessGroup | None = None

    @property
    def is_main(self) -> bool:
        """Whether this is rank 0, the only rank that prints, writes files and scores."""
        return self.rank == 0

    def barrier(self) -> None:
        """Wait until all ranks have called this method."""

    def broadcast_object(self, value: Any) -> Any:
        """Return rank 0's `value`, a picklable object, on all ranks."""
        return value

    def all_gather_object(self, value: Any) -> list[Any]:
        """Return the `value` of every rank, in rank order, on all ranks."""
        return [value]


class _Torchrun(Ranks):
    """Ranks that torchrun started."""

    def __init__(self, timeout: float) -> None:
        import torch
        import torch.distributed as dist

        self.rank, self.size, self.local_rank = (int(os.environ[key]) for key in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() and dist.is_nccl_available() else "gloo"
        try:
            dist.init_process_group(backend, timeout=timedelta(seconds=timeout))
        except (RuntimeError, ValueError) as error:
            raise InputError(
                f"rank {self.rank} of {self.size} cannot reach the other ranks ({reason(error)}); check that torchrun "
                "runs on all machines with the same --rdzv-endpoint."
            ) from None
        self.process_group = dist.group.WORLD
        self._patient = dist.new_group(backend="gloo", timeout=_PATIENCE)
        self._store: Any = dist.PrefixStore("graphcl", dist.distributed_c10d._get_default_store())

    def barrier(self) -> None:
        import torch.distributed as dist

        dist.barrier(group=self._patient)

    def broadcast_object(self, value: Any) -> Any:
        from graphcl.distributed import ranks

        return ranks.broadcast_object(value, self._patient)

    def all_gather_object(self, value: Any) -> list[Any]:
        from graphcl.distributed import ranks

        return ranks.all_gather_object(value, self._patient)

    def is_first_to_fail(self, message: str = "") -> bool:
        """Return True on the first rank that calls this method with `message`, and False on later ranks."""
        try:
            return bool(self._store.add(f"failed/{zlib.crc32(message.encode())}", 1) == 1)
        except RuntimeError:  # the process that holds the store has ended
            return True


def launched() -> bool:
    """Return whether torchrun started this process as one of two or more.

    Raises:
        InputError: WORLD_SIZE is set, but a variable of torchrun is missing or is not a number.
    """
    if os.environ.get("WORLD_SIZE", "1").strip() == "1":
        return False
    for name in ("WORLD_SIZE", "RANK", "LOCAL_RANK", "MASTER_PORT", "MASTER_ADDR"):
        value = os.environ.get(name, "")
        if not (value if name == "MASTER_ADDR" else value.isdecimal()):
            wrong = f"WORLD_SIZE is set, but the variable {name} is {value[:40]!r}"
            raise InputError(f"{wrong}; start the processes by torchrun, or unset WORLD_SIZE for a single process.")
    return True


@contextmanager
def report_once() -> Iterator[None]:
    """Clear the message of an InputError before `launch` on all but one process per machine, to print it once."""
    try:
        yield
    except InputError as error:
        if launched() and os.environ["LOCAL_RANK"] != "0":
            error.args = ()
        raise


@contextmanager
def launch(timeout: float = 300.0) -> Iterator[Ranks]:
    """Join the processes that torchrun started and yield them as `Ranks`; without torchrun, yield one rank.

    Within the block, only rank 0 writes to standard output. If several ranks raise the same InputError, only the first
    rank keeps the message, so that it is printed once.

    Args:
        timeout: seconds after which a collective fails if a rank has not joined it.

    Raises:
        InputError: the other ranks cannot be reached.
        LostRankError: a collective failed because another rank ended or timed out.
    """
    if not launched():
        yield Ranks()
        return
    import torch.distributed as dist

    started = _Torchrun(timeout)
    try:
        with open(os.devnull, "w") as nowhere, redirect_stdout(sys.stdout if started.is_main else nowhere):
            yield started
    except (InputError, KeyboardInterrupt) as error:
        started.is_first_to_fail()
        if not started.is_first_to_fail(str(error)):
            error.args = ()
        raise
    except RuntimeError as error:
        with suppress(ValueError):  # only the main thread may set a handler
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # torchrun sends SIGTERM, which would cut off the message
        first = started.is_first_to_fail()
        # gloo raises a RuntimeError that names one of its source files
        if not isinstance(error, dist.DistError) and not re.search("gloo|nccl", str(error), re.IGNORECASE):
            raise
        text = re.sub(r"^\[.*?\] ", "", reason(error)).partition(". ")[0]  # drop gloo's source file and advice
        message = f"another rank failed or timed out ({text}); the job ends, saved results are kept."
        raise LostRankError(message if first else "") from error  # the first rank to fail prints the reason
    started.barrier()
    dist.destroy_process_group()
