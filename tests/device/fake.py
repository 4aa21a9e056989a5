"""Run CUDA paths without a GPU: tensors that say they are on cuda:0 and compute on the CPU.

A `FakeCuda` is a wrapper tensor that holds a CPU tensor. A dispatch mode runs every aten operation on the held tensors,
so values, autograd, autocast and fused optimisers are real, and equal those of the CPU. As on CUDA, a generator draws
other numbers than a CPU generator with the same seed, and these raise an error: operations on tensors of both devices,
generators of the wrong device, `.numpy()`, operations without a CUDA kernel, integer matrix products, and in
deterministic mode operations without a deterministic kernel.

`LOG.waits` counts by place when the host waits for the device: `item`, `nonzero`, boolean indices, `repeat_interleave`
without `output_size`, `bincount`, blocking copies, and pageable copies of more than 64 KB, which the driver stages.

A captured graph (`torch.cuda.graph`) records operations without lasting effect. A replay repeats them on the recorded
tensors and writes each result where the first one was. A wait while recording raises an error.

Not seen: rounding, speed and memory of CUDA's kernels, device-side asserts, the order of streams, Triton, NCCL.

Load this plugin before torch: `pytest -p tests.device.fake tests/device/check_device.py`. It registers C++ hooks, which
torch reads while it is imported.
"""

import contextlib
import ctypes
import functools
import importlib.util
import os
import subprocess
import sys
import tempfile
import threading
import weakref
from collections import Counter
from pathlib import Path

_HOOKS = r"""
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
using namespace c10;
struct Guard final : impl::NoOpDeviceGuardImpl<DeviceType::CUDA> {
  Device exchangeDevice(Device) const override { return Device(DeviceType::CUDA, 0); }
  Device getDevice() const override { return Device(DeviceType::CUDA, 0); }
  Stream getStream(Device) const noexcept override { return Stream(Stream::DEFAULT, Device(DeviceType::CUDA, 0)); }
  Stream getNewStream(Device, int) const override { return getStream(getDevice()); }
  Stream exchangeStream(Stream) const noexcept override { return getStream(getDevice()); }
};
struct CUDAHooks final : at::CUDAHooksInterface {
  explicit CUDAHooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return 1; }
  DeviceIndex getCurrentDevice() const override { return 0; }
  std::string showConfig() const override { return ""; }
};
namespace at { REGISTER_CUDA_HOOKS(CUDAHooks) }
C10_REGISTER_GUARD_IMPL(CUDA, Guard)
"""


def _register_hooks():
    """Compile and load the C++ above: autograd needs a device guard and an accelerator named CUDA."""
    torch_folder = Path(importlib.util.find_spec("torch").origin).parent
    version = (torch_folder / "version.py").stat().st_mtime_ns
    library = Path(tempfile.gettempdir()) / f"fake_cuda_{os.getuid()}_{version}" / "hooks.so"
    if not library.exists():
        library.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=library.parent) as folder:
            source, built = Path(folder, "hooks.cpp"), Path(folder, "hooks.so")
            source.write_text(_HOOKS)
            link = [f"-L{torch_folder}/lib", "-lc10", "-ltorch_cpu"]
            words = ["-std=c++20", "-shared", "-fPIC", f"-I{torch_folder}/include", str(source), "-o", str(built)]
            subprocess.run([os.environ.get("CXX", "g++"), *words, *link], check=True)
            built.replace(library)
    for name in ("libc10.so", "libtorch_cpu.so"):
        ctypes.CDLL(str(torch_folder / "lib" / name), mode=ctypes.RTLD_GLOBAL)
    ctypes.CDLL(str(library))


if "torch" in sys.modules:
    raise ImportError("load tests.device.fake before torch: pytest -p tests.device.fake")
_register_hooks()

import torch  # noqa: E402
import torch._dynamo  # noqa: E402  (it lists the functions of torch.cuda, so import it before they are replaced)
import torchgen  # noqa: E402
import yaml  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils.weak import WeakIdKeyDictionary  # noqa: E402

