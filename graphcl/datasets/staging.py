"""A hidden folder in which a data set is prepared, before it is moved into the cache as a whole."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from graphcl.datasets.names import reason
from graphcl.errors import InputError


@contextlib.contextmanager
def staged(name: str, root: Path) -> Iterator[Path]:
    """The folder `root/.NAME-*`, which is removed whatever happens; so is `root`, if it was made here and is empty.

    Args:
        name: of the data set.
        root: absolute folder of all data sets, made if it is not there.

    Raises:
        InputError: the disk refuses something, here or in the block.
    """
    made = not root.exists()
    staging: Path | None = None
    try:
        root.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=root))
        yield staging
    except OSError as error:
        raise InputError(f"cannot prepare {name} under `root` {str(root)!r}: {reason(error)}.") from None
    finally:
        if staging is not None:
            shutil.rmtree(staging, ignore_errors=True)
        if made:
            with contextlib.suppress(OSError):  # it is not empty: the set is there
                root.rmdir()
