"""Classes look different; figures do not depend on matplotlib's settings."""

import itertools

import matplotlib

from graphcl.report.figures import CLASSES, class_style, curves
from graphcl.report.style import inline, to_svg


def test_every_class_has_its_own_colour_and_marker():
    looks = [class_style(number) for number in range(CLASSES)]
    assert len(set(looks)) == CLASSES == 35
    assert all(a[0] != b[0] and a[1] != b[1] for a, b in itertools.pairwise(looks))


def test_the_users_settings_are_neither_used_nor_changed():
    plain = to_svg(curves("loss", {0: [3.0, 2.0, 1.0]}))
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red", "svg.fonttype": "path"}):
        assert to_svg(curves("loss", {0: [3.0, 2.0, 1.0]})) == plain
        assert matplotlib.rcParams["font.size"] == 30


def test_an_inline_figure_is_labelled_and_loads_nothing():
    text = inline(curves("loss", {0: [1.0, 2.0]}), "a", "so & so")
    assert 'aria-label="so &amp; so"' in text
    assert "var(--font)" in text
    assert "http" not in text
