"""Late interaction of two graphs by their nodes, as a second stage of a search; for python_functions.py."""

import torch
from torch.nn.functional import normalize
from torch_geometric.utils import scatter

from graphcl.graphs.segment import ranges


def late_interaction(nodes1, ptr1, nodes2, ptr2):
    r"""Return the late interaction `[B1, B2]` of every graph of one batch with every graph of another.

    $$s(G, G') = \frac{1}{2 |G|} \sum_{u \in G} \max_{v \in G'} \cos(z_u, z_v) +
      \frac{1}{2 |G'|} \sum_{v \in G'} \max_{u \in G} \cos(z_u, z_v)$$

    Every node looks for its best match in the other graph. Memory: O(N1 N2).

    Args:
        nodes1: representations of the N1 nodes of B1 graphs `[N1, H]`.
        ptr1: boundaries of the graphs in `nodes1`, `[B1 + 1]`.
        nodes2: representations of the N2 nodes of B2 other graphs `[N2, H]`.
        ptr2: boundaries of the graphs in `nodes2`, `[B2 + 1]`.

    Reference: Khattab and Zaharia, "ColBERT: Efficient and Effective Passage Search via Contextualized Late Interaction
    over BERT", SIGIR 2020, Eq. 3.

    Differs: ColBERT sums over the query's tokens; here it is the mean over nodes, in both directions.
    """
    cosine = normalize(nodes1, dim=1) @ normalize(nodes2, dim=1).T
    sizes = ptr1.diff(), ptr2.diff()
    graph1, graph2 = (torch.arange(len(size)).repeat_interleave(size) for size in sizes)
    there = scatter(cosine, graph2, dim=1, dim_size=len(sizes[1]), reduce="max")
    back = scatter(cosine, graph1, dim=0, dim_size=len(sizes[0]), reduce="max")
    mean_there = scatter(there, graph1, dim=0, dim_size=len(sizes[0]), reduce="mean")
    return (mean_there + scatter(back, graph2, dim=1, dim_size=len(sizes[1]), reduce="mean")) / 2


@torch.no_grad()
def to_candidates(nodes, ptr):
    """Return a function from a graph and the indices of c others `[c]` to their late interactions `[c]`."""
    sizes = ptr.diff()

    @torch.no_grad()
    def score(graph, others):
        rows = ranges(ptr[others], sizes[others])
        own, bounds = nodes[ptr[graph] : ptr[graph + 1]], torch.stack([ptr[0], sizes[graph]])
        return late_interaction(own, bounds, nodes[rows], torch.cat([ptr[:1], sizes[others].cumsum(0)]))[0]

    return score


def reranked(first, second, most=100):
    """Return a similarity in two stages: the `most` best candidates by `first` are ordered by `second`.

    The other candidates follow in the order of `first`. If candidates tie at the place `most`, any of them are taken.

    Args:
        first: similarity in [-1, 1], a `graphcl.evaluate.ranking.Similarity`.
        second: function from a query and the indices of c candidates `[c]` to similarities in [-1, 1], `[c]`.
        most: number of candidates to reorder.
    """

    def similarity(queries, candidates):
        scores = first(queries, candidates).cpu().double()
        others = scores.masked_fill(queries[:, None] == candidates, -torch.inf)
        best = others.topk(min(most, len(candidates)), dim=1).indices
        for query, row, top in zip(queries.tolist(), scores, best, strict=True):
            row[top] = 4 + second(query, candidates[top]).cpu().double()  # ahead of all others
        return scores

    return similarity
