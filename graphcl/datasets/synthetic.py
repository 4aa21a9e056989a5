"""Generate a data set of four families of graphs, which differ only in the kinds of nodes that edges join."""

from __future__ import annotations

import random
from bisect import bisect
from collections.abc import Callable, Sequence

import torch
from torch_geometric.data import Data

from graphcl.arguments import Ratio
from graphcl.errors import InputError

Edges = list[tuple[int, ...]]
"""Undirected edges, each a pair of nodes."""
CORE_KINDS = 4
BYSTANDER_KINDS = 3

# family -> its rule: True if an edge between core kinds a and b (A, B, C, D are 0, 1, 2, 3) follows the rule
FAMILIES: dict[str, Callable[[int, int], bool]] = {
    "communities": lambda a, b: a == b,
    "couples": lambda a, b: a // 2 == b // 2 and a != b,
    "camps": lambda a, b: a // 2 == b // 2,
    "bipartite": lambda a, b: a // 2 != b // 2,
}


def synthetic(seed: int = 0, num_graphs: int = 600) -> list[Data]:
    """Return graphs of four families; the distributions of size, degree and node kind are the same in every family.

    A graph consists of a core and bystanders. The core is a random graph G(n, m), with n nodes and m edges; the nodes
    are of the kinds A, B, C and D in equal numbers. The core is rewired by swaps of two edges, which keep every degree,
    until 80 % of the edges follow the family's rule (two thirds in a few small cores):

    | family        | an edge joins                          |
    |---------------|----------------------------------------|
    | `communities` | two nodes of one kind                  |
    | `couples`     | A with B, C with D                     |
    | `camps`       | any two of {A, B}, any two of {C, D}   |
    | `bipartite`   | one of {A, B} with one of {C, D}       |

    Bystanders of three other kinds, in random proportions, are added by preferential attachment. They carry no
    information about the family, but make the size vary from 20 to 60 nodes; the size dominates the embedding of an
    untrained encoder.

    Args:
        seed: seed of the random generator; the same seed gives the same graphs on every machine.
        num_graphs: number of graphs, >= 1; the families alternate.

    Returns:
        `Data` objects: `x [N, 7]` is the one-hot kind, `edge_index` undirected and sorted, `y [1]` the family.

    Raises:
        InputError: `num_graphs` is below 1.

    Example:
        >>> graph = synthetic(num_graphs=1)[0]
        >>> graph.x.shape[1], graph.is_undirected(), graph.y.item()
        (7, True, 0)
    """
    if num_graphs < 1:
        raise InputError(f"`num_graphs` must be at least 1, got {num_graphs}.")
    rng = random.Random(seed)
    return [_graph(*_core(number % len(FAMILIES), rng), number % len(FAMILIES), rng) for number in range(num_graphs)]


def synthetic_pairs(seed: int = 0, num_groups: int = 300, members: int = 2, noise: Ratio = 0.02) -> list[Data]:
    """Return groups of graphs; the members of a group are noisy measurements of the same core.

    A core is that of `synthetic`. Each member redraws each edge of the core, and the kind of each of its nodes, with
    probability `noise`, and has bystanders of its own. So members share most of the core, but not their size.

    Args:
        seed: seed of the random generator; the same seed gives the same graphs on every machine.
        num_groups: number of groups, >= 1.
        members: number of graphs in a group, >= 1.
        noise: probability of redrawing an edge or a kind, in [0, 1).

    Returns:
        `Data` objects as from `synthetic`, with `group`, the number of their group; members follow each other.

    Raises:
        InputError: an argument is out of range.

    Example:
        >>> [graph.group for graph in synthetic_pairs(num_groups=2)]
        [0, 0, 1, 1]
    """
    if min(num_groups, members) < 1 or not 0 <= noise < 1:
        got = f"{num_groups}, {members} and {noise}"
        raise InputError(f"`num_groups` and `members` must be at least 1 and `noise` in [0, 1), got {got}.")
    rng, graphs = random.Random(seed), []
    for number in range(num_groups):
        family = number % len(FAMILIES)
        edges, kinds = _core(family, rng)
        for _ in range(members):
            graph = _graph(*_measured(edges, kinds, noise, rng), family, rng)
            graph.group = number
            graphs.append(graph)
    return graphs