DEVICE, CPU = torch.device("cuda:0"), torch.device("cpu")
_WAITS = {
    "_local_scalar_dense", "nonzero", "_unique", "_unique2", "unique_dim", "unique_consecutive", "masked_select",
    "equal", "bincount", "histc", "_linalg_svd", "_linalg_eigh", "linalg_eig", "linalg_lstsq", "_linalg_check_errors",
}  # fmt: skip
_PRODUCTS = {"mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot", "addbmm", "addr"}
_TAKE_SCALARS = {
    "where", "masked_fill", "masked_fill_", "fill", "fill_", "index_fill", "index_fill_", "clamp", "isin", "lerp",
    "lerp_", "pow", "linspace", "_foreach_mul", "_foreach_mul_", "_foreach_div", "_foreach_div_", "_foreach_add_",
    "_fused_adam_", "_fused_adamw_", "_fused_sgd_",
}  # fmt: skip
"""Operations that take a 0-dim CPU tensor beside CUDA tensors, as all pointwise operations do."""
_INDEXED = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index_put"}
_MASKS = (torch.bool, torch.uint8)
_PINNED = WeakIdKeyDictionary()
_Generator = torch.Generator
_GENERATORS: weakref.WeakValueDictionary = weakref.WeakValueDictionary()
"""Address of a generator -> the `FakeGenerator`; operations receive another Python object for the same generator."""


class Log:
    """Waits of the host by (place, kind), and what the device would do; `memory` is what is free.

    `operations` are dispatched, `launches` of them launch a kernel, and `bytes` are those of their tensors.
    """

    def __init__(self):
        self.memory = 8 << 30
        self.reset()

        self.tape = None  # of the graph that is being captured
        self.can_draw = True  # not after a failed capture, until another one ends

    def reset(self):
        self.waits, self.operations, self.launches, self.bytes = Counter(), 0, 0, 0

    def wait(self, kind):
        if self.tape is not None:
            raise RuntimeError(f"operation not permitted when stream is capturing: {kind}")
        frame = sys._getframe(2)
        while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] != "graphcl":
            frame = frame.f_back
        file = frame and frame.f_code.co_filename
        self.waits[f"{file[file.rindex('graphcl/') :]}:{frame.f_lineno}" if frame else "outside", kind] += 1


LOG = Log()


class FakeCuda(torch.Tensor):
    """Tensor on cuda:0 whose values are in the CPU tensor `inner`."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, inner, requires_grad=False):
        self = torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, strides=inner.stride(), storage_offset=inner.storage_offset(), dtype=inner.dtype,
            layout=inner.layout, device=DEVICE, requires_grad=requires_grad,
        )  # fmt: skip
        self.inner = inner
        return self

    def __tensor_flatten__(self):
        return ["inner"], None

    @staticmethod
    def __tensor_unflatten__(inner, meta, size, stride):
        return FakeCuda(inner["inner"])

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return _run(func, args, kwargs or {})

    def numpy(self, *_, **__):
        raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() first.")

    __array__ = numpy

    def tolist(self):
        LOG.wait("tolist")
        return self.inner.tolist()

    def as_tensor(self):  # as `EdgeIndex`, since `type(x) is Tensor` is false
        return self

    def record_stream(self, stream): ...

    def __deepcopy__(self, memo):
        if id(self) not in memo:
            memo[id(self)] = new = FakeCuda(self.inner.clone(), self.requires_grad)
            if getattr(self, "_is_param", False):
                new._is_param = True
            if self.grad is not None:
                new.grad = FakeCuda(self.grad.inner.clone())
        return memo[id(self)]

    def __reduce_ex__(self, protocol):
        LOG.wait("copy to host")
        return self.inner.detach().__reduce_ex__(protocol)

    def __repr__(self):
        return f"FakeCuda({self.inner!r})"


class _AnyGenerator(type(torch.Generator)):
    def __instancecheck__(cls, value):
        return isinstance(value, _Generator)


class FakeGenerator(torch.Generator, metaclass=_AnyGenerator):
    """Generator that can be on "cuda" and is really on the CPU; its state there has another length, as on CUDA."""

    def __new__(cls, device="cpu"):
        self = super().__new__(cls, "cpu")
        self.place = DEVICE if torch.device(device).type == "cuda" else CPU
        _GENERATORS[self._cdata] = self
        return self

    @property
    def device(self):
        return self.place

    def get_state(self):
        state = super().get_state()
        return torch.cat([state, state.new_zeros(16)]) if self.place == DEVICE else state

    def set_state(self, state):
        size = super().get_state().numel()
        if type(state) is FakeCuda or state.numel() != size + 16 * (self.place == DEVICE):
            raise RuntimeError("RNG state is wrong size, or on a device")
        return super().set_state(state[:size].clone())


_GLOBAL = FakeGenerator("cuda")
"""Stands for the device's global generator."""


