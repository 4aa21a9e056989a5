"""What a process does besides computing, by Python's audit events: files written, programs started, connections."""

import contextlib
import os
import sys
from pathlib import Path

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_PLACES = {
    "os.mkdir": 1,
    "os.rename": 2,
    "os.remove": 1,
    "os.rmdir": 1,
    "os.symlink": 2,
    "os.link": 2,
    "os.truncate": 1,
}
_NEVER = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.spawn", "socket.connect")


class _Watch:
    """An audit hook cannot be taken away again, so there is one, which is asleep where nobody watches."""

    def __init__(self):
        self.allowed = None
        self.seen = []
        sys.addaudithook(self)

    def __call__(self, event, args):
        if self.allowed is None:
            return
        if event in _NEVER:
            self.seen.append(f"{event}{args!r:.200}")
        elif event == "open":
            path, mode, flags = args
            writes = flags & _WRITES if isinstance(flags, int) else set("wax+") & set(mode or "")
            if writes and isinstance(path, str | bytes | os.PathLike):
                self.look(event, path)
        elif event in _PLACES:
            for path in args[: _PLACES[event]]:
                self.look(event, path)

    def look(self, event, path):
        text = os.path.realpath(os.fsdecode(path))
        compiled = text.endswith(".pyc") or "__pycache__" in text  # of modules that are imported late
        if not compiled and text != os.devnull and not text.startswith(self.allowed):
            self.seen.append(f"{event} {text}")


_watch = None


@contextlib.contextmanager
def watched(folder):
    """Fails if the block writes outside of `folder`, starts a program or opens a connection."""
    global _watch
    _watch = _watch or _Watch()
    _watch.allowed, _watch.seen = os.path.realpath(folder) + os.sep, []
    try:
        yield
    finally:
        _watch.allowed = None
    assert not _watch.seen, _watch.seen


STATUS = Path("/proc/self/status")


def memory(field):
    """A figure of this process's memory in bytes, `VmRSS` or `VmHWM`."""
    lines = (line.split() for line in STATUS.read_text().splitlines())
    return next(int(words[1]) * 1024 for words in lines if words[0] == f"{field}:")


@contextlib.contextmanager
def peak():
    """Gives a list that afterwards holds by how many bytes the process's memory grew at most; 0 beside Linux."""
    found = []
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        yield found
        found.append(0)
        return
    before = memory("VmRSS")
    yield found
    found.append(memory("VmHWM") - before)
