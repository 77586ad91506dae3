"""Checkpoints, generators, default devices and other things that name a device where no function mode sees it."""

from __future__ import annotations

from typing import Any

import torch

from .cuda_patch import changed, cpu_for, is_cuda, is_device, is_index, shown, stand_in_class, wrap
from .cuda_record import Record
from .cuda_streams import CpuEvent, CpuStream


def map_the_rest(record: Record) -> None:
    """Put the mappings in place."""
    _map_modules(record)
    _map_load(record)
    _map_defaults(record)
    _map_constructors(record)
    _map_classes(record)


def _map_modules(record: Record) -> None:
    """Take `Module.to(0)`, `Module.cuda()` and `Module.to_empty(device=0)`, which call no torch function first."""

    def cpu(name: str) -> Any:
        def change(device: Any) -> Any:
            if is_device(device):
                record.mapped(f'{name}({shown(device)}) -> "cpu" for a module')
            return cpu_for(device)

        return change

    def to(original: Any, module: Any, *args: Any, **kwargs: Any) -> Any:
        change = cpu("to")
        args = (change(args[0]), *args[1:]) if args else args
        kwargs = {**kwargs, "device": change(kwargs["device"])} if "device" in kwargs else kwargs
        return original(module, *args, **kwargs)

    def to_empty(original: Any, module: Any, **kwargs: Any) -> Any:
        return original(module, **{**kwargs, "device": cpu("to_empty")(kwargs.get("device"))})

    def cuda(original: Any, module: Any, *args: Any, **kwargs: Any) -> Any:
        record.mapped("Module.cuda() stays on the CPU")
        return module._apply(lambda tensor: tensor.to("cpu"))

    wrap(torch.nn.Module, "to", to)
    wrap(torch.nn.Module, "to_empty", to_empty)
    wrap(torch.nn.Module, "cuda", cuda)


def _map_load(record: Record) -> None:
    """Load checkpoints to the CPU."""

    def load(original: Any, *args: Any, **kwargs: Any) -> Any:
        location = args[1] if len(args) > 1 else kwargs.get("map_location")
        if location is None or is_device(location) or isinstance(location, dict):
            if location is not None:
                record.mapped('map_location -> "cpu" in load')
            args, kwargs = (*args[:1], *args[2:]), {**kwargs, "map_location": "cpu"}
        return original(*args, **kwargs)

    wrap(torch, "load", load)


def _map_defaults(record: Record) -> None:
    """Let defaults and forked random states be of the CPU."""

    def default_device(original: Any, device: Any) -> Any:
        if is_device(device):
            record.mapped(f'set_default_device({shown(device)}) -> "cpu"')
        return original(cpu_for(device))

    def default_type(original: Any, kind: Any) -> Any:
        return original(kind.replace("torch.cuda.", "torch.") if isinstance(kind, str) else kind)

    def fork_rng(original: Any, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = changed(original, args, kwargs, devices=lambda _: (), device_type=lambda _: "cpu")
        if len(args) < 1:
            kwargs = {"devices": (), **kwargs}
        return original(*args, **kwargs)

    wrap(torch, "set_default_device", default_device)
    wrap(torch, "set_default_tensor_type", default_type)
    wrap(torch.random, "fork_rng", fork_rng, copies_below="torch")


def _map_constructors(record: Record) -> None:
    """Take the device of constructors that are no torch functions."""

    def on_cpu(original: Any, *args: Any, **kwargs: Any) -> Any:
        if is_device(kwargs.get("device")):
            record.mapped(f'device={shown(kwargs["device"])} -> "cpu" in {original.__name__}')
            kwargs = {**kwargs, "device": "cpu"}
        return original(*args, **kwargs)

    for name in ("nested_tensor", "as_nested_tensor", "nested_tensor_from_jagged"):
        wrap(torch.nested, name, on_cpu)


def _map_classes(record: Record) -> None:
    """Make generators, streams and events of the CPU."""

    def generator(device: Any = "cpu") -> Any:
        if is_device(device):
            record.mapped(f'Generator({shown(device)}) -> "cpu"')
        return original_generator(cpu_for(device))

    def of_cpu(name: str, original: Any, stand_in: type) -> Any:
        def make(*args: Any, **kwargs: Any) -> Any:
            device = args[0] if args else kwargs.get("device", "cuda")
            if not (is_cuda(device) or is_index(device)):
                return original(*args, **kwargs)
            record.mapped(f"torch.{name} is of the CPU")
            return stand_in()

        return make

    def record_stream(tensor: Any, stream: Any) -> None:
        record.mapped("Tensor.record_stream does nothing")

    torch.Tensor.record_stream = record_stream  # torch's own refuses streams of ours before any mode sees it
    original_generator = torch.Generator
    torch.Generator = stand_in_class(original_generator, generator)
    for name, stand_in in (("Stream", CpuStream), ("Event", CpuEvent)):
        original = getattr(torch, name, None)
        if original is not None:  # Remove when torch < 2.5 is unsupported.
            setattr(torch, name, stand_in_class(original, of_cpu(name, original, stand_in), also=(stand_in,)))
