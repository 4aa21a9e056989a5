"""Test the estimates of mutual information on Gaussians: python benchmarks/studies/mutual_information.py

X and Y are Gaussian vectors whose columns have the correlation rho in pairs, so the information, the best critic and
the other divergences are known. Page: docs/studies/mutual_information.md. Five minutes on a CPU.
"""

import argparse
import math
from pathlib import Path

import numpy as np
import torch
from scipy.special import roots_genlaguerre
from study import DOCS, markdown, write_tables

from graphcl.training.mutual_information import chi_square, donsker_varadhan, infonce_bound, jensen_shannon, nwj

NATS = (2, 4, 6, 8, 10)
COLUMNS = 20
ROWS = (128, 1024)
SHIFTS = (-2, 0, 2, 5)
SHIFTED = 4
"""Information in nats for the table of shifted critics."""
ESTIMATES = {
    "InfoNCE": infonce_bound,
    "Donsker-Varadhan": donsker_varadhan,
    "NWJ": lambda scores: nwj(scores + 1),
    "Jensen-Shannon": jensen_shannon,
    "chi-square": lambda scores: chi_square(2 * scores.exp()),
    "chi-square of log u": chi_square,
}
"""Name -> estimate from the log density ratios, with its best critic; of chi-square also with that of the others."""


def squared_correlation(nats):
    """Return rho^2 for the information I = -d/2 log(1 - rho^2) of d columns."""
    return 1 - math.exp(-2 * nats / COLUMNS)


def log_ratios(nats, rows, generator):
    """Return the logs `[rows, rows]` of the density ratio u = dP / dQ of each x with each y of a batch, in float64."""
    square = squared_correlation(nats)
    rho = math.sqrt(square)
    x, noise = torch.randn(2, rows, COLUMNS, generator=generator, dtype=torch.float64)
    y = rho * x + math.sqrt(1 - square) * noise
    lengths = x.square().sum(dim=1)[:, None] + y.square().sum(dim=1)
    return nats + (rho * x @ y.T - square * lengths / 2) / (1 - square)


def nwj_deviation(nats, rows):
    """Return the standard deviation of NWJ over batches, in theory.

    The mean of u over the pairs of different rows has the variance
    ((1 - rho^2)^-d - 1 + (1 - rho^4)^-d - 1) / (N (N - 1)); the mean of log u over the positives has d rho^2 / N, and
    both are uncorrelated.
    """
    square = squared_correlation(nats)
    ratio = (1 - square) ** -COLUMNS + (1 - square**2) ** -COLUMNS - 2
    return math.sqrt(COLUMNS * square / rows + ratio / (rows * (rows - 1)))


def true_jensen_shannon(nats):
    """Return the Jensen-Shannon divergence of P and Q by quadrature.

    With independent chi-square variables A and B of d degrees, log u is distributed as I + rho (A - B) / 2 under P, and
    as I + rho (A / (1 + rho) - B / (1 - rho)) / 2 under Q.
    """
    rho = math.sqrt(squared_correlation(nats))
    nodes, weights = roots_genlaguerre(100, COLUMNS / 2 - 1)
    a, b = 2 * nodes[:, None], 2 * nodes
    weight = np.outer(weights, weights) / weights.sum() ** 2
    joint = nats + rho * (a - b) / 2
    product = nats + rho * (a / (1 + rho) - b / (1 - rho)) / 2
    return math.log(2) - (weight * (np.logaddexp(0, -joint) + np.logaddexp(0, product))).sum() / 2


def true_chi_square(nats):
    """Return the chi-square divergence (1 - rho^2)^-d - 1 of P from Q."""
    return math.expm1(2 * nats)


def estimated(nats, rows, batches, estimates):
    """Return the estimates of each batch by name, arrays `[batches]`."""
    generator = torch.Generator().manual_seed(rows + nats)
    values = {name: [] for name in estimates}
    for _ in range(batches):
        scores = log_ratios(nats, rows, generator)
        for name, estimate in estimates.items():
            values[name].append(estimate(scores).item())
    return {name: np.array(of_batches) for name, of_batches in values.items()}


def shifted(rows, batches):
    """Return a table of the estimates with a constant added to the best critic of NWJ."""
    estimates = {"InfoNCE": infonce_bound, "Donsker-Varadhan": donsker_varadhan, "NWJ": nwj}
    lines = []
    for shift in SHIFTS:
        of_shift = {
            name: lambda scores, estimate=estimate, shift=shift: estimate(scores + 1 + shift)
            for name, estimate in estimates.items()
        }
        values = estimated(SHIFTED, rows, batches, of_shift)
        lines.append([f"{shift:+d}" if shift else "0", *map(text, values.values())])
    return markdown(["constant", *estimates], lines)


def text(values):
    """Return mean ± standard deviation over batches."""
    return f"{number(values.mean())} ± {number(values.std(ddof=1))}"


def number(value):
    """Return a value with two decimals, or two digits and the exponent if it is large."""
    return f"{value:.2f}" if abs(value) < 1e4 else f"{value:.1e}"


def tables(batches):
    """Return the tables of the page: estimates of the information, of the other divergences, of shifted critics."""
    information, divergences = [], []
    for rows in ROWS:
        for nats in NATS:
            values = estimated(nats, rows, batches, ESTIMATES)
            cells = [text(values[name]) for name in ("InfoNCE", "Donsker-Varadhan", "NWJ")]
            information.append([rows, nats, f"{math.log(rows):.2f}", *cells, number(nwj_deviation(nats, rows))])
            true = number(true_jensen_shannon(nats)), number(true_chi_square(nats))
            cells = [text(values[name]) for name in ("Jensen-Shannon", "chi-square", "chi-square of log u")]
            divergences.append([rows, nats, true[0], cells[0], true[1], *cells[1:]])
    head = ["rows N", "information", "log N", "InfoNCE", "Donsker-Varadhan", "NWJ", "deviation of NWJ in theory"]
    others = [
        "rows N",
        "information",
        "Jensen-Shannon",
        "estimate",
        "chi-square",
        "estimate, critic 2u",
        "critic log u",
    ]
    return {
        "information": markdown(head, information),
        "divergences": markdown(others, divergences),
        "shifted": shifted(ROWS[-1], batches),
    }


def main():
    parser = argparse.ArgumentParser(prog="python benchmarks/studies/mutual_information.py")
    parser.add_argument("--batches", type=int, default=200)
    parser.add_argument("--docs", type=Path, default=DOCS, help="folder of the page")
    given = parser.parse_args()
    write_tables(given.docs / "mutual_information.md", **tables(given.batches))


if __name__ == "__main__":
    main()
