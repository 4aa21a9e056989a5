import json
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent


@pytest.fixture(scope="session")
def group(request):
    """Return a function `(stem, size)` that returns the errors of the checks in `stem.py` on `size` processes, by name.

    All checks of the test session run at once, as starting the processes takes most of the time.
    """
    mine = (item for item in request.session.items if item.path.parent == FOLDER)
    items = [item for item in mine if "group" in getattr(item, "fixturenames", ())]
    sizes = "2,4" if any(item.get_closest_marker("several") for item in items) else "2"
    stems = {item.callspec.params["stem"] for item in items}
    files = [str(FOLDER / f"{stem}.py") for stem in sorted(stems)]
    command = [sys.executable, str(FOLDER / "group.py"), sizes, *files]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=400)
    found = json.loads(done.stdout)
    return lambda stem, size: found[str(size)][stem]
