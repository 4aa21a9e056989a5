"""Graph contrastive learning for PyTorch Geometric.

Train an encoder to agree on two augmented views of every graph, and embed the graphs with it:

>>> import torch
>>> from graphcl import GIN, ContrastiveModel, Loss, NodeDrop, ResidentLoader, Subgraph, TwoViews
>>> from graphcl import embed, load_dataset, train
>>> dataset = load_dataset("synthetic")
>>> loader = ResidentLoader(dataset, batch_size=128, shuffle=True, generator=torch.Generator().manual_seed(0))
>>> model = ContrastiveModel(GIN(dataset.num_features))
>>> history = train(TwoViews(model, Loss("adnce")), loader, NodeDrop(0.2), Subgraph(0.2), epochs=1)
>>> h, y = embed(model, ResidentLoader(dataset, batch_size=1024))
>>> h.shape
torch.Size([600, 96])
"""

from typing import TYPE_CHECKING, Any

from graphcl.errors import load_module as _load
from graphcl.version import __version__ as __version__

if TYPE_CHECKING:
    from graphcl.api import *  # noqa: F403
    from graphcl.api import __all__ as __all__
else:

    def __getattr__(name: str) -> Any:
        """Return a public name; import torch only here, so that `graphcl --help` is fast."""
        if name.startswith("_") and name != "__all__":
            raise AttributeError(f"module 'graphcl' has no attribute {name!r}")
        api = _load("graphcl.api")
        return globals().get(name) or getattr(api, name)  # `api` has imported packages such as `graphcl.evaluate`

    def __dir__() -> list[str]:
        return _load("graphcl.api").__all__
