"""Runs a script as one rank of a large world: fake process groups, fake tensors, nothing written to checkpoints."""

from __future__ import annotations

import contextlib
import importlib
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch.utils._mode_utils import no_dispatch

from . import simulate_groups, simulate_tensors
from .collective_log import STEP, Writer
from .cuda_patch import replace_copies, wrap
from .job import Job
from .simulate_report import Inspector

MOST_STEPS = 10
"""Of an optimizer: later ones look the same."""


class Enough(BaseException):
    """Ends the script: enough steps have been seen."""


class Simulation:
    """One simulated rank; the script runs inside `with`."""

    def __init__(self, job: Job, is_users: Callable[[str], bool]) -> None:
        for module in ("torch.distributed.tensor", "torch.distributed.fsdp", *job.preload):
            with contextlib.suppress(ImportError):  # before torch 2.5
                importlib.import_module(module)
        self._job = job
        self._notes: dict[str, None] = {}
        self._steps: dict[int, int] = {}
        self._log = Writer(job.report_path("collectives", 0))
        self._inspector = Inspector(is_users)
        self._mode = simulate_tensors.SimulatedTensors() if job.simulated_tensors == "fake" else None
        simulate_groups.replace_groups(job.simulated_world, job.simulated_rank, self.note)
        simulate_groups.cut_lazily()
        self._inspector.watch_meshes()
        self._watch_optimizers()
        _leave_out(self.note)
        _keep_in_this_process(job, self.note)

    def note(self, text: str) -> None:
        """Say what the simulation does otherwise."""
        self._notes.setdefault(text)

    def __enter__(self) -> None:
        if self._mode is not None:
            simulate_tensors.answer_for_values()
            self._mode.__enter__()

    def __exit__(self, kind: type[BaseException] | None, error: Any, trace: TracebackType | None) -> bool:
        if self._mode is not None:
            self._mode.__exit__(None, None, None)
        if kind is Enough:
            self.note(f"ended after {MOST_STEPS} optimizer steps")
        self._write()
        return kind is Enough

    def _write(self) -> None:
        if self._mode is not None and self._mode.made_up:
            self.note("values that the script takes out of tensors are made up (they print as `simulated`)")
        report: dict[str, Any] = {"steps": max(self._steps.values(), default=0)}
        self._inspect(lambda: report.update(self._inspector.found()))
        report["notes"] = list(self._notes)
        path = self._job.report_path("simulation", 0)
        part = Path(f"{path}.part")
        part.write_text(json.dumps(report), encoding="utf-8")
        part.replace(path)

    def _watch_optimizers(self) -> None:
        """Mark in the log of collectives where training begins and each step ends; look at what the rank holds."""
        optimizer_module = importlib.import_module("torch.optim.optimizer")

        def made(original: Any, self_: Any, *args: Any, **kwargs: Any) -> None:
            original(self_, *args, **kwargs)
            self._inspector.optimizers.append(self_)
            self._inspect(self._inspector.parameters)  # inside a forward, FSDP has put other ones in their place
            self._log.note(STEP)

        def before(optimizer: Any, *_: Any) -> None:
            if not self._steps:
                self._inspect(self._inspector.gradients)

        def after(optimizer: Any, *_: Any) -> None:
            count = self._steps[id(optimizer)] = self._steps.get(id(optimizer), 0) + 1
            self._log.note(STEP)
            if count in (1, 2):
                self._inspect(self._inspector.state)
                self._write()
            if count >= MOST_STEPS:
                raise Enough

        wrap(optimizer_module.Optimizer, "__init__", made)
        optimizer_module.register_optimizer_step_pre_hook(before)
        optimizer_module.register_optimizer_step_post_hook(after)

    def _inspect(self, look: Callable[[], None]) -> None:
        """Look at what the rank holds; what cannot be told is no error of the script."""
        try:
            with no_dispatch():
                look()
        except Exception as error:
            self.note(f"not all could be told: {type(error).__name__}: {error}"[:200])


def _leave_out(note: Callable[[str], None]) -> None:
    """Leave out what needs values or many processes: compiling, and writing and reading checkpoints."""

    def compile_(_: Any, model: Any = None, **__: Any) -> Any:
        note("torch.compile left out")
        return model if model is not None else (lambda function: function)

    def saved(original: Any, *_: Any, **__: Any) -> None:
        note(f"{original.__name__} wrote no checkpoint")

    def loaded(original: Any, *_: Any, **__: Any) -> None:
        note(f"checkpoint {original.__name__} read nothing")

    def stepped(_: Any, __: Any, optimizer: Any, ___: Any, *args: Any, **kwargs: Any) -> Any:
        return optimizer.step(*args, **kwargs)

    scaler = importlib.import_module("torch.amp.grad_scaler").GradScaler
    wrap(scaler, "_maybe_opt_step", stepped)  # which would ask the gradients whether any is infinite
    warnings.filterwarnings("ignore", category=UserWarning, module=r"torch\._tensor")  # copies of fake tensors
    wrap(torch, "compile", compile_)
    wrap(torch, "save", saved)
    checkpoint = importlib.import_module("torch.distributed.checkpoint")
    for name, wrapper in (("save", saved), ("async_save", _future(saved)), ("load", loaded)):
        original = getattr(checkpoint, name, None)
        wrap(checkpoint, name, wrapper)
        replace_copies("torch.distributed.checkpoint", name, original, getattr(checkpoint, name, None))


def _future(work: Any) -> Any:
    """Return a function that does the work and returns a future that is done."""

    def done(original: Any, *args: Any, **kwargs: Any) -> Any:
        work(original, *args, **kwargs)
        future = importlib.import_module("concurrent.futures").Future()
        future.set_result(None)
        return future

    return done


_OF_WORKERS = {"num_workers": 0, "prefetch_factor": None, "persistent_workers": False, "multiprocessing_context": None}


def _keep_in_this_process(job: Job, note: Callable[[str], None]) -> None:
    """Load data and run what a script would spawn in this process, where the simulation is."""

    def loader(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        if kwargs.get("num_workers"):
            note("DataLoader without workers")
        original(self, *args, **{key: _OF_WORKERS.get(key, value) for key, value in kwargs.items()})

    def spawn(_: Any, fn: Any, args: Any = (), *__: Any, **___: Any) -> None:
        note("spawned ranks: only the simulated one runs")
        fn(job.simulated_rank % max(1, job.simulated_world // job.nodes), *args)

    wrap(torch.utils.data.DataLoader, "__init__", loader)
    processes = importlib.import_module("torch.multiprocessing.spawn")
    wrap(processes, "start_processes", spawn, copies_below="torch.multiprocessing")
    wrap(processes, "spawn", spawn, copies_below="torch.multiprocessing")
