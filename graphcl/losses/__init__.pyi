"""The losses as type checkers see them; written by tests/typing/test_stub.py from what is registered."""

from typing import Literal

from torch import Tensor

from graphcl.losses.barlow_twins import barlow_twins as barlow_twins
from graphcl.losses.byol import byol as byol
from graphcl.losses.engine.comparison import Pairs as Pairs
from graphcl.losses.module import Loss as Loss
from graphcl.losses.engine.pairs import compare as compare
from graphcl.losses.engine.pairs import explicit as explicit
from graphcl.losses.engine.pairwise import pairwise as pairwise
from graphcl.losses.simsiam import simsiam as simsiam
from graphcl.losses.vicreg import vicreg as vicreg

class _Adnce:
    def __call__(self, z1: Tensor, z2: Tensor, *, temperature: float = 0.2, mu: float = 0.7, sigma: float = 1.0, detach_weight: bool = True, positive_in_denominator: bool = False, negative_reduction: Literal['sum', 'mean'] = 'sum', negatives: Literal['cross', 'all', 'queue'] = 'cross', symmetric: bool = True, queue: Tensor | None = None, ids: Tensor | None = None, queue_ids: Tensor | None = None, weight: Tensor | None = None, engine: Literal['auto', 'dense', 'tiled'] = 'auto', reduction: Literal['mean', 'none'] = 'mean') -> Tensor: ...
    @staticmethod
    def terms(pairs: Pairs, *, temperature: float = 0.2, mu: float = 0.7, sigma: float = 1.0, detach_weight: bool = True, positive_in_denominator: bool = False, negative_reduction: Literal['sum', 'mean'] = 'sum') -> Tensor: ...

class _AdnceAuto:
    def __call__(self, z1: Tensor, z2: Tensor, *, temperature: float = 0.2, rule: Literal['quantile', 'radius', 'tilt'] = 'tilt', peak: float = 0.9, scale: float = 1.0, share: float = 0.5, negatives: Literal['cross', 'all', 'queue'] = 'cross', symmetric: bool = True, queue: Tensor | None = None, ids: Tensor | None = None, queue_ids: Tensor | None = None, weight: Tensor | None = None, engine: Literal['auto', 'dense', 'tiled'] = 'auto', reduction: Literal['mean', 'none'] = 'mean') -> Tensor: ...
    @staticmethod
    def terms(pairs: Pairs, *, temperature: float = 0.2, rule: Literal['quantile', 'radius', 'tilt'] = 'tilt', peak: float = 0.9, scale: float = 1.0, share: float = 0.5) -> Tensor: ...

class _AlphaCl:
    def __call__(self, z1: Tensor, z2: Tensor, *, temperature: float = 0.5, power: Literal[2, 4] = 4, epsilon: float = 0.0, negatives: Literal['cross', 'all', 'queue'] = 'cross', symmetric: bool = True, queue: Tensor | None = None, ids: Tensor | None = None, queue_ids: Tensor | None = None, weight: Tensor | None = None, engine: Literal['auto', 'dense', 'tiled'] = 'auto', reduction: Literal['mean', 'none'] = 'mean') -> Tensor: ...
    @staticmethod
    def terms(pairs: Pairs, *, temperature: float = 0.5, power: Literal[2, 4] = 4, epsilon: float = 0.0) -> Tensor: ...

class _ClDro:
    def __call__(self, z1: Tensor, z2: Tensor, *, temperature: float = 0.2, divergence: Literal['kl', 'chi2', 'alpha'] = 'kl', alpha: float = 1.5, negatives: Literal['cross', 'all', 'queue'] = 'cross', symmetric: bool = True, queue: Tensor | None = None, ids: Tensor | None = None, queue_ids: Tensor | None = None, weight: Tensor | None = None, engine: Literal['auto', 'dense', 'tiled'] = 'auto', reduction: Literal['mean', 'none'] = 'mean') -> Tensor: ...
    @staticmethod
    def terms(pairs: Pairs, *, temperature: float = 0.2, divergence: Literal['kl', 'chi2', 'alpha'] = 'kl', alpha: float = 1.5) -> Tensor: ...

