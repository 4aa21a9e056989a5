"""Linear loss with the weights of ADNCE and no logsumexp (Wu et al. 2023)."""

from torch import Tensor

from graphcl.arguments import Finite, Temperature, Width
from graphcl.losses.loss import Pairs, gaussian, pairwise


@pairwise("reweight")
def reweight(pairs: Pairs, *, temperature: Temperature = 0.2, mu: Finite = 0.7, sigma: Width = 1.0) -> Tensor:
    r"""Compute the reweighted linear loss: weighted mean of the negatives, with the weights of ADNCE and no logsumexp.

    $$L_i = -s_i^+ + \frac1M \sum_j w_{ij} s_{ij}, \qquad
    w_{ij} = \frac{g(c_{ij})}{\frac1M \sum_k g(c_{ik})}, \quad
    g(c) = e^{-(c - \mu)^2 / 2 \sigma^2}, \; s = c / \tau$$

    Here c_ij is the cosine of anchor i and its negative j, c_i^+ the cosine of anchor i and its positive, M the number
    of negatives and tau the temperature. The weights w are detached. A comparison with `adnce` shows the effect of
    the logsumexp.

    Differs: the released code applies the Gaussian to c / tau instead of c. To reproduce its mu and sigma, pass tau mu
    and tau sigma.

    Args:
        temperature: divisor of the cosines, >= 1e-6 (tau); only scales this loss.
        mu: cosine at which the weight is largest, finite; may exceed 1.
        sigma: width of the Gaussian, in units of the cosine, > 0; `inf` gives every negative weight 1.

    Example:
        >>> import torch
        >>> z = torch.ones(5, 3)
        >>> round(float(reweight(z, z)), 3)  # all cosines equal
        0.0

    References:
        Wu et al., "Understanding Contrastive Learning via Distributionally Robust Optimization", NeurIPS 2023 (arXiv
        2310.11048).
    """
    expected, _ = pairs.expectation(gaussian(mu, sigma))
    return (expected - pairs.positive) / temperature
