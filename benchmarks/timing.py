"""Clocks, the machine's description, and tables."""

from __future__ import annotations

import datetime
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch_geometric

import graphcl

clock = time.perf_counter
"""Replace it by `time.process_time` to measure CPU time on a shared machine, with one thread."""


def timed(action: Callable[[], Any], device: torch.device | str = "cpu") -> float:
    """Return the seconds of an action, until the device has finished."""
    if torch.device(device).type == "cuda":
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        start.record()
        action()
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end) / 1e3
    begin = clock()
    action()
    return clock() - begin


def median(action: Callable[[], Any], repeats: int, device: torch.device | str = "cpu") -> float:
    """Return the median seconds, after one warm-up."""
    action()
    return statistics.median(timed(action, device) for _ in range(repeats))


def machine(threads: int) -> dict[str, Any]:
    """Return hardware, versions and settings of the measurement."""
    names = [line.split(":")[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    git = ["git", "-C", str(Path(graphcl.__file__).parent)]
    commit = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    changed = subprocess.run([*git, "status", "--porcelain", "-uno"], capture_output=True, text=True).stdout.strip()
    return {
        "cpu": names[0] if names else platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "ram_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "pyg": torch_geometric.__version__,
        "numpy": np.__version__,
        "commit": (commit or "unknown") + ("+changes" if changed else ""),
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "threads": threads,
        "clock": clock.__name__,
        "load_average": [round(each, 2) for each in os.getloadavg()],
    }


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if Path(path).exists() else []


def told(about: Mapping[str, Any]) -> str:
    """Return the machine in one sentence."""
    device = f"{about['device']}, " if about["device"] else ""
    return (
        f"{device}{about['cpu']}, {about['cores']} cores, {about['ram_gb']} GB; Python {about['python']}, "
        f"torch {about['torch']}, PyG {about['pyg']}, NumPy {about['numpy']}; {about['threads']} threads, "
        f"{'processor' if about['clock'] == 'process_time' else 'wall'} time; "
        f"commit {about['commit']}, {about['date']}; "
        f"load average at the start {', '.join(map(str, about['load_average']))}."
    )


def number(value: Any) -> str:
    """Return a number with three significant digits."""
    if not isinstance(value, float):
        return "-" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3
    return f"{value:,.{digits}f}"


def table(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str]) -> str:
    """Return a Markdown table; `columns` maps keys of the rows to headings."""
    lines = ["| " + " | ".join(columns.values()) + " |", "|---|" + "---:|" * (len(columns) - 1)]
    lines += ["| " + " | ".join(number(row.get(key)) for key in columns) + " |" for row in rows]
    return "\n".join(lines)