class _Contrastive:
    def __call__(self, z1: Tensor, z2: Tensor, *, margin: float = 1.0, normalize: bool = True, negative_reduction: Literal['mean', 'sum'] = 'mean', negatives: Literal['cross', 'all', 'queue'] = 'cross', symmetric: bool = True, queue: Tensor | None = None, ids: Tensor | None = None, queue_ids: Tensor | None = None, weight: Tensor | None = None, engine: Literal['auto', 'dense', 'tiled'] = 'auto', reduction: Literal['mean', 'none'] = 'mean') -> Tensor: ...
    @staticmethod
    def terms(pairs: Pairs, *, margin: float = 1.0, normalize: bool = True, negative_reduction: Literal['mean', 'sum'] = 'mean') -> Tensor: ...

class _Dcl:
    def __call__(self, z1: Tensor, z2: Tensor, *, temperature: float = 0.2, negatives: Literal['cross', 'all', 'queue'] = 'cross', symmetric: bool = True, queue: Tensor | None = None, ids: Tensor | None = None, queue_ids: Tensor | None = None, weight: Tensor | None = None, engine: Literal['auto', 'dense', 'tiled'] = 'auto', reduction: Literal['mean', 'none'] = 'mean') -> Tensor: ...
    @staticmethod
    def terms(pairs: Pairs, *, temperature: float = 0.2) -> Tensor: ...

class _Dclw:
    def __call__(self, z1: Tensor, z2: Tensor, *, temperature: float = 0.2, sigma: float = 0.5, detach_weight: bool = True, negatives: Literal['cross', 'all', 'queue'] = 'cross', symmetric: bool = True, queue: Tensor | None = None, ids: Tensor | None = None, queue_ids: Tensor | None = None, weight: Tensor | None = None, engine: Literal['auto', 'dense', 'tiled'] = 'auto', reduction: Literal['mean', 'none'] = 'mean') -> Tensor: ...
    @staticmethod
    def terms(pairs: Pairs, *, temperature: float = 0.2, sigma: float = 0.5, detach_weight: bool = True) -> Tensor: ...

class _Debiased:
    def __call__(self, z1: Tensor, z2: Tensor, *, temperature: float = 0.2, tau_plus: float = 0.1, negatives: Literal['cross', 'all', 'queue'] = 'cross', symmetric: bool = True, queue: Tensor | None = None, ids: Tensor | None = None, queue_ids: Tensor | None = None, weight: Tensor | None = None, engine: Literal['auto', 'dense', 'tiled'] = 'auto', reduction: Literal['mean', 'none'] = 'mean') -> Tensor: ...
    @staticmethod
    def terms(pairs: Pairs, *, temperature: float = 0.2, tau_plus: float = 0.1) -> Tensor: ...

class _Flatnce:
    def __call__(self, z1: Tensor, z2: Tensor, *, temperature: float = 0.2, form: Literal['log', 'ratio', 'released'] = 'log', negatives: Literal['cross', 'all', 'queue'] = 'cross', symmetric: bool = True, queue: Tensor | None = None, ids: Tensor | None = None, queue_ids: Tensor | None = None, weight: Tensor | None = None, engine: Literal['auto', 'dense', 'tiled'] = 'auto', reduction: Literal['mean', 'none'] = 'mean') -> Tensor: ...
    @staticmethod
    def terms(pairs: Pairs, *, temperature: float = 0.2, form: Literal['log', 'ratio', 'released'] = 'log') -> Tensor: ...

class _Hcl:
    def __call__(self, z1: Tensor, z2: Tensor, *, temperature: float = 0.2, beta: float = 1.0, tau_plus: float = 0.1, negatives: Literal['cross', 'all', 'queue'] = 'cross', symmetric: bool = True, queue: Tensor | None = None, ids: Tensor | None = None, queue_ids: Tensor | None = None, weight: Tensor | None = None, engine: Literal['auto', 'dense', 'tiled'] = 'auto', reduction: Literal['mean', 'none'] = 'mean') -> Tensor: ...
    @staticmethod
    def terms(pairs: Pairs, *, temperature: float = 0.2, beta: float = 1.0, tau_plus: float = 0.1) -> Tensor: ...

