"""Make embeddings for the tests of evaluators."""

import numpy as np


def blobs(n=60, features=5, classes=2, noise=2.0, seed=0):
    """Return a random embedding `[n, features]` with overlapping classes, and the class of each row `[n]`."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % classes)
    return y[:, None] + noise * rng.normal(size=(n, features)), y
