"""Repeat all studies of TU data sets: python benchmarks/studies/all.py --mirror ../shared/tu --seeds 3

Each script takes the options given here and writes its page. Finished cells are kept: stop at any time, and the same
command goes on. A script that fails does not stop the next ones.
"""

import subprocess
import sys
from pathlib import Path

STUDIES = (
    "wl", "mixed_kernels", "published", "leaderboard", "recipes", "temperature", "adnce_weights", "adaptive", "dro",
    "precision", "few_labels", "batch_size", "without_labels",
)  # fmt: skip


def main():
    """Run the studies one after the other; exit with 1 if any failed."""
    commands = {name: [sys.executable, Path(__file__).with_name(f"{name}.py"), *sys.argv[1:]] for name in STUDIES}
    failed = [name for name, command in commands.items() if subprocess.run(command).returncode]
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