class _Infonce:
    def __call__(self, z1: Tensor, z2: Tensor, *, temperature: float = 0.2, negatives: Literal['cross', 'all', 'queue'] = 'cross', symmetric: bool = True, queue: Tensor | None = None, ids: Tensor | None = None, queue_ids: Tensor | None = None, weight: Tensor | None = None, engine: Literal['auto', 'dense', 'tiled'] = 'auto', reduction: Literal['mean', 'none'] = 'mean') -> Tensor: ...
    @staticmethod
    def terms(pairs: Pairs, *, temperature: float = 0.2) -> Tensor: ...

class _InstanceNce:
    def __call__(self, z1: Tensor, z2: Tensor, *, temperature: float = 0.07, log_z: float | None = None, proximal: float = 0.0, negatives: Literal['cross', 'all', 'queue'] = 'queue', symmetric: bool = False, queue: Tensor | None = None, ids: Tensor | None = None, queue_ids: Tensor | None = None, weight: Tensor | None = None, engine: Literal['auto', 'dense', 'tiled'] = 'auto', reduction: Literal['mean', 'none'] = 'mean') -> Tensor: ...
    @staticmethod
    def terms(pairs: Pairs, *, temperature: float = 0.07, log_z: float | None = None, proximal: float = 0.0) -> Tensor: ...

class _Jsd:
    def __call__(self, z1: Tensor, z2: Tensor, *, negatives: Literal['cross', 'all', 'queue'] = 'cross', symmetric: bool = True, queue: Tensor | None = None, ids: Tensor | None = None, queue_ids: Tensor | None = None, weight: Tensor | None = None, engine: Literal['auto', 'dense', 'tiled'] = 'auto', reduction: Literal['mean', 'none'] = 'mean') -> Tensor: ...
    @staticmethod
    def terms(pairs: Pairs) -> Tensor: ...

class _MeanVariance:
    def __call__(self, z1: Tensor, z2: Tensor, *, temperature: float = 0.2, curvature: float = 1.0, negatives: Literal['cross', 'all', 'queue'] = 'cross', symmetric: bool = True, queue: Tensor | None = None, ids: Tensor | None = None, queue_ids: Tensor | None = None, weight: Tensor | None = None, engine: Literal['auto', 'dense', 'tiled'] = 'auto', reduction: Literal['mean', 'none'] = 'mean') -> Tensor: ...
    @staticmethod
    def terms(pairs: Pairs, *, temperature: float = 0.2, curvature: float = 1.0) -> Tensor: ...

class _Moco:
    def __call__(self, z1: Tensor, z2: Tensor, *, temperature: float = 0.07, negatives: Literal['cross', 'all', 'queue'] = 'queue', symmetric: bool = False, queue: Tensor | None = None, ids: Tensor | None = None, queue_ids: Tensor | None = None, weight: Tensor | None = None, engine: Literal['auto', 'dense', 'tiled'] = 'auto', reduction: Literal['mean', 'none'] = 'mean') -> Tensor: ...
    @staticmethod
    def terms(pairs: Pairs, *, temperature: float = 0.07) -> Tensor: ...

class _NPair:
    def __call__(self, z1: Tensor, z2: Tensor, *, l2_weight: float = 0.002, negatives: Literal['cross', 'all', 'queue'] = 'cross', symmetric: bool = True, queue: Tensor | None = None, ids: Tensor | None = None, queue_ids: Tensor | None = None, weight: Tensor | None = None, engine: Literal['auto', 'dense', 'tiled'] = 'auto', reduction: Literal['mean', 'none'] = 'mean') -> Tensor: ...
    @staticmethod
    def terms(pairs: Pairs, *, l2_weight: float = 0.002) -> Tensor: ...

