"""Coverage-guided fuzzing of everything that reads what strangers wrote: `tests/fuzz/targets.py` says what that is.

    pip install atheris
    python benchmarks/fuzz.py config --seconds 300            # new inputs go into tests/fuzz/corpus/config/
    python benchmarks/fuzz.py config --seconds 300 --corpus /tmp/config
    python benchmarks/fuzz.py config --keep /tmp/config       # of these, the smallest for each outcome goes there

What it finds lies as crash-* in the present folder; put it into the corpus when it is mended, and the test suite runs
it for good. One process, nice 10, at most 4 GB.
"""

import argparse
import hashlib
import os
import re
import sys
import tempfile
from pathlib import Path

import atheris

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
with atheris.instrument_imports(include=["graphcl", "yaml"]):
    from tests.fuzz.targets import CORPUS, TARGETS, run, seeds


def keep(target: str, source: Path, corpus: Path) -> None:
    """Copy, of a folder's inputs, the smallest for each outcome: read, or a message but for names and numbers."""
    best: dict[str, bytes] = {}
    for file in source.iterdir():
        content = file.read_bytes()
        message = run(target, content)
        outcome = re.sub(r"'[^']*'|`[^`]*`|/\S*|\d+|got .*", "", message or "read")[:80]
        best[outcome] = min(best.get(outcome, content), content, key=lambda each: (len(each), each))
    for content in best.values():
        (corpus / hashlib.sha256(content).hexdigest()[:12]).write_bytes(content)
    print(f"{target}: {len(best)} of {len(list(source.iterdir()))} inputs, {sum(map(len, best.values()))} bytes")


def main() -> None:
    """Fuzz one target; libFuzzer ends the process itself."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--corpus", type=Path, help="folder for new inputs [tests/fuzz/corpus/TARGET]")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="whose inputs are to be looked through")
    parser.add_argument("--most", type=int, default=8192, help="bytes of an input [8192]")
    given = parser.parse_args()
    os.nice(10)
    corpus = given.corpus or CORPUS / given.target
    corpus.mkdir(parents=True, exist_ok=True)
    honest = tempfile.mkdtemp(prefix="graphcl-seeds-")
    for number, content in enumerate(seeds(given.target)):
        Path(honest, str(number)).write_bytes(content)
    if given.keep:
        keep(given.target, given.keep, corpus)
        return
    limits = ["-rss_limit_mb=4096", "-timeout=60", f"-max_len={given.most}", "-print_final_stats=1"]
    words = [f"-max_total_time={given.seconds}", *limits, str(corpus), honest]
    atheris.Setup([sys.argv[0], *words], lambda content: run(given.target, content) and None)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
