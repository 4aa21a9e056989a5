"""Call `graphcl run` from Python, `graphcl.run(...)`, and from a shell, `python -m graphcl.run`."""

from __future__ import annotations

import sys
import types
from typing import TYPE_CHECKING, Any

from graphcl.commands.run import main
from graphcl.config import make_config, read_config
from graphcl.config.recipes import override

if TYPE_CHECKING:
    from graphcl.experiment.run_config import RunResult

__all__ = ["main", "run"]


def run(config: str | None = None, **settings: Any) -> RunResult:
    """Run a configuration as `graphcl run` does, and return the scores and the run folder.

    Args:
        config: YAML file, or name of a shipped configuration, as for `--config`; `settings` override its values.
        **settings: settings by name, such as `epochs=5`, `loss="adnce"` or `**{"loss.mu": 0.5}`.

    Raises:
        InputError: a setting is invalid; the message has one line per problem.

    Example:
        >>> result = run(dataset="synthetic", epochs=1, seeds=[0], eval=["knn"])  # doctest: +SKIP
        >>> result.accuracy, result.rows["untrained"].mean, result.folder  # doctest: +SKIP
        (85.5, 71.0, PosixPath('runs/synthetic-infonce-1'))
    """
    from graphcl.experiment.run_config import run  # imported here, as help texts need no torch

    values = {} if config is None else read_config(config, settings.get("dataset"))
    return run(make_config(override(values, settings), settings))


class _CallableModule(types.ModuleType):
    """Module that is called as its function `run`, so that `graphcl.run(...)` and `python -m graphcl.run` both work."""

    def __call__(self, config: str | None = None, **settings: Any) -> RunResult:
        return run(config, **settings)


sys.modules[__name__].__class__ = _CallableModule

if __name__ == "__main__":
    sys.exit(main())
