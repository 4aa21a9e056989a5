"""The shipped help texts `graphcl/cli/topics.json`; `python -m tests.cli.test_topics` writes them."""

import json
import subprocess
import sys

from graphcl.cli.command_line import REGISTRIES, SHIPPED, list_names

FAST = """
import sys
from graphcl.cli.command_line import topic
from graphcl.registry import losses
print(topic("losses"), end="")
assert "torch" not in sys.modules
losses.packages += ("graphcl.cli",)  # further files
assert topic("losses") and "torch" in sys.modules
"""


def texts():
    """Return the help text of every registry, and the modules that a new process imports for it."""
    code = "import json; from graphcl.cli.command_line import REGISTRIES as r; "
    code += "print(json.dumps({name: registry.modules() for name, (registry, _) in r.items()}))"
    modules = json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)
    return {name: {"modules": modules[name], "text": list_names(name)} for name in REGISTRIES}


def test_the_shipped_help_is_up_to_date_and_needs_no_torch():
    kept = json.loads(SHIPPED.read_text())
    assert kept == texts(), "run python -m tests.cli.test_topics"
    done = subprocess.run([sys.executable, "-c", FAST], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == (kept["losses"]["text"], "")


if __name__ == "__main__":
    SHIPPED.write_text(json.dumps(texts(), indent=1, ensure_ascii=False) + "\n")
