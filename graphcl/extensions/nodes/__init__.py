"""Nodes: contrasting and scoring the nodes of one graph or a few, instead of whole graphs."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator

from graphcl.arguments import Count, Needs, Settings, without_ranges


class NodeSettings(Settings):
    """Settings that a run on nodes adds to those of `graphcl run`."""

    neighbours: Annotated[
        list[Count],
        BeforeValidator(without_ranges),
        Needs("rows nodes", "are sampled around nodes, but method {method} contrasts whole graphs; leave it out"),
    ] = []  # noqa: RUF012, pydantic copies it
    """of nodes: neighbours to sample for a node, as 10,10, one number per layer; default: all"""