class _NtXent:
    def __call__(self, z1: Tensor, z2: Tensor, *, temperature: float = 0.2, queue: Tensor | None = None, ids: Tensor | None = None, queue_ids: Tensor | None = None, weight: Tensor | None = None, engine: Literal['auto', 'dense', 'tiled'] = 'auto', reduction: Literal['mean', 'none'] = 'mean') -> Tensor: ...
    @staticmethod
    def terms(pairs: Pairs, *, temperature: float = 0.2) -> Tensor: ...

class _Reweight:
    def __call__(self, z1: Tensor, z2: Tensor, *, temperature: float = 0.2, mu: float = 0.7, sigma: float = 1.0, negatives: Literal['cross', 'all', 'queue'] = 'cross', symmetric: bool = True, queue: Tensor | None = None, ids: Tensor | None = None, queue_ids: Tensor | None = None, weight: Tensor | None = None, engine: Literal['auto', 'dense', 'tiled'] = 'auto', reduction: Literal['mean', 'none'] = 'mean') -> Tensor: ...
    @staticmethod
    def terms(pairs: Pairs, *, temperature: float = 0.2, mu: float = 0.7, sigma: float = 1.0) -> Tensor: ...

class _Rince:
    def __call__(self, z1: Tensor, z2: Tensor, *, temperature: float = 0.2, q: float = 0.5, lam: float = 0.01, negatives: Literal['cross', 'all', 'queue'] = 'cross', symmetric: bool = True, queue: Tensor | None = None, ids: Tensor | None = None, queue_ids: Tensor | None = None, weight: Tensor | None = None, engine: Literal['auto', 'dense', 'tiled'] = 'auto', reduction: Literal['mean', 'none'] = 'mean') -> Tensor: ...
    @staticmethod
    def terms(pairs: Pairs, *, temperature: float = 0.2, q: float = 0.5, lam: float = 0.01) -> Tensor: ...

class _Supcon:
    def __call__(self, z1: Tensor, z2: Tensor, *, labels: Tensor | None = None, temperature: float = 0.2, weight: Tensor | None = None, engine: Literal['auto', 'dense', 'tiled'] = 'auto', reduction: Literal['mean', 'none'] = 'mean') -> Tensor: ...
    @staticmethod
    def terms(pairs: Pairs, *, labels: Tensor | None = None, temperature: float = 0.2) -> Tensor: ...

class _Triplet:
    def __call__(self, z1: Tensor, z2: Tensor, *, margin: float = 0.2, mining: Literal['all', 'semi_hard', 'hard'] = 'all', negatives: Literal['cross', 'all', 'queue'] = 'cross', symmetric: bool = True, queue: Tensor | None = None, ids: Tensor | None = None, queue_ids: Tensor | None = None, weight: Tensor | None = None, engine: Literal['auto', 'dense', 'tiled'] = 'auto', reduction: Literal['mean', 'none'] = 'mean') -> Tensor: ...
    @staticmethod
    def terms(pairs: Pairs, *, margin: float = 0.2, mining: Literal['all', 'semi_hard', 'hard'] = 'all') -> Tensor: ...

class _Tuplet:
    def __call__(self, z1: Tensor, z2: Tensor, *, num_negatives: int | None = None, symmetric: bool = True, weight: Tensor | None = None, engine: Literal['auto', 'dense', 'tiled'] = 'auto', reduction: Literal['mean', 'none'] = 'mean') -> Tensor: ...
    @staticmethod
    def terms(pairs: Pairs, *, num_negatives: int | None = None) -> Tensor: ...

adnce: _Adnce
adnce_auto: _AdnceAuto
alpha_cl: _AlphaCl
cl_dro: _ClDro
contrastive: _Contrastive
dcl: _Dcl
dclw: _Dclw
debiased: _Debiased
flatnce: _Flatnce
hcl: _Hcl
infonce: _Infonce
instance_nce: _InstanceNce
jsd: _Jsd
mean_variance: _MeanVariance
moco: _Moco
n_pair: _NPair
nt_xent: _NtXent
reweight: _Reweight
rince: _Rince
supcon: _Supcon
triplet: _Triplet
tuplet: _Tuplet
