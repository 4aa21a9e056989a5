"""What the documentation says of the losses is what the registry says."""

import re
from pathlib import Path

from graphcl.registry import losses

PAGE = (Path(__file__).parents[1] / "docs" / "losses.md").read_text()
SHARED = {"negatives", "symmetric", "engine", "reduction"}


def test_the_table_of_losses():
    found = {}
    for line in PAGE.split("\n"):
        if match := re.match(r"\| `(\w+)` \| .* \| (.*) \| (\S+) \| (\S+) \| (\S+) \| `(\w+)` \| `(\w+)` \|$", line):
            name, own, *rest = match.groups()
            found[name] = [set(re.findall(r"`(\w+)`", own)), *rest]
    expected = {}
    for name in losses:
        arguments, facts = losses.arguments(name), losses.facts(name)
        has = ("queue" in arguments.tensors, "weight" in arguments.tensors, "engine" in arguments.defaults)
        marks = ["yes" if each else "-" for each in has]
        expected[name] = [set(arguments.defaults) - SHARED, *marks, facts["gathering"], facts["method"]]
    assert found == expected


def test_the_figures_are_there():
    for name in re.findall(r"\]\((figures/\w+\.svg)\)", PAGE):
        assert (Path(__file__).parents[1] / "docs" / name).is_file()
