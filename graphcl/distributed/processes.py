"""The processes of a job that `torchrun` started: how they find each other, and how they notice that one is gone."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from graphcl.errors import EXIT_CODE, InputError, reason

_SET = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
BEAT = 0.5
"""Seconds between two signs of life."""
GONE = 3.0
"""Seconds without one after which a rank is called gone, when something has failed already."""


class LostRankError(InputError):
    """Another rank is gone, so this one cannot go on; the message names it."""

    exit_code = EXIT_CODE


class Processes:
    """This process among all ranks of a job.

    Attributes:
        rank: of this process, from 0.
        size: how many there are.
        local: number of this process on its machine, by which it takes a CUDA device.
        timeout: seconds after which a rank that gives no sign of life ends the job.
    """

    def __init__(self, environment: Mapping[str, str], timeout: float) -> None:
        self.rank, self.size, self.local = (int(environment[key]) for key in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
        self.timeout = timeout
        with_cuda = torch.cuda.is_available() and dist.is_nccl_available()
        backend = "cpu:gloo,cuda:nccl" if with_cuda else "gloo"
        try:
            dist.init_process_group(backend, timeout=timedelta(seconds=timeout))
        except (RuntimeError, ValueError) as error:
            raise InputError(
                f"rank {self.rank} of {self.size} cannot reach the others ({reason(error)}); are all machines' "
                "torchrun commands running, with one --rdzv-endpoint?"
            ) from None
        # Rank 0 embeds and scores meanwhile, which takes as long as it takes.
        self._patient = dist.new_group(backend="gloo", timeout=timedelta(days=365))
        self._store: Any = dist.PrefixStore("graphcl", dist.distributed_c10d._get_default_store())
        self._over = threading.Event()
        self._ended = False  # whether another rank has ended by itself, which then says why
        self._store.set(f"place/{self.rank}", f"{socket.gethostname()}, process {os.getpid()}")
        self._beat(0)
        self.wait()
        self._watch = threading.Thread(target=self._watching, name="graphcl-watch", daemon=True)
        self._watch.start()

    @property
    def group(self) -> dist.ProcessGroup:
        """All ranks, for what they compute together."""
        group = dist.group.WORLD
        assert group is not None
        return group

    def share(self, value: Any) -> Any:
        """Rank 0's plain value, on all ranks, however long it takes to come."""
        values = [value]
        dist.broadcast_object_list(values, 0, group=self._patient)
        return values[0]

    def wait(self) -> None:
        """Until all ranks are here, however long that takes."""
        dist.barrier(group=self._patient)

    def leave(self, whole: bool) -> None:
        """End the group; `whole` where all ranks are leaving, and so can wait for each other."""
        if whole:
            self.wait()
        with suppress(RuntimeError):  # of a store that is gone
            if not whole:
                self._store.set("ended", "1")
            self._store.set(f"left/{self.rank}", "1")
            until = time.monotonic() + GONE
            # The store may live in rank 0's process, and the others have yet to look who says what.
            while self.rank == 0 and time.monotonic() < until and not self._all_left():
                time.sleep(BEAT / 10)
        self._over.set()
        self._watch.join()
        if whole:
            dist.destroy_process_group()

    def lost(self) -> LostRankError | None:
        """What to raise when something that all ranks do has failed: the ranks that give no sign of life any more.

        Without words where another rank has ended by itself, as that has said why.
        """
        try:
            if self._ended or self._store.check(["ended"]):
                return LostRankError()
            before = self._beats()
            time.sleep(GONE)
            after = self._beats()
            gone = [rank for rank in range(self.size) if after[rank] == before[rank] and rank != self.rank]
            return LostRankError(self._told(gone)) if gone else None
        except RuntimeError:  # the store went down with the process that keeps it
            return LostRankError("the machine of rank 0 is gone, or its torchrun; the job ends.")

    def says(self, message: str) -> bool:
        """Whether this rank is to print a message of the job's end: the lowest of those that have the same to say."""
        mine = f"said/{_digest(message)}"
        try:
            self._store.set(f"{mine}/{self.rank}", "1")
            if self.rank:
                time.sleep(2 * BEAT)
            return not any(self._store.check([f"{mine}/{rank}"]) for rank in range(self.rank))
        except RuntimeError:
            return True

    def _all_left(self) -> bool:
        left: bool = self._store.check([f"left/{rank}" for rank in range(self.size)])
        return left

    def _told(self, gone: list[int]) -> str:
        names = ", ".join(f"rank {rank} ({self._store.get(f'place/{rank}').decode()})" for rank in gone)
        return f"{names} is gone; the job ends, and what was saved is kept."

    def _beat(self, number: int) -> None:
        self._store.set(f"beat/{self.rank}", str(number))

    def _beats(self) -> list[bytes]:
        return [self._store.get(f"beat/{rank}") for rank in range(self.size)]

    def _watching(self) -> None:
        """Give signs of life, and end this process when another has given none for too long."""
        number, last, since = 0, [b""] * self.size, [time.monotonic()] * self.size
        while not self._over.wait(BEAT):
            number += 1
            try:
                self._beat(number)
                self._ended = self._ended or self._store.check(["ended"])
                for rank, beat in enumerate(self._beats()):
                    if beat != last[rank]:
                        last[rank], since[rank] = beat, time.monotonic()
                gone = [rank for rank in range(self.size) if time.monotonic() - since[rank] > self.timeout]
                gone = [rank for rank in gone if not self._store.check([f"left/{rank}"])]
                told = self._told(gone) if gone else ""
            except RuntimeError:  # the store is gone; whatever waits for the others fails too
                return
            if told:
                # The main thread may wait in a collective that never returns.
                if self.says(told):
                    print(f"graphcl: {told}", file=sys.stderr, flush=True)
                os._exit(EXIT_CODE)


@contextmanager
def processes(timeout: float = 300.0) -> Iterator[Processes | None]:
    """The job's processes, as long as the block lasts; None where `torchrun` has not started several.

    Standard output is rank 0's. What fails because another rank is gone is raised as `LostRankError`. What several
    ranks raise alike keeps its text on the lowest of them only, so that it is printed once.
    """
    if not launched():
        yield None
        return
    mine = Processes(os.environ, timeout)
    try:
        with open(os.devnull, "w") as nowhere, redirect_stdout(sys.stdout if mine.rank == 0 else nowhere):
            yield mine
    except (InputError, KeyboardInterrupt) as error:
        if not mine.says(str(error)):
            error.args = ()
        mine.leave(whole=False)
        raise
    except RuntimeError as error:  # torch.distributed's errors are such
        with suppress(ValueError):  # of another thread than the main one
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # by which torchrun hurries those that are left
        lost = mine.lost()
        told = lost is not None and mine.says(str(lost))
        mine.leave(whole=False)
        if lost is None:
            raise
        raise lost if told else LostRankError() from error
    except BaseException:
        mine.leave(whole=False)
        raise
    mine.leave(whole=True)


@contextmanager
def said_once() -> Iterator[None]:
    """What every process refuses before it has found the others is printed by the first on each machine."""
    try:
        yield
    except InputError as error:
        if launched() and os.environ["LOCAL_RANK"] != "0":
            error.args = ()
        raise


def launched() -> bool:
    """Whether `torchrun` started this process as one of several."""
    return all(key in os.environ for key in _SET) and int(os.environ["WORLD_SIZE"]) > 1


def _digest(message: str) -> int:
    """A number that all ranks give the same text."""
    return zlib.crc32(message.encode())
