"""Random variants of hostile and unusual inputs. A kind draws a call, and the result from an independent reference.

A kind is a function `draw(rng, folder)` that returns `(call, expected)`; the files of the variant are in `folder`.
"""

from importlib import import_module


class Refused(str):
    """A part of the message of the `InputError` that the call raises."""


KINDS = {}


def kind(draw):
    """Add a kind of variants."""
    KINDS[draw.__name__] = draw
    return draw


def number(rng):
    """Return a number that every floating type of eight bits or more holds exactly."""
    return rng.choice([-1, 1]) * rng.choice([0.5, 1, 1.5, 2, 3, 4, 6, 8])


def text(rng, length=8):
    """Return a string of letters of several scripts, blanks, punctuation and control characters."""
    return "".join(rng.choice("abZ0 _-.,;:/\\|*`<>&\"'=+@#%$[]{}()éß語🜁\t\n\0\x1b\u202e") for _ in range(length))


def surrogate(rng):
    """Return a string with a lone surrogate."""
    return rng.choice(["", "a", "é"]) + chr(rng.randint(0xD800, 0xDFFF)) + rng.choice(["", "b"])


for part in ("objects", "files", "calls"):
    import_module(f"tests.variants.{part}")
