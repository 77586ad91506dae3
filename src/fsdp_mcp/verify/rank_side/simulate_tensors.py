"""Tensors without values: shapes, types and placements of a simulated rank, at no memory.

Whole numbers and booleans that come from no tensor, data given in Python and what is computed from these alone stay
real up to a bound: a sampler's permutation, token ids, masks. All else is fake. Where a script takes the value of a
fake tensor it gets a made-up one that prints as "simulated".
"""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensor, FakeTensorMode
from torch.utils._mode_utils import no_dispatch
from torch.utils._pytree import tree_flatten

from .cuda_patch import wrap

_MOST_REAL_ELEMENTS = 1 << 22
_MARK = "_fsdp_mcp_simulated"
_PLAIN = (torch.Tensor, torch.nn.Parameter)
_WORD = "simulated"


class SimulatedTensors(FakeTensorMode):  # type: ignore[misc]
    """Makes every tensor of floating-point numbers a fake one."""

    def __init__(self) -> None:
        super().__init__(allow_non_fake_inputs=True)
        self.made_up = 0
        aten = torch.ops.aten
        self._given_in_python = {aten.linspace.default, aten.logspace.default}
        self._truths = {getattr(aten.equal, "default", None): True, getattr(aten.is_nonzero, "default", None): False}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator on real values where all are real and few, else on shapes."""
        kwargs = kwargs or {}
        tensors = [value for value in tree_flatten((args, kwargs))[0] if isinstance(value, torch.Tensor)]
        if tensors and all(_is_real(tensor) for tensor in tensors):
            if sum(tensor.numel() for tensor in tensors) <= _MOST_REAL_ELEMENTS:
                return func(*args, **kwargs)
        elif tensors:
            _mark_written(func, args, kwargs)
        try:
            made = super().__torch_dispatch__(func, types, args, kwargs)
        except DataDependentOutputException:
            return self._make_up(func, args)
        if func.namespace == "_c10d_functional":
            self._repeat(func, made, args)
        return made if tensors else self._real_if_whole(made, func, args, kwargs)

    def _repeat(self, func: Any, made: Any, args: Any) -> None:
        """Make the collective behind a functional one: on fake tensors torch only works out its shape."""
        call = _COLLECTIVES.get(func._opname.rstrip("_"))
        if call is not None:
            with self:
                call(made, *args)

    def _real_if_whole(self, made: Any, func: Any, args: Any, kwargs: Any) -> Any:
        """Make the tensor of an operator without tensors for real when it holds few whole numbers or booleans."""
        if not isinstance(made, FakeTensor) or made.fake_device.type != "cpu" or made.layout != torch.strided:
            return made
        inexact = made.dtype.is_floating_point or made.dtype.is_complex
        if made.numel() > _MOST_REAL_ELEMENTS or (inexact and func not in self._given_in_python):
            return made
        return func(*args, **kwargs)

    def _make_up(self, func: Any, args: Any) -> Any:
        """Return a value in place of one that only the computation would give."""
        self.made_up += 1
        if func in self._truths:
            return self._truths[func]
        dtype = getattr(args[0], "dtype", None) if func is torch.ops.aten._local_scalar_dense.default else None
        if dtype is None:
            raise DataDependentOutputException(func)
        return False if dtype == torch.bool else 1.0 if dtype.is_floating_point else 1


def _group(name: Any) -> Any:
    return torch._C._distributed_c10d._resolve_process_group(name)


_COLLECTIVES: dict[str, Any] = {
    "all_reduce": lambda made, _, __, group: _group(group).allreduce([made]),
    "all_reduce_coalesced": lambda made, _, __, group: _group(group).allreduce(list(made)),
    "all_gather_into_tensor": lambda made, given, _, group: _group(group)._allgather_base(made, given),
    "all_gather_into_tensor_coalesced": lambda made, given, _, group: [
        _group(group)._allgather_base(one, other)
        for one, other in zip(made, given)  # noqa: B905, Python 3.8
    ],
    "reduce_scatter_tensor": lambda made, given, _, __, group: _group(group)._reduce_scatter_base(made, given),
    "reduce_scatter_tensor_coalesced": lambda made, given, _, __, group: [
        _group(group)._reduce_scatter_base(one, other)
        for one, other in zip(made, given)  # noqa: B905, Python 3.8
    ],
    "all_to_all_single": lambda made, given, outputs, inputs, group: _group(group).alltoall_base(
        made, given, list(outputs), list(inputs)
    ),
    "broadcast": lambda made, _, source, group: _group(group).broadcast(made, source),
}
"""Functional collectives and the plain one that each makes, of its result and arguments."""


def _is_real(tensor: Any) -> bool:
    return type(tensor) in _PLAIN and not tensor.is_meta and not hasattr(tensor, _MARK)


def is_simulated(tensor: Any) -> bool:
    """Return whether a tensor, or what a rank holds of it, has no values."""
    held = getattr(tensor, "_local_tensor", tensor)
    return isinstance(held, FakeTensor) or hasattr(held, _MARK)


def _mark_written(func: Any, args: Any, kwargs: Any) -> None:
    """Mark the real tensors that an operator with fake inputs writes to: their values are not to be trusted."""
    if not func._schema.is_mutable:
        return
    for number, argument in enumerate(func._schema.arguments):
        if argument.is_write:
            given = args[number] if number < len(args) else kwargs.get(argument.name)
            for value in tree_flatten(given)[0]:
                if isinstance(value, torch.Tensor) and _is_real(value):
                    setattr(value, _MARK, True)


class _Float(float):
    """A number that says, when printed, that it is none."""

    def __repr__(self) -> str:
        return _WORD

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return _WORD

    def __round__(self, digits: Any = None) -> Any:
        return float.__round__(self, digits) if digits is None else _Float(float.__round__(self, digits))


class _Int(int):
    """A whole number that says, when printed, that it is none."""

    def __repr__(self) -> str:
        return _WORD

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return _WORD


def _keep_made_up(kind: Any) -> None:
    """Let what is computed from a made-up number be one."""

    def operator(name: str) -> Any:
        original = getattr(kind.__mro__[1], name)

        def computed(self: Any, *others: Any) -> Any:
            value = original(self, *others)
            return named(value)

        return computed

    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):
        for full in (f"__{name}__", f"__r{name}__"):
            setattr(kind, full, operator(full))
    for full in ("__neg__", "__abs__", "__pos__"):
        setattr(kind, full, operator(full))


def named(value: Any) -> Any:
    """Return a number as one that prints as made up."""
    if type(value) is float:
        return _Float(value)
    return _Int(value) if type(value) is int else value


_keep_made_up(_Float)
_keep_made_up(_Int)


def answer_for_values() -> None:
    """Let the methods that take values out of a tensor answer for simulated ones."""

    def item(original: Any, self: Any) -> Any:
        value = original(self)
        return named(value) if is_simulated(self) else value

    def tolist(original: Any, self: Any) -> Any:
        if not is_simulated(self):
            return original(self)
        return _nested(tuple(self.shape), named(_one(self.dtype)))

    def numpy(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_simulated(self):
            return original(self, *args, **kwargs)
        with no_dispatch():
            return original(torch.ones(tuple(self.shape), dtype=self.dtype))

    def formatted(original: Any, self: Any, spec: str) -> str:
        return _WORD if is_simulated(self) and self.dim() == 0 else str(original(self, spec))

    for name, wrapper in (("item", item), ("tolist", tolist), ("numpy", numpy), ("__array__", numpy)):
        _wrap_method(name, wrapper)
    _wrap_method("__format__", formatted)
    wrap(FakeTensor, "tolist", tolist)
    _call_values_finite()
    wrap(torch.utils, "swap_tensors", _swap)


def _call_values_finite() -> None:
    """Let simulated values count as finite numbers: a script that stops on NaN goes on."""

    def known(answer: bool) -> Any:
        def asked(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
            if not is_simulated(self):
                return original(self, *args, **kwargs)
            return torch.full(tuple(self.shape), answer, dtype=torch.bool)

        return asked

    for name, answer in (("isfinite", True), ("isnan", False), ("isinf", False)):
        wrap(torch, name, known(answer))
        _wrap_method(name, known(answer))


def _swap(original: Any, one: Any, other: Any) -> None:
    """Exchange two tensors, as modules do that move to another device or type: fake ones have weak references."""
    if isinstance(one, FakeTensor) and isinstance(other, FakeTensor):
        one.data = other
        one.fake_device = other.fake_device
    else:
        original(one, other)


def _wrap_method(name: str, wrapper: Any) -> None:
    """Replace a method of Tensor, also one that its C++ base class has."""
    original = getattr(torch.Tensor, name)

    def replaced(self: Any, *args: Any, **kwargs: Any) -> Any:
        return wrapper(original, self, *args, **kwargs)

    setattr(torch.Tensor, name, replaced)


def _one(dtype: Any) -> Any:
    return False if dtype == torch.bool else 1.0 if dtype.is_floating_point else 1


def _nested(shape: tuple[int, ...], value: Any) -> Any:
    """Return nested lists of this shape."""
    return value if not shape else [_nested(shape[1:], value) for _ in range(shape[0])]
