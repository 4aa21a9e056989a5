"""Generate a data set of four families of graphs, which differ only in the kinds of nodes that edges join."""

from __future__ import annotations

import random
from bisect import bisect
from collections.abc import Callable, Sequence

import torch
from torch_geometric.data import Data

from graphcl.errors import InputError

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
    rules = list(FAMILIES.values())
    return [_graph(number % len(rules), rules[number % len(rules)], rng) for number in range(num_graphs)]


def _graph(family: int, rule: Callable[[int, int], bool], rng: random.Random) -> Data:
    """Return one graph of a family: a random core, rewired to follow `rule`, and bystanders."""
    import networkx as nx

    core = nx.gnm_random_graph(size := rng.randint(20, 28), round(size * rng.uniform(3, 5) / 2), seed=rng)
    kinds = [node % CORE_KINDS for node in range(size)]
    rng.shuffle(kinds)
    follows = [[rule(a, b) for b in kinds] for a in kinds]
    edges = _rewire(sorted(core.edges()), follows, rng)

    core = nx.empty_graph(size)
    core.add_edges_from(edges)
    bystanders = round(size * rng.uniform(0, 1.2))
    graph = nx.barabasi_albert_graph(size + bystanders, rng.randint(1, 6), seed=rng, initial_graph=core)
    cuts = sorted(rng.random() for _ in range(BYSTANDER_KINDS - 1))  # makes all proportions equally likely
    kinds += [CORE_KINDS + bisect(cuts, rng.random()) for _ in range(bystanders)]

    both_ways = sorted(pair for a, b in graph.edges() for pair in ((a, b), (b, a)))
    return Data(
        x=torch.eye(CORE_KINDS + BYSTANDER_KINDS)[kinds],
        edge_index=torch.tensor(both_ways).t().contiguous(),
        y=torch.tensor([family]),
    )


def _rewire(
    edges: list[tuple[int, int]], follows: Sequence[Sequence[bool]], rng: random.Random
) -> list[tuple[int, int]]:
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
