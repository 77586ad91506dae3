"""Lets a script that shards with FSDP run with DistributedDataParallel instead, as a reference for its numbers."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel


def replace_fsdp() -> None:
    """Replace `fully_shard` and FullyShardedDataParallel in every module of torch.distributed that names them."""
    from torch.distributed import fsdp

    with contextlib.suppress(ImportError):
        import torch.distributed._composable.fsdp  # noqa: F401
    for name, stand_in in (("fully_shard", _fully_shard), ("FullyShardedDataParallel", _FullyShardedDataParallel)):
        original = getattr(fsdp, name, None)
        for module in list(sys.modules.values()):
            if module.__name__.startswith("torch.distributed") and module.__dict__.get(name) is original is not None:
                setattr(module, name, stand_in)
    _recognise(getattr(fsdp, "FSDPModule", None))


def _recognise(kind: Any) -> None:
    """Let `isinstance(model, FSDPModule)` hold for what stands in for one."""
    for module in list(sys.modules.values()) if kind is not None else ():
        if module.__name__.startswith("torch.distributed") and module.__dict__.get("FSDPModule") is kind:
            setattr(module, "FSDPModule", _Replicated)  # noqa: B010


class _Replica:
    """The DDP of one root module, made at its first forward: by then parameters are where they will stay."""

    def __init__(self, module: Any, ignored: Any) -> None:
        self.sync = True
        self._ignored = {id(parameter) for parameter in ignored or ()}
        self._ddp: Any = None
        self._inner = False
        module.register_forward_pre_hook(self._before, with_kwargs=True)
        module.register_forward_hook(self._after)

    def _before(self, module: Any, args: Any, kwargs: Any) -> Any:
        if self._ddp is None and not self._inner:
            self._start(module)
        if self._inner:
            return None
        self._ddp.require_backward_grad_sync = self.sync
        return self._ddp._pre_forward(*args, **kwargs)

    def _start(self, module: Any) -> None:
        for inner in module.modules():
            if inner is not module and isinstance(inner, _Replicated):
                inner._replica._inner = True
        parameters = [p for p in module.parameters() if id(p) not in self._ignored]
        if any(hasattr(parameter, "placements") for parameter in parameters):
            raise NotImplementedError('compare="ddp" does not replace FSDP on top of tensor parallel')
        listed = torch.nn.ParameterList(parameters)
        self._ddp = DistributedDataParallel(listed, find_unused_parameters=True)

    def _after(self, module: Any, args: Any, output: Any) -> Any:
        return output if self._inner else self._ddp._post_forward(output)


class _Replicated:
    """What `fully_shard` adds to a module's class, as far as it means anything without shards."""

    _replica: _Replica

    def set_requires_gradient_sync(self, requires_gradient_sync: bool, **_: Any) -> None:
        """Reduce gradients or leave them local from the next backward on."""
        for module in self.modules():
            if isinstance(module, _Replicated):
                module._replica.sync = requires_gradient_sync

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Leave gradients local inside the block."""
        self.set_requires_gradient_sync(False)
        try:
            yield
        finally:
            self.set_requires_gradient_sync(True)

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
        """Clip by the norm of all gradients, which every rank holds whole."""
        return torch.nn.utils.clip_grad_norm_(self.parameters(), max_norm, norm_type)

    @property
    def module(self) -> Any:
        """Return what would be wrapped: the module itself."""
        return self

    def __getattr__(self, name: str) -> Any:
        """Return the attribute, or what does nothing for a method that only steers sharding."""
        if name in _STEERING:
            return _nothing
        return super().__getattr__(name)  # type: ignore[misc]


def _nothing(*args: Any, **kwargs: Any) -> None:
    """Stand for a method that steers when shards are gathered and freed."""


_STEERING = frozenset(
    name for name in dir(getattr(torch.distributed.fsdp, "FSDPModule", None)) if not name.startswith("_")
) - {"set_requires_gradient_sync"}


def _replicate(module: Any, ignored: Any = None) -> Any:
    if isinstance(module, _Replicated):
        return module
    kind = type(module)
    module.__class__ = type(kind.__name__, (_Replicated, kind), {})
    module.__dict__["_replica"] = _Replica(module, ignored)
    return module


@functools.wraps(getattr(torch.distributed.fsdp, "fully_shard", _replicate))
def _fully_shard(module: Any, *args: Any, **kwargs: Any) -> Any:
    for one in module if isinstance(module, (list, tuple)) else [module]:
        _replicate(one, kwargs.get("ignored_params"))
    return module


class _LikeReplicated(type):
    """Lets isinstance hold for modules that stand in for a wrapper."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, _Replicated)


class _FullyShardedDataParallel(metaclass=_LikeReplicated):
    """Takes the place of the class whose first argument is the module; the module itself comes back."""

    def __new__(cls, module: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the module, replicated from its first forward on."""
        return _replicate(module)

    state_dict_type = summon_full_params = staticmethod(lambda *_, **__: contextlib.nullcontext())
    set_state_dict_type: Callable[..., None] = staticmethod(_nothing)

    @staticmethod
    def optim_state_dict(model: Any, optim: Any, *_: Any, **__: Any) -> Any:
        """Return the state of the optimizer, which is whole."""
        return optim.state_dict()

    full_optim_state_dict = optim_state_dict
