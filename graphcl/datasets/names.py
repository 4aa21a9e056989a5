"""Known names of data sets, for the help text and for messages about misspelt names."""

from __future__ import annotations

from collections.abc import Iterable

from graphcl.arguments import did_you_mean, resembling
from graphcl.errors import one_line
from graphcl.registry import datasets, sources

SYNTHETIC = "synthetic"
"""Name of the generated data set, which needs no file and no network."""

# fmt: off
TU_NAMES = (
    "AIDS", "BZR", "BZR_MD", "COX2", "COX2_MD", "DHFR", "DHFR_MD", "ER_MD", "FRANKENSTEIN", "MCF-7", "MCF-7H",
    "MOLT-4", "MOLT-4H", "Mutagenicity", "MUTAG", "NCI1", "NCI109", "NCI-H23", "NCI-H23H", "OVCAR-8", "OVCAR-8H",
    "P388", "P388H", "PC-3", "PC-3H", "PTC_FM", "PTC_FR", "PTC_MM", "PTC_MR", "SF-295", "SF-295H", "SN12C", "SN12CH",
    "SW-620", "SW-620H", "UACC257", "UACC257H", "Yeast", "YeastH", "DD", "ENZYMES", "KKI", "OHSU", "Peking_1",
    "PROTEINS", "PROTEINS_full", "COIL-DEL", "COIL-RAG", "Cuneiform", "Fingerprint", "FIRSTMM_DB", "Letter-high",
    "Letter-low", "Letter-med", "MSRC_9", "MSRC_21", "MSRC_21C", "COLLAB", "DBLP_v1", "deezer_ego_nets",
    "github_stargazers", "IMDB-BINARY", "IMDB-MULTI", "REDDIT-BINARY", "REDDIT-MULTI-5K", "REDDIT-MULTI-12K",
    "reddit_threads", "twitch_egos", "TWITTER-Real-Graph-Partial", "COLORS-3", "SYNTHETIC", "SYNTHETICnew", "Synthie",
    "TRIANGLES",
)
"""Classification sets of the TU collection (small molecules, bioinformatics, vision, social networks, synthetic)."""
# fmt: on

datasets.reserve(SYNTHETIC, *TU_NAMES)


def dataset_names() -> list[str]:
    """Return the names of the generated sets, known TU sets, those of other kinds of sources, and registered sets.

    Other TU sets can be loaded from a mirror.

    >>> dataset_names()[0], "PROTEINS" in dataset_names()
    ('synthetic', True)
    """
    named = [name for kind in sources.values() for name in getattr(kind, "names", ())]
    return [*dict.fromkeys([SYNTHETIC, *TU_NAMES, *named, *datasets])]


def suggestion(name: str, valid: Iterable[str]) -> str:
    """Return "did you mean A or B? " if some valid names resemble `name`, else an empty string."""
    return did_you_mean(resembling(name, valid, 0.6))


def listing(names: Iterable[str], limit: int = 8) -> str:
    """Return the first `limit` names in alphabetical order, separated by commas, and the number of further names."""
    names = [one_line(name, 100) for name in sorted(names)]
    more = f", ... ({len(names) - limit} more)" if len(names) > limit else ""
    return (", ".join(names[:limit]) or "nothing") + more
