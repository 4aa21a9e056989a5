"""Let CUDA generators draw the numbers of CPU generators, to compare a run on a device with one on the CPU."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

_DRAWN = 2**62
"""Seeds from here on name states in which a generator has drawn; no test uses them."""


class CpuDraws(TorchDispatchMode):
    """Run random operations on CUDA tensors on the CPU, and copy the result to the device.

    A CUDA generator that was seeded and has not drawn yet draws as a CPU generator with the same seed. After each draw,
    it gets a new seed that names the state of the CPU generator. Hence the states of CUDA generators can be saved and
    restored as usual. The default CUDA generator draws for operations without a generator.
    """

    def __init__(self):
        super().__init__()
        self.states = {}

    _should_skip_dynamo = classmethod(lambda cls: False)  # as in fake.py

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **kwargs)
        values = tree_leaves((args, kwargs))
        generators = [each for each in values if isinstance(each, torch.Generator)]
        places = [kwargs.get("device"), *(each.device for each in values if isinstance(each, torch.Tensor))]
        on_cuda = any(place is not None and torch.device(place).type == "cuda" for place in places)
        if not on_cuda:
            return func(*args, **kwargs)
        generator = generators[0] if generators else torch.cuda.default_generators[0]
        out = self._draw(generator, func, *tree_map(_to_cpu, (args, kwargs)))
        if func._schema.is_mutable:  # such as `uniform_`
            return args[0].copy_(out)
        return tree_map(lambda value: value.to("cuda") if isinstance(value, torch.Tensor) else value, out)

    def _draw(self, generator, func, args, kwargs):
        """Return the result of `func` on the CPU, drawn from the state that `generator` stands for."""
        default, seed = torch.default_generator, generator.initial_seed()
        before = default.get_state()
        try:
            if seed < _DRAWN:
                default.manual_seed(seed)
            else:
                default.set_state(self.states[seed])
            out = func(*args, **kwargs)
            seed = _DRAWN + len(self.states)
            self.states[seed] = default.get_state()
        finally:
            default.set_state(before)
        generator.manual_seed(seed)
        return out


def _to_cpu(value):
    if isinstance(value, torch.Generator):
        return torch.default_generator
    if isinstance(value, torch.device):
        return torch.device("cpu")
    return value.cpu() if isinstance(value, torch.Tensor) else value
