"""Choose the device of a run, and set threads and deterministic mode of this process."""

from __future__ import annotations

import os

import torch

from graphcl.config import Config
from graphcl.errors import InputError


def pick_device(name: str) -> torch.device:
    """Return the torch device called `name`; `auto` is CUDA if available. InputError if the device is not available."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):
        raise InputError(f"`device` must be auto, cpu or cuda, got {name!r}.") from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        count = torch.cuda.device_count()
        raise InputError(f"`device` is {name}, but torch sees {count} CUDA devices; pass --device cpu.")
    return device


def setup_runtime(config: Config, local_rank: int | None = None) -> torch.device:
    """Set the number of threads and deterministic mode of this process, and return its device.

    The `local_rank` of this process on its machine selects the CUDA device; it is None for a single process.
    """
    device = pick_device(config.device)
    if local_rank is not None and device.type == "cuda":
        device = pick_device(f"cuda:{local_rank}")
        torch.cuda.set_device(device)
    # the default is one thread: on busy cores, threads wait for each other
    torch.set_num_threads(config.threads)
    if config.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS reads this at its first use
    torch.use_deterministic_algorithms(config.deterministic)
    return device
