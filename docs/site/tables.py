"""Parts of pages that are generated from the registries, so that a new loss or method needs no edit of a page."""

import re

from graphcl import registry
from graphcl.registry import losses

SHARED = {"negatives", "symmetric", "engine", "reduction"}


def expand(markdown):
    """Return a page with `<!-- losses: table -->` and `<!-- REGISTRY: reference -->` replaced by what they name."""
    markdown = markdown.replace("<!-- losses: table -->", table())
    pattern = r"<!-- (losses|augmentations|encoders|methods): reference -->"
    return re.sub(pattern, lambda match: reference(getattr(registry, match[1])), markdown)


def table():
    """Return a Markdown table of the library's losses."""
    lines = ["*Method* is the choice of `--method auto`; *tiled* losses have the argument `engine`.", ""]
    lines += ["| loss | description | own arguments | queue | weight | tiled | method |", "|---|" + "---|" * 6]
    for name in own_losses():
        arguments, facts = losses.arguments(name), losses.facts(name)
        own = ", ".join(f"`{each}`" for each in arguments.defaults if each not in SHARED) or "-"
        has = ("queue" in arguments.tensors, "weight" in arguments.tensors, "engine" in arguments.defaults)
        marks = ["yes" if each else "-" for each in has]
        summary = losses.summary(name).split(": ", 1)[-1].rstrip(".")
        cells = [f"`{name}`", summary, own, *marks, f"`{facts['method']}`"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def reference(names):
    """Return the directives that document every entry of a registry that is defined in this package."""
    own = [names[name] for name in names if names[name].__module__.startswith("graphcl.")]
    places = sorted({f"{each.__module__}.{each.__name__}" for each in own})
    return "\n\n".join(f"::: {place}" for place in places)


def own_losses():
    """Return the names of the losses in this package, without those of plugins and scripts."""
    return [name for name in losses if losses[name].__module__.startswith("graphcl.losses.")]
