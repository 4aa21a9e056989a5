"""`graphcl show`: redraw the report of a run."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from graphcl.arguments import Settings
from graphcl.cli.command_line import Command
from graphcl.errors import InputError


class Show(Settings):
    """Redraw report.html of a run, finished or not."""

    run: str = Field(title="FOLDER", description="run folder")


COMMAND = Command("graphcl show FOLDER", Show, positional="run")


def show(settings: Show) -> str:
    """Redraw the report of a run, and return the path of the page."""
    from graphcl.report.run_report import write_report  # imported here, as it loads matplotlib

    if not Path(settings.run).exists():
        raise InputError(f"folder {settings.run!r} not found; pass a run folder.")
    return str(write_report(settings.run))


main = COMMAND.main(show)
