"""Methods: how the two views of a batch become a loss, and what is kept from step to step.

| method        | second side of each pair                        | negatives                 | kept             |
|---------------|-------------------------------------------------|---------------------------|------------------|
| `two_views`   | the same encoder's projection of the other view | of the batch              | nothing          |
| `moco`        | a slow copy's projection of the other view      | of the batch, and a queue | slow copy, queue |
| `memory_bank` | the graph's own entry in a bank                 | drawn from the bank       | an entry a graph |
| `byol`        | a slow copy's projection, to be predicted       | of the batch, if any      | slow copy        |
| `simsiam`     | the same encoder's, to be predicted, a constant | of the batch, if any      | nothing          |
| `joao`        | as `two_views`, the augmentations' odds learned | of the batch              | the odds         |
| `joao_v2`     | the same, through the augmentation's own head   | of the batch              | the odds, heads  |
| `simgrace`    | a perturbed encoder's of the same graph         | of the batch              | nothing          |
| `infograph`   | of each node: the embedding of its own graph    | the batch's other graphs  | nothing          |
| `ad_gcl`      | the same graph, edges weighted by an adversary  | of the batch              | the adversary    |

A method is a module: what it keeps is in its `state_dict`. It is trained by `graphcl.training.loop.train`.
"""

from graphcl.methods.ad_gcl import ADGCL
from graphcl.methods.infograph import InfoGraph
from graphcl.methods.joao import JOAO
from graphcl.methods.joao_v2 import JOAOv2
from graphcl.methods.memory_bank import MemoryBank
from graphcl.methods.method import Method, Outcome
from graphcl.methods.moco import MoCo
from graphcl.methods.queue import KeyQueue
from graphcl.methods.siamese import BYOL, SimSiam
from graphcl.methods.simgrace import SimGRACE
from graphcl.methods.two_views import TwoViews

__all__ = [
    "ADGCL",
    "BYOL",
    "JOAO",
    "InfoGraph",
    "JOAOv2",
    "KeyQueue",
    "MemoryBank",
    "Method",
    "MoCo",
    "Outcome",
    "SimGRACE",
    "SimSiam",
    "TwoViews",
]
