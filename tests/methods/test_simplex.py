"""Test `nearest_distribution` against a quadratic programming solver, and by its optimality condition."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from graphcl.methods.simplex import nearest_distribution

points = st.lists(st.floats(-20, 20), min_size=1, max_size=7)


def project(values):
    return nearest_distribution(torch.tensor(values, dtype=torch.float64))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(-3, 3), min_size=2, max_size=5))
def test_a_quadratic_program_has_the_same_solution(values):
    v = np.array(values)
    found = minimize(
        lambda p: ((p - v) ** 2).sum(),
        np.full(len(v), 1 / len(v)),
        jac=lambda p: 2 * (p - v),
        bounds=[(0, 1)] * len(v),
        constraints={"type": "eq", "fun": lambda p: p.sum() - 1, "jac": lambda p: np.ones(len(v))},
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    np.testing.assert_allclose(project(values).numpy(), found.x, atol=1e-5)


@settings(max_examples=300, deadline=None)
@given(points)
def test_no_vertex_lies_in_the_direction_of_the_point(values):
    """p is the nearest point to v if and only if (v - p) (q - p) <= 0 for all vertices q of the simplex."""
    v, p = torch.tensor(values, dtype=torch.float64), project(values)
    assert (p >= 0).all()
    assert abs(float(p.sum()) - 1) < 1e-12
    assert ((v - p) - ((v - p) * p).sum()).max() < 1e-11


@settings(max_examples=100, deadline=None)
@given(points, st.floats(-1e3, 1e3))
def test_only_differences_matter_and_distributions_stay(values, shift):
    p = project(values)
    torch.testing.assert_close(project([value + shift for value in values]), p, rtol=0, atol=1e-11)
    torch.testing.assert_close(nearest_distribution(p), p, rtol=0, atol=1e-14)


def test_by_hand():
    for values, expected in [
        ([5.0], [1]),
        ([0.3, 0.3, 0.3, 0.3], [0.25] * 4),
        ([2.0, 0.0, 1.0], [1, 0, 0]),
        ([0.7, -0.1, 0.5], [0.6, 0, 0.4]),
        ([1e8, 1e8, 0.0], [0.5, 0.5, 0]),
    ]:
        torch.testing.assert_close(nearest_distribution(torch.tensor(values)), torch.tensor(expected).float())
