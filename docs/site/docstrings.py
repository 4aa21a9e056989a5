"""Griffe extension for the reference pages: this library's docstring style, and the signatures of losses.

mkdocstrings reads the source without running it. A loss made by `pairwise` gets its arguments and documentation at
import time, so they are taken from the imported loss.
"""

import importlib
import inspect
import re

import griffe


class Docstrings(griffe.Extension):
    """Adapt docstrings and signatures, see the module docstring."""

    def on_object(self, *, obj, **_):
        if obj.is_function and "graphcl.losses.loss.pairwise" in [each.callable_path for each in obj.decorators]:
            loss = getattr(importlib.import_module(obj.module.path), obj.name)
            obj.docstring.value = inspect.getdoc(loss)
            written = {each.name: each for each in obj.parameters}
            obj.parameters = griffe.Parameters(
                *(written.get(name, _parameter(each)) for name, each in inspect.signature(loss).parameters.items())
            )
        if obj.docstring and obj.docstring.value.startswith("See `"):
            obj.docstring = None  # documented at the base class
        if obj.docstring:
            text = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.M)
            obj.docstring.value = re.sub(r"^Differs:", "**Differs:**", text, flags=re.M)


def _parameter(given: inspect.Parameter) -> griffe.Parameter:
    kind = given.annotation
    annotation = kind.__name__ if isinstance(kind, type) else re.sub(r"\b(typing|torch)\.", "", str(kind))
    default = None if given.default is given.empty else repr(given.default)
    kinds = {
        given.KEYWORD_ONLY: griffe.ParameterKind.keyword_only,
        given.POSITIONAL_OR_KEYWORD: griffe.ParameterKind.positional_or_keyword,
    }
    return griffe.Parameter(given.name, annotation=annotation, kind=kinds[given.kind], default=default)