@contextlib.contextmanager
def _draws_from_global():
    """Let torch's global CPU generator draw from the state of the device's global generator."""
    before = torch.default_generator.get_state()
    torch.default_generator.set_state(_Generator.get_state(_GLOBAL))
    yield
    _Generator.set_state(_GLOBAL, torch.default_generator.get_state())
    torch.default_generator.set_state(before)


def _map(change, value):
    """Return nested tuples, lists and dicts with each leaf changed; torch's `tree_map` takes five times as long."""
    if isinstance(value, (tuple, list)):
        return type(value)([_map(change, each) for each in value])
    if isinstance(value, dict):
        return {key: _map(change, each) for key, each in value.items()} if value else {}
    return change(value)


def _tensors_of(value):
    """Return the tensors within nested tuples, lists and dicts."""
    found = []
    _map(lambda each: found.append(each) if isinstance(each, torch.Tensor) else None, value)
    return found


def _on_cuda(generator):
    return getattr(_GENERATORS.get(generator._cdata), "place", CPU) == DEVICE


def _kernels():
    """Return for each aten operation whether it has a CUDA or a composite kernel, from native_functions.yaml."""
    file = Path(torchgen.__file__).parent / "packaged/ATen/native/native_functions.yaml"
    entries = yaml.load(file.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    by_name = {entry["func"].split("(")[0]: entry for entry in entries}

    def has(entry):
        keys = " ".join((entry.get("dispatch") or {"CompositeImplicitAutograd": ""}).keys())
        delegate = by_name.get(entry.get("structured_delegate"))
        return "CUDA" in keys or "Composite" in keys or (delegate is not None and has(delegate))

    return {name for name, entry in by_name.items() if not has(entry)}


_WITHOUT_KERNEL = _kernels()


@functools.cache
def _names(func):
    """Return the name of an operation with and without its overload."""
    name = func._schema.name.rpartition("::")[2]
    return f"{name}.{func._schema.overload_name}".rstrip("."), name


@functools.cache
def _has_tag(func, tag):
    return tag in func.tags


def _check_devices(name, func, args, tensors):
    """Raise the error of CUDA if `func` mixes devices."""
    others = [each for each in tensors if type(each) is not FakeCuda]
    if not others or len(others) == len(tensors):
        return
    allowed = _has_tag(func, torch.Tag.pointwise) or name in _TAKE_SCALARS
    if name in _INDEXED:
        if type(args[0]) is not FakeCuda:
            raise RuntimeError("indices should be either on cpu or on the same device as the indexed tensor (cpu)")
        allowed = True
        if any(each is not None and type(each) is not FakeCuda for each in args[1]):
            LOG.wait("blocking copy of an index")
            others = [each for each in others if all(each is not index for index in args[1])]
        if others and not _fills(args):
            LOG.wait("blocking copy of a value")
    if name.endswith("_") and isinstance(args[0], torch.Tensor) and type(args[0]) is not FakeCuda:
        allowed = False
    if not allowed or any(each.dim() for each in others):
        raise RuntimeError(f"Expected all tensors to be on the same device, found cuda:0 and cpu (aten::{name})")


def _fills(args):
    """Return whether an assignment by index fills a mask with one CPU value, which needs no indices."""
    value = args[2] if len(args) > 2 else None
    one = value is not None and value.numel() == 1 and type(value) is not FakeCuda
    return one and all(each is None or each.dtype in _MASKS for each in args[1])


def _check_kernel(name, func, tensors, args):
    """Raise if CUDA has no kernel, no integer product, or in deterministic mode no deterministic kernel."""
    full, _ = _names(func)
    floats = bool(tensors) and tensors[0].dtype.is_floating_point
    if full in _WITHOUT_KERNEL or (name in _PRODUCTS and not floats):
        raise NotImplementedError(f"Could not run 'aten::{full}' with arguments from the 'CUDA' backend.")
    if not torch.are_deterministic_algorithms_enabled():
        return
    if (
        name in ("put_", "histc", "median", "nanmedian") or name.startswith("nll_loss2d")
        or (name in ("cumsum", "cumsum_") and floats)
        or (name.startswith("scatter_reduce") and "prod" in map(str, args))
        or (name == "bincount" and len(args) > 1 and isinstance(args[1], torch.Tensor))
        or (name in _PRODUCTS and os.environ.get("CUBLAS_WORKSPACE_CONFIG") not in (":4096:8", ":16:8"))
    ):  # fmt: skip
        raise RuntimeError(f"{name}_cuda does not have a deterministic implementation.")


def _merge_statistics(x, means, inverses, running_mean, running_var, momentum, eps, counts):
    if counts.dtype != running_mean.dtype:
        raise RuntimeError(f"expected scalar type {running_mean.dtype} but found {counts.dtype}")
    total, parts = counts.sum(), counts[:, None]
    mean = (parts * means.double()).sum(0) / total
    variance = (parts * (inverses.double() ** -2 - eps + means.double() ** 2)).sum(0) / total - mean**2
    running_mean.lerp_(mean.to(running_mean), momentum)
    running_var.lerp_((variance * total / (total - 1)).to(running_var), momentum)
    return mean.to(means), (variance + eps).rsqrt().to(means)


def _gradient_of_norm(grad, x, mean, inverse, weight, rows, products, counts):
    total = counts.sum()
    return (grad - rows / total - (x - mean) * inverse**2 * products / total) * inverse * weight


def _sums_of_norm(grad, x, mean, inverse, weight, *_):
    products = (grad * (x - mean)).sum(0)
    return grad.sum(0), products, products * inverse, grad.sum(0)


_ONLY_CUDA = {
    "batch_norm_stats": lambda x, eps: (x.mean(0), (x.double().var(0, correction=0) + eps).rsqrt().to(x)),
    "batch_norm_gather_stats_with_counts": _merge_statistics,
    "batch_norm_elemt": lambda x, weight, bias, mean, inverse, eps: (x - mean) * inverse * weight + bias,
    "batch_norm_backward_reduce": _sums_of_norm,
    "batch_norm_backward_elemt": _gradient_of_norm,
}
"""Operations that have a kernel on CUDA only."""


class Graph:
    """Stands for `torch.cuda.CUDAGraph`, which must not be released while another one is captured."""

    def __del__(self):
        if LOG.tape is not None:
            LOG.released = True

    def replay(self):
        for compute, args, kwargs, out in self.tape:
            for old, new in zip(_tensors_of(out), _tensors_of(compute(*args, **kwargs)), strict=True):
                if old.data_ptr() != new.data_ptr():
                    old.copy_(new)


@contextlib.contextmanager
def capture(graph, pool=None, stream=None, capture_error_mode="global"):
    """Stand for `torch.cuda.graph`."""
    graph.tape, LOG.undo, LOG.released = [], [], False
    LOG.tape, LOG.can_draw = graph.tape, False
    try:
        yield
        if LOG.released:
            raise RuntimeError("operation failed due to a previous error during capture")
        LOG.can_draw = True
    finally:
        LOG.tape = None
        for tensor, before in reversed(LOG.undo):
            tensor.copy_(before)


def _written(func, args, kwargs):
    """Return the tensors that `func` writes to, with copies."""
    legacy = "batch_norm" in func._schema.name  # whose schemas do not say that they write running statistics
    given = [*zip(func._schema.arguments, args, strict=False)]
    given += [(each, kwargs[each.name]) for each in func._schema.arguments if each.name in kwargs]
    written = [value for each, value in given if legacy or (each.alias_info and each.alias_info.is_write)]
    return [(each, each.clone()) for each in _tensors_of(written)]


def _run(func, args, kwargs):
    """Run one operation: check devices, count waits, compute on the held tensors."""
    tensors, generators, held = [], [], {}

    def unwrap(value):
        if isinstance(value, torch.Tensor):
            tensors.append(value)
            if type(value) is FakeCuda:
                held[id(value.inner)] = value
                return value.inner
        elif isinstance(value, _Generator):
            generators.append(value)
        return value

    inner_args, inner_kwargs = _map(unwrap, args), _map(unwrap, kwargs)
    name, device = _names(func)[1], kwargs.get("device")
    to_cuda = device is not None and torch.device(device).type == "cuda"
    if name == "is_pinned":
        return tensors[0] in _PINNED
    if name == "_pin_memory":
        _PINNED[out := inner_args[0].clone()] = True
        return out
    if inner_kwargs.get("pin_memory"):
        inner_kwargs["pin_memory"] = False
    if not held and not to_cuda:
        if any(map(_on_cuda, generators)):
            raise RuntimeError("Expected a 'cpu' device type for generator but found 'cuda'")
        return func(*inner_args, **inner_kwargs)

    LOG.operations += 1
    from_cuda = type(tensors[-1]) is FakeCuda if tensors else False
    if name == "copy_" and len({type(each) is FakeCuda for each in tensors}) == 2:
        _transfer(tensors[1], not from_cuda, kwargs.get("non_blocking", args[2] if len(args) > 2 else False))
    elif name == "_to_copy" and device is not None and to_cuda != from_cuda:
        _transfer(tensors[0], to_cuda, kwargs.get("non_blocking", False))
    elif name not in ("copy_", "_to_copy"):
        _check_devices(name, func, args, tensors)
        if not all(map(_on_cuda, generators)):
            raise RuntimeError("Expected a 'cuda' device type for generator but found 'cpu'")
        _check_kernel(name, func, tensors, (*args, *kwargs.values()))
        if name in _WAITS or (name == "repeat_interleave" and kwargs.get("output_size") is None):
            LOG.wait(name)
        elif name in _INDEXED and not _fills(args) and any(getattr(each, "dtype", None) in _MASKS for each in args[1]):
            LOG.wait("boolean index")
    if to_cuda:
        inner_kwargs["device"] = CPU
    draws = _has_tag(func, torch.Tag.nondeterministic_seeded)
    compute = _ONLY_CUDA.get(name, func)
    before = _written(func, inner_args, inner_kwargs) if LOG.tape is not None else []
    if draws and not generators and LOG.tape is None and not LOG.can_draw:
        raise RuntimeError("Offset increment outside graph capture encountered unexpectedly.")
    with _draws_from_global() if draws and not generators else contextlib.nullcontext():
        if draws:  # skip a number, so that the others differ from those of a CPU generator with the same seed
            torch.rand((), generator=generators[0] if generators else None)
        out = compute(*inner_args, **inner_kwargs)
    if LOG.tape is not None:
        LOG.tape.append((compute, inner_args, inner_kwargs, out))
        LOG.undo += before
    if not (func.is_view or "empty" in name or name == "_unsafe_view"):
        LOG.launches += 1
        LOG.bytes += sum(each.nbytes for each in (*tensors, *_tensors_of(out)))
    stays = (device is not None and not to_cuda) or (name == "copy_" and type(args[0]) is not FakeCuda)

    def wrap(value):
        if not isinstance(value, torch.Tensor) or type(value) is FakeCuda or stays:
            return value
        return held.get(id(value)) if id(value) in held else FakeCuda(value)

    return _map(wrap, out)


def _transfer(source, to_cuda, non_blocking):
    """Record a copy between the host and the device if the host waits for it."""
    staged = source not in _PINNED and source.numel() * source.element_size() > 65536
    if not to_cuda or not non_blocking:
        LOG.wait("blocking copy to device" if to_cuda else "copy to host")
    elif staged:
        LOG.wait("pageable copy of more than 64 KB")


_PINS = {torch.ops.aten.is_pinned.default, torch.ops.aten._pin_memory.default}


class _Mode(TorchDispatchMode):
    _should_skip_dynamo = classmethod(lambda cls: False)  # nothing is compiled here, and the skipping costs a third

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        usual = FakeCuda not in types and func not in _PINS
        if usual and (not kwargs or kwargs.keys().isdisjoint(("device", "generator", "pin_memory"))):
            return func(*args, **kwargs)
        return _run(func, args, kwargs)


class Stream:
    """Stands for `torch.cuda.Stream` and `Event`."""

    def __init__(self, *_, **__):
        self.device = DEVICE

    def record_event(self, event=None):
        return event or Stream()

    def synchronize(self):
        LOG.wait("synchronize")

    def elapsed_time(self, end):
        return 1.0

    def wait_event(self, event): ...
    def wait_stream(self, stream): ...
    def record(self, stream=None): ...


class _Properties:
    name, total_memory, major, minor, multi_processor_count = "FakeCuda", 8 << 30, 8, 0, 1


_run_thread = threading.Thread.run


def _run_with_mode(self):
    with _Mode():  # dispatch modes belong to a thread
        _run_thread(self)


def pytest_configure(config):
    """Give torch one CUDA device for the rest of the process."""
    values = {
        "is_available": True, "is_initialized": True, "device_count": 1, "current_device": 0, "is_bf16_supported": True,
        "_is_in_bad_fork": False, "is_current_stream_capturing": False, "get_device_name": "FakeCuda",
        "get_device_capability": (8, 0), "get_device_properties": _Properties, "memory_allocated": 0,
        "max_memory_allocated": 0, "memory_reserved": 0, "_lazy_init": None, "init": None, "set_device": None,
        "empty_cache": None, "reset_peak_memory_stats": None, "stream": contextlib.nullcontext(),
        "device": contextlib.nullcontext(), "device_of": contextlib.nullcontext(),
    }  # fmt: skip
    functions = {name: lambda *_, value=value, **__: value for name, value in values.items()} | {
        "synchronize": lambda *_: LOG.wait("synchronize"), "mem_get_info": lambda *_: (LOG.memory, LOG.memory),
        "manual_seed": _GLOBAL.manual_seed, "manual_seed_all": _GLOBAL.manual_seed, "default_generators": (_GLOBAL,),
        "get_rng_state": lambda *_: _GLOBAL.get_state(), "set_rng_state": lambda state, *_: _GLOBAL.set_state(state),
        "CUDAGraph": Graph, "graph": capture, "graph_pool_handle": lambda: None,
        "Stream": Stream, "Event": Stream, "current_stream": Stream, "default_stream": Stream,
        "set_stream": lambda _: None,
    }  # fmt: skip
    for name, function in functions.items():
        setattr(torch.cuda, name, function)
    torch.Generator, threading.Thread.run = FakeGenerator, _run_with_mode
    sys.modules["triton"] = None  # its kernels need a real device
    torch.__future__.set_swap_module_params_on_conversion(True)
    torch._C._set_only_lift_cpu_tensors(True)  # `torch.tensor(..., device="cuda")` then copies by a visible operation
    _Mode().__enter__()
