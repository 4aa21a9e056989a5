"""Measure all published accuracies again and write their pages: python benchmarks/reproduce.py --mirror ../shared/tu

Runs the studies of TU sets one after the other, with the options that they share (`--data-root`, `--out`, `--sets`,
`--seeds`, `--docs`). Finished cells are kept, so a second call goes on where the first stopped. Scores go into
benchmarks/results with the commit and the versions that measured them; `--finished` measures nothing and writes the
pages from there.
"""

import argparse
import subprocess
import sys
from pathlib import Path

STUDIES = (
    "published", "founding", "wl", "leaderboard", "sensitivity", "batch_size", "temperature", "adnce_weights",
    "precision",
)  # fmt: skip


def main() -> None:
    """Run the studies."""
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("--only", nargs="+", choices=STUDIES, default=STUDIES)
    given, options = parser.parse_known_args()
    for name in given.only:
        print(f"== {name}", flush=True)
        done = subprocess.run([sys.executable, Path(__file__).parent / "studies" / f"{name}.py", *options], check=False)
        if done.returncode:
            sys.exit(done.returncode)


if __name__ == "__main__":
    main()
