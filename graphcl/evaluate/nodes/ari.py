"""Score the rows of nodes by the adjusted Rand index of k-means clusters and classes."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from graphcl.arguments import Seed
from graphcl.evaluate.folds import checked
from graphcl.evaluate.nodes.nmi import of_clusters
from graphcl.evaluate.scores import FoldScores


@checked
def ari(h: Tensor | np.ndarray, y: Tensor | np.ndarray, *, seed: Seed = 0) -> FoldScores:
    r"""Return the adjusted Rand index in percent of k-means clusters with the classes.

    $$\frac{R - \mathbb E R}{1 - \mathbb E R}$$

    where R is the fraction of pairs of nodes on which clusters and classes agree, and its expectation is over random
    clusters of the same sizes. 0 is chance and 100 is equality. For the clusters and arguments, see `nmi`.

    Args:
        h: rows of the nodes `[n, H]`, any float dtype, any device.
        y: class of each node `[n]`.
        seed: seed of k-means.

    References:
        Hubert and Arabie, "Comparing Partitions", Journal of Classification 1985.
    """
    from sklearn.metrics import adjusted_rand_score

    return of_clusters(h, y, seed, "ari", adjusted_rand_score)