def _measured(edges: Edges, kinds: list[int], noise: float, rng: random.Random) -> tuple[Edges, list[int]]:
    """Return copies of the edges and kinds of a core, each redrawn with probability `noise`."""
    kept = {edge if rng.random() >= noise else tuple(sorted(rng.sample(range(len(kinds)), 2))) for edge in edges}
    return sorted(kept), [kind if rng.random() >= noise else rng.randrange(CORE_KINDS) for kind in kinds]


def _core(family: int, rng: random.Random) -> tuple[Edges, list[int]]:
    """Return the edges and the kinds of the nodes of a random core, rewired to follow the rule of the family."""
    import networkx as nx

    core = nx.gnm_random_graph(size := rng.randint(20, 28), round(size * rng.uniform(3, 5) / 2), seed=rng)
    kinds = [node % CORE_KINDS for node in range(size)]
    rng.shuffle(kinds)
    rule = list(FAMILIES.values())[family]
    follows = [[rule(a, b) for b in kinds] for a in kinds]
    return _rewire(sorted(core.edges()), follows, rng), kinds


def _graph(edges: Edges, kinds: list[int], family: int, rng: random.Random) -> Data:
    """Return the graph of a core and random bystanders."""
    import networkx as nx

    core = nx.empty_graph(size := len(kinds))
    core.add_edges_from(edges)
    bystanders = round(size * rng.uniform(0, 1.2))
    graph = nx.barabasi_albert_graph(size + bystanders, rng.randint(1, 6), seed=rng, initial_graph=core)
    cuts = sorted(rng.random() for _ in range(BYSTANDER_KINDS - 1))  # makes all proportions equally likely
    kinds = kinds + [CORE_KINDS + bisect(cuts, rng.random()) for _ in range(bystanders)]

    both_ways = sorted(pair for a, b in graph.edges() for pair in ((a, b), (b, a)))
    return Data(
        x=torch.eye(CORE_KINDS + BYSTANDER_KINDS)[kinds],
        edge_index=torch.tensor(both_ways).t().contiguous(),
        y=torch.tensor([family]),
    )


def _rewire(edges: Edges, follows: Sequence[Sequence[bool]], rng: random.Random) -> Edges:
    """Rewire edges until 80 % of them follow a rule, `follows[a][b]`, and return them; every node keeps its degree.

    A swap replaces two random edges a-b and c-d by a-d and c-b. Swaps that make a self-loop or a double edge, or that
    reduce the number of edges that follow the rule, are rejected. After 40 attempts per edge the function returns, even
    if a small or dense graph has not reached the fraction.
    """
    count = len(edges)
    present = {frozenset(edge) for edge in edges}
    following = sum(follows[a][b] for a, b in edges)
    bits, coin, width = rng.getrandbits, rng.random, count.bit_length()

    def draw() -> int:  # the same numbers as `rng.randrange(count)`, in a third of the time
        number = bits(width)
        while number >= count:
            number = bits(width)
        return number

    for _ in range(40 * count):
        if following >= 0.8 * count:
            break
        i, j = draw(), draw()
        (a, b), (c, d) = edges[i], edges[j]
        if coin() < 0.5:
            c, d = d, c
        gain = follows[a][d] + follows[c][b] - follows[a][b] - follows[c][d]
        if gain < 0 or len({a, b, c, d}) < 4:
            continue
        new = {frozenset((a, d)), frozenset((c, b))}
        if new & present:
            continue
        present -= {frozenset((a, b)), frozenset((c, d))}
        present |= new
        edges[i], edges[j] = (a, d), (c, b)
        following += gain
    return edges
