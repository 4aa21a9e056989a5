"""Contrastive losses: one file per paper, each a function of two views' projections.

`Loss("adnce", mu=0.5)` holds a loss by name with its arguments; `graphcl.registry.losses` knows every name.
"""

from graphcl.losses.adnce import adnce
from graphcl.losses.adnce_auto import adnce_auto
from graphcl.losses.alpha_cl import alpha_cl
from graphcl.losses.barlow_twins import barlow_twins
from graphcl.losses.byol import byol
from graphcl.losses.cl_dro import cl_dro
from graphcl.losses.contrastive import contrastive
from graphcl.losses.dcl import dcl
from graphcl.losses.dclw import dclw
from graphcl.losses.debiased import debiased
from graphcl.losses.engine.comparison import Pairs
from graphcl.losses.engine.pairs import compare, explicit
from graphcl.losses.engine.pairwise import pairwise
from graphcl.losses.flatnce import flatnce
from graphcl.losses.hcl import hcl
from graphcl.losses.infonce import infonce
from graphcl.losses.instance_nce import instance_nce
from graphcl.losses.jsd import jsd
from graphcl.losses.mean_variance import mean_variance
from graphcl.losses.moco import moco
from graphcl.losses.module import Loss
from graphcl.losses.n_pair import n_pair
from graphcl.losses.nt_xent import nt_xent
from graphcl.losses.reweight import reweight
from graphcl.losses.rince import rince
from graphcl.losses.simsiam import simsiam
from graphcl.losses.supcon import supcon
from graphcl.losses.triplet import triplet
from graphcl.losses.tuplet import tuplet
from graphcl.losses.vicreg import vicreg

__all__ = [
    "Loss",
    "Pairs",
    "adnce",
    "adnce_auto",
    "alpha_cl",
    "barlow_twins",
    "byol",
    "cl_dro",
    "compare",
    "contrastive",
    "dcl",
    "dclw",
    "debiased",
    "explicit",
    "flatnce",
    "hcl",
    "infonce",
    "instance_nce",
    "jsd",
    "mean_variance",
    "moco",
    "n_pair",
    "nt_xent",
    "pairwise",
    "reweight",
    "rince",
    "simsiam",
    "supcon",
    "triplet",
    "tuplet",
    "vicreg",
]
