"""The palette is distinct for colour-blind readers; figures do not depend on matplotlib's settings."""

import itertools

import matplotlib
import numpy as np

from graphcl.report.curves import curves
from graphcl.report.embedding_map import CLASSES, class_style
from graphcl.report.style import COLOURS, GRID, ON_DARK, PAPER
from graphcl.report.svg import inline, to_svg

# Machado, Oliveira and Fernandes, "A Physiologically-based Model for Simulation of Color Vision Deficiency", 2009,
# severity 1, on linear RGB.
SIGHT = {
    "usual": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
}
XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def linear(colour):
    channels = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def lab(rgb):
    xyz = XYZ @ np.clip(rgb, 0, 1) / XYZ.sum(axis=1)
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def nearest(colours, sight):
    """Return the smallest CIELAB distance between two of `colours`, as seen with the colour vision `sight`."""
    seen = [lab(np.asarray(SIGHT[sight]) @ linear(colour)) for colour in colours]
    return min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2))


def test_the_colours_are_distinct():
    for sight in SIGHT:
        assert nearest([*COLOURS, PAPER], sight) > 13, sight  # 2 is barely visible
        assert nearest([ON_DARK[each] for each in (*COLOURS, PAPER)], sight) > 13, sight


def test_every_class_has_its_own_colour_and_marker():
    looks = [class_style(number) for number in range(CLASSES)]
    assert len(set(looks)) == CLASSES == 35
    assert all(a[0] != b[0] and a[1] != b[1] for a, b in itertools.pairwise(looks))


def test_the_users_settings_are_neither_used_nor_changed():
    plain = to_svg(curves("loss", {0: [3.0, 2.0, 1.0]}))
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red", "svg.fonttype": "path"}):
        assert to_svg(curves("loss", {0: [3.0, 2.0, 1.0]})) == plain
        assert matplotlib.rcParams["font.size"] == 30


def test_an_inline_figure_uses_the_colours_of_the_page():
    text = inline(curves("loss", {0: [1.0, 2.0]}), "a", "so & so")
    assert 'aria-label="so &amp; so"' in text
    assert "var(--ink)" in text
    assert GRID not in text
    assert "http" not in text
