"""Training methods, which turn the two views of a batch into a loss and may keep state between steps.

| method        | positive of each anchor                 | negatives                 | state                       |
|---------------|-----------------------------------------|---------------------------|-----------------------------|
| `two_views`   | other view, same encoder                | batch                     | none                        |
| `moco`        | other view, momentum encoder            | batch and queue           | momentum encoder, queue     |
| `memory_bank` | own entry of the graph in a bank        | drawn from the bank       | one entry per graph         |
| `byol`        | other view, momentum encoder, predicted | those of the loss, if any | momentum encoder, predictor |
| `simsiam`     | other view, detached, predicted         | those of the loss, if any | predictor                   |
| `joao`        | as `two_views`                          | batch                     | augmentation probabilities  |
| `joao_v2`     | as `two_views`                          | batch                     | as `joao`, and projectors   |
| `simgrace`    | same graph, perturbed encoder           | batch                     | none                        |
| `infograph`   | a node's own graph (anchors are nodes)  | batch                     | projector for nodes         |
| `ad_gcl`      | same graph, weighted edges              | batch                     | adversary                   |

"predicted" means that a predictor maps the anchor to the positive; "batch" means the other graphs of the batch. A
method is a PyTorch module whose `state_dict` holds its state.
"""

from graphcl.methods.ad_gcl import ADGCL
from graphcl.methods.infograph import InfoGraph
from graphcl.methods.joao import JOAO, JOAOv2
from graphcl.methods.memory_bank import MemoryBank
from graphcl.methods.method import Method, Outcome
from graphcl.methods.moco import KeyQueue, MoCo
from graphcl.methods.siamese import BYOL, SimSiam
from graphcl.methods.simgrace import SimGRACE
from graphcl.methods.two_views import TwoViews

__all__ = ["ADGCL", "BYOL", "JOAO", "InfoGraph", "JOAOv2", "KeyQueue", "MemoryBank", "Method", "MoCo"]
__all__ += ["Outcome", "SimGRACE", "SimSiam", "TwoViews"]
