"""List every option of the commands; `python -m tests.config.options` writes the list into options.txt."""

from pathlib import Path

from graphcl.commands import command, summaries
from graphcl.config.resolve import NAMED, setting_paths
from graphcl.config.settings import Config

FILE = Path(__file__).with_name("options.txt")


def options() -> list[str]:
    """Return the dotted settings of a run, and COMMAND NAME of each further option; without those of other packages."""
    fixed = {path for path in setting_paths() if path.rpartition(".")[0] not in NAMED}
    for setting, registry in NAMED.items():
        names = [name for name, target in registry.items() if target.__module__.startswith("graphcl.")]
        fixed |= {f"{setting}.{argument}" for name in names for argument in registry.arguments(name).defaults}
    models = {name: command(name).COMMAND.model for name in summaries()}
    further = [
        f"{name} {field}" for name, model in models.items() for field in {*model.model_fields} - {*Config.model_fields}
    ]
    return [*sorted(fixed), *sorted(further)]


if __name__ == "__main__":
    FILE.write_text("\n".join(options()) + "\n")
