"""Embeddings for the tests of evaluators."""

import numpy as np


def blobs(n=60, features=5, classes=2, noise=2.0, seed=0):
    """Return an embedding `[n, features]` whose classes overlap, and the classes."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % classes)
    return y[:, None] + noise * rng.normal(size=(n, features)), y
