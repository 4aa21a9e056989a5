r"""Turn the LaTeX formulas of docstrings into plain text for a terminal, such as `e^(s_ij / τ)`."""

from __future__ import annotations

import re

_SIGNS = {
    "alpha": "α", "beta": "β", "gamma": "γ", "epsilon": "ε", "eta": "η", "theta": "θ", "lambda": "λ", "mu": "μ",
    "nu": "ν", "xi": "ξ", "pi": "π", "rho": "ρ", "sigma": "σ", "tau": "τ", "phi": "φ", "psi": "ψ", "ell": "ℓ",
    "sum": "Σ", "cdot": "·", "circ": "∘", "in": "∈", "ne": "≠", "neq": "≠", "sim": "~", "leftarrow": "←", "to": "→",
    "rVert": "‖", "Vert": "‖", "top": "T", "dots": "...", "quad": "\n", "qquad": "\n", ",": " ",
    ";": " ", "big": "", "Big": "", "mathrm": "", "operatorname": "", "text": "",
}  # fmt: skip
"""Command -> its text; other commands, such as `\\log`, keep their name. Arguments of `mathrm` and the like follow."""
_TOKEN = re.compile(r"\\[A-Za-z]+|\\.|\s+|.", re.DOTALL)


def plain_formulas(text: str) -> str:
    """Return `text` with `$$...$$` as indented lines, one for each equation, and `$...$` as plain text.

    Example:
        >>> print(plain_formulas(r"$$L = -\\log \\frac{e^{s_i^+}}{\\sum_j e^{s_{ij}}}, \\quad s = c / \\tau$$"))
            L = -log (e^(s_i^+) / (Σ_j e^(s_ij)))
            s = c / τ
    """

    def block(match: re.Match[str]) -> str:
        return "\n".join(f"    {line}" for line in _plain(match[1]).split("\n"))

    text = re.sub(r"\$\$(.*?)\$\$", block, text, flags=re.DOTALL)
    return re.sub(r"\$([^$\n]+)\$", lambda match: _plain(match[1]).replace("\n", " "), text)


def _plain(formula: str) -> str:
    """Return a formula as plain text; `\\quad` begins a new line."""
    text = _sequence([token if not token.isspace() else " " for token in _TOKEN.findall(formula)][::-1])
    text = re.sub(r" +", " ", text)
    text = re.sub(r"(?<=[(\[]) | (?=[)\]])", "", text)
    return "\n".join(_without_brackets(line.strip().rstrip(",")) for line in text.split("\n"))


def _sequence(tokens: list[str]) -> str:
    """Convert and remove tokens, which are in reverse order, up to a closing brace."""
    text = ""
    while tokens and tokens[-1] != "}":
        if tokens[-1] == r"\rVert":
            text = text.rstrip()
        text += _element(tokens)
    return text


def _element(tokens: list[str]) -> str:
    """Convert and remove the next element: a group, a command with its arguments, an index or a sign."""
    token = tokens.pop()
    if token == "{":
        inner = _sequence(tokens)
        tokens.pop()
        return inner
    if token in ("_", "^"):
        inner = _argument(tokens)
        if token == "^" and inner == "2":
            return "²"
        simple = re.fullmatch(r"[^\W_]+|[+*]|\([^()]*\)", inner)
        return token + (inner if simple else f"({inner})" if token == "^" else f"{{{inner}}}")
    if not token.startswith("\\"):
        return token
    name = token[1:]
    if name == "lVert":
        return f"‖{_argument(tokens)}"
    if name in ("frac", "tfrac"):
        above, below = _argument(tokens), _argument(tokens)
        if re.fullmatch(r"\w+", above) and re.fullmatch(r"\w", below):
            return f"{above}/{below}"
        above, below = (f"({each})" if " " in _outside(each) else each for each in (above, below))
        return f"({above} / {below})"
    if name == "sqrt":
        return f"√({_argument(tokens)})"
    if name == "tilde":
        return f"{_argument(tokens)}\u0303"
    return _SIGNS.get(name, name)


def _argument(tokens: list[str]) -> str:
    """Convert and remove the next element that is not a blank."""
    while tokens[-1] == " ":
        tokens.pop()
    return _element(tokens)


def _outside(text: str) -> str:
    """Return `text` without what its brackets hold."""
    while text != (text := re.sub(r"\([^()]*\)|\{[^{}]*\}", "", text)):
        pass
    return text


def _without_brackets(line: str) -> str:
    """Return an equation without brackets around its whole right side."""
    left, equals, right = line.rpartition(" = ")
    whole = right.startswith("(") and right.endswith(")") and _outside(right) == ""
    return f"{left}{equals}{right[1:-1]}" if whole and _outside(right[1:-1]).count("(") == 0 else line
