"""The embedded data set: who bonds with whom, told apart by nothing else."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import torch
from torch_geometric.data import Data

from graphcl.errors import InputError

if TYPE_CHECKING:
    import networkx

KINDS, BYSTANDERS = 4, 3
FAMILIES = ("communities", "couples", "camps", "sides")


def synthetic(seed: int = 0, num_graphs: int = 600) -> list[Data]:
    if num_graphs < 1:
        raise InputError(f"`num_graphs` must be at least 1, got {num_graphs}.")
    rng = random.Random(seed)
    return [_graph(number % len(FAMILIES), rng) for number in range(num_graphs)]


P = dict(core=(18, 28), deg=(3.0, 5.0), share=0.8, by=1.5, att=(1, 4), tries=40)


def _graph(family: int, rng: random.Random) -> Data:
    import networkx as nx

    core = rng.randint(*P["core"])
    wired = nx.gnm_random_graph(core, round(core * rng.uniform(*P["deg"]) / 2), seed=rng)
    kinds = [node % KINDS for node in range(core)]
    rng.shuffle(kinds)
    _rewire(wired, kinds, family, rng)
    size = core + round(core * rng.uniform(0, P["by"]))
    whole = nx.barabasi_albert_graph(size, rng.randint(*P["att"]), seed=rng, initial_graph=wired)
    cuts = sorted(rng.random() for _ in range(BYSTANDERS - 1))
    for _ in range(core, size):
        draw = rng.random()
        kinds.append(KINDS + sum(draw > cut for cut in cuts))
    edges = sorted((a, b) for edge in whole.edges() for a, b in (edge, edge[::-1]))
    return Data(
        x=torch.eye(KINDS + BYSTANDERS)[kinds],
        edge_index=torch.tensor(edges).t().contiguous(),
        y=torch.tensor([family]),
    )


def _bond(a: int, b: int, family: int) -> bool:
    return (a == b, a ^ b == 1, a // 2 == b // 2, a // 2 != b // 2)[family]


def _rewire(graph: networkx.Graph, kinds: list[int], family: int, rng: random.Random) -> None:
    edges = sorted(graph.edges())
    follows = [[_bond(a, b, family) for b in range(KINDS)] for a in range(KINDS)]
    score = sum(follows[kinds[a]][kinds[b]] for a, b in edges)
    for _ in range(P["tries"] * len(edges)):
        if score >= P["share"] * len(edges):
            break
        i, j = rng.randrange(len(edges)), rng.randrange(len(edges))
        (a, b), (c, d) = edges[i], edges[j]
        if rng.random() < 0.5:
            c, d = d, c
        if len({a, b, c, d}) < 4 or graph.has_edge(a, d) or graph.has_edge(c, b):
            continue
        gain = (
            follows[kinds[a]][kinds[d]]
            + follows[kinds[c]][kinds[b]]
            - follows[kinds[a]][kinds[b]]
            - follows[kinds[c]][kinds[d]]
        )
        if gain >= 0:
            graph.remove_edges_from([(a, b), (c, d)])
            graph.add_edges_from([(a, d), (c, b)])
            edges[i], edges[j] = (a, d), (c, b)
            score += gain
