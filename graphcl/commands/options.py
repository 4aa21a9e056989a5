"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from graphcl.arguments import Count, Seed, Settings

Force = Annotated[bool, Field(description="replace the file if it exists")]
EncoderFile = Annotated[str, Field(description="encoder.pt, its run folder, or molecules, the installed encoder")]
EncoderSeed = Annotated[Seed | None, Field(description="seed, if the file holds several encoders; default: the first")]


class Workers(Settings):
    """Processes that share the work of a command."""

    workers: Count = 1
    """processes of this machine; a task whose process dies is run again"""
    executor: Annotated[str, Field(title="NAME")] = "loky"
    """loky: processes of this machine; dask:ADDRESS: the workers of a Dask scheduler (pip install "graphcl[cluster]");
    MODULE:FUNCTION: a function from the number of workers to a concurrent.futures.Executor"""

    @property
    def many(self) -> bool:
        """Whether other processes do the work."""
        return self.workers > 1 or self.executor != "loky"
