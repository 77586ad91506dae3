"""Records the numbers of training in a rank: losses, steps, the first NaN, checksums of what ranks must agree on.

Every line is in the file before the script goes on, so that a rank which is killed leaves what it saw. A line is JSON:
`["b", value]` for a backward, `["s"]` for a step, `["skip"]` for one that a GradScaler left out, `["nan", ...]`,
`["model", ...]`, `["precision", name]`,
`["check", ...]`, `["dropout"]`, `["left_out", n]`, `["stopped", why]`.
Nothing here communicates, draws random numbers or raises into the script.
"""

from __future__ import annotations

import atexit
import functools
import json
import math
import os
import random
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .after_torch import when_torch_is_imported
from .job import Job

MOST_LINES = 40_000
"""About a megabyte; later losses are left out and counted."""

SEED = 20_01
"""What variants that are compared start from, on every rank."""


def activate(job: Job, rank: int, is_users: Callable[[str], bool]) -> None:
    """Record from now on; in a process without torch, from when the script imports it."""
    when_torch_is_imported(lambda: _install(job, rank, is_users))


def _install(job: Job, rank: int, is_users: Callable[[str], bool]) -> None:
    import torch

    capture = None
    log = Log(job.report_path("numbers", rank))
    if job.variant is not None:
        from .numbers_capture import Capture

        _seed()
        capture = Capture(Path(job.scratch, "numbers"), rank)
        if job.variant == "without_dropout":
            _turn_dropout_off(torch.nn.functional, log)
        if job.variant == "ddp":
            from . import numbers_ddp

            numbers_ddp.replace_fsdp()
    recorder = Recorder(log, is_users, rank, capture)
    _watch_backward(torch, recorder)
    _watch_precision(torch, recorder)
    try:
        from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
    except ImportError:  # before torch 2.0
        return
    register_optimizer_step_pre_hook(recorder.before_step)
    register_optimizer_step_post_hook(recorder.after_step)
    atexit.register(recorder.at_exit)


def _seed() -> None:
    """Start the generators of torch, Python and NumPy alike on every rank and in every variant."""
    import torch

    torch.manual_seed(SEED)
    random.seed(SEED)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(SEED)


def _turn_dropout_off(functional: Any, log: Log) -> None:
    """Keep every element, and say so once: ranks together draw other masks than one process does."""
    said: list[bool] = []

    def say() -> None:
        if not said:
            said.append(True)
            log.write("dropout")

    def kept(original: Any, *args: Any, **kwargs: Any) -> Any:
        say()
        return original(args[0] if args else kwargs["input"], p=0.0, training=False)

    def attention(original: Any, query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
        given: list[Any] = [*args, *[None, 0.0][len(args) :]]
        mask, dropout, *more = given
        if kwargs.pop("dropout_p", dropout):
            say()
        return original(query, key, value, kwargs.pop("attn_mask", mask), 0.0, *more, **kwargs)

    names = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")
    for name, stand_in in (*((name, kept) for name in names), ("scaled_dot_product_attention", attention)):
        original = getattr(functional, name, None)
        if original is not None:
            setattr(functional, name, functools.partial(stand_in, original))


def _watch_backward(torch: Any, recorder: Recorder) -> None:
    """See every backward of a scalar: Tensor.backward looks this function up when it is called."""
    original = torch.autograd.backward

    @functools.wraps(original)
    def backward(tensors: Any, grad_tensors: Any = None, *args: Any, **kwargs: Any) -> Any:
        recorder.before_backward(tensors, grad_tensors)
        recorder.depth += 1
        try:
            return original(tensors, grad_tensors, *args, **kwargs)
        finally:
            recorder.depth -= 1

    torch.autograd.backward = backward


def _watch_precision(torch: Any, recorder: Recorder) -> None:
    """Remember losses before a GradScaler multiplies them, steps that it skips, and the precision of autocast."""
    enter = torch.amp.autocast_mode.autocast.__enter__
    scaler = getattr(torch.amp, "GradScaler", None) or torch.cuda.amp.GradScaler
    scale, step = scaler.scale, scaler.step

    @functools.wraps(enter)
    def enter_and_note(self: Any) -> Any:
        if getattr(self, "_enabled", True):
            recorder.note_precision(getattr(self, "fast_dtype", None))
        return enter(self)

    @functools.wraps(scale)
    def scale_and_remember(self: Any, outputs: Any) -> Any:
        scaled = scale(self, outputs)
        if isinstance(outputs, torch.Tensor) and scaled is not outputs:
            scaled._before_scaling = outputs.detach()
        return scaled

    @functools.wraps(step)
    def step_or_skip(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        result = step(self, optimizer, *args, **kwargs)
        recorder.after_scaled_step(self, optimizer)
        return result

    torch.amp.autocast_mode.autocast.__enter__ = enter_and_note
    scaler.scale, scaler.step = scale_and_remember, step_or_skip


class Log:
    """A file of JSON lines that only this process writes."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(str(path), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._process = os.getpid()
        self._lines = 0
        self._left_out = 0

    def write(self, *row: Any, always: bool = False) -> None:
        """Append a line, unless there are too many."""
        if os.getpid() != self._process:
            return
        self._lines += 1
        if self._lines > MOST_LINES and not always:
            self._left_out += 1
            return
        os.write(self._file, (json.dumps(row) + "\n").encode())

    def close(self) -> None:
        """Say how many lines were left out."""
        if self._left_out:
            self.write("left_out", self._left_out, always=True)


def _quietly(method: Callable[..., None]) -> Callable[..., None]:
    """Let a recorder that meets something it does not understand stop recording instead of failing the script."""

    @functools.wraps(method)
    def call(self: Recorder, *args: Any, **kwargs: Any) -> None:
        if self.stopped:
            return
        try:
            with self.aside():
                method(self, *args, **kwargs)
        except Exception as error:
            self.stopped = f"{method.__name__}: {type(error).__name__}: {error}"[:300]
            self.log.write("stopped", self.stopped, always=True)

    return call


class Recorder:
    """Follows the backward passes and the optimizers' steps of this process."""

    def __init__(self, log: Log, is_users: Callable[[str], bool], rank: int, capture: Any) -> None:
        self.log = log
        self.stopped = ""
        self.depth = 0
        self._is_users = is_users
        self._rank = rank
        self._capture = capture
        self._step = 0
        self._stepped = True
        self._seen_nan = False
        self._precision: set[str] = set()
        self._layout: Any = None
        self._optimizers: list[Any] = []
        self._looked: dict[int, int] = {}

    def aside(self) -> Any:
        """Return a context in which the user's own modes and gradient recording see nothing of our operations."""
        import torch

        return torch.no_grad()

    @_quietly
    def before_backward(self, tensors: Any, gradients: Any) -> None:
        """Note the value that is differentiated, when it is a scalar; a pipeline stage other than the last has none.

        A backward inside another, as of checkpointed layers, belongs to that.
        """
        if self.depth or _compiling():
            return
        if self._stepped:
            self._step += 1
            self._stepped = False
        given = gradients if isinstance(gradients, (list, tuple)) else [gradients]
        losses = tensors if isinstance(tensors, (list, tuple)) else [tensors]
        values = [_scalar(loss) for loss in losses] if all(gradient is None for gradient in given) else []
        numbers = [value for value in values if value is not None]
        if not numbers:
            return
        loss = sum(numbers)
        self.log.write("b", loss)
        if not math.isfinite(loss):
            self._note_nan(f"the loss is {loss}")

    @_quietly
    def before_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """Look at the gradients that an optimizer is about to use."""
        parameters = _parameters_of(optimizer)
        self._understand(optimizer, parameters)
        if not _found_infinity(optimizer):
            self._look_at_gradients(optimizer, parameters)

    @_quietly
    def after_scaled_step(self, scaler: Any, optimizer: Any) -> None:
        """Note a step that a GradScaler left out as scaled gradients overflowed: that is no NaN of training."""
        found = scaler._found_inf_per_device(optimizer) if scaler.is_enabled() else {}
        if self._step and not self._stepped and any(float(value) for value in found.values()):
            self._stepped = True
            self.log.write("skip")

    @_quietly
    def after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """Count the step, once for all optimizers that use one backward, which may have run in the step's closure."""
        if not self._step or _found_infinity(optimizer):
            return
        parameters = _parameters_of(optimizer)
        self._look_at_gradients(optimizer, parameters)
        if self._due():
            self._check("parameter", [(p, p) for p in parameters])
        if not self._stepped:
            self._stepped = True
            self.log.write("s")

    def _look_at_gradients(self, optimizer: Any, parameters: list[Any]) -> None:
        """Look for NaN, take checksums and save gradients, once for each step."""
        if self._step <= self._looked.get(id(optimizer), 0):
            return
        self._looked[id(optimizer)] = self._step
        if not self._seen_nan:
            self._find_nan(parameters)
        if self._due():
            self._check("gradient", [(p, p.grad) for p in parameters if p.grad is not None])
        if self._capture:
            self._capture.gradients(self._layout, self._step, parameters)

    @_quietly
    def at_exit(self) -> None:
        """Take the final state."""
        if self._layout is not None:
            parameters = [p for optimizer in self._optimizers for p in _parameters_of(optimizer)]
            if self._step & (self._step - 1):
                self._check("parameter", [(p, p) for p in parameters])
            if self._capture:
                self._capture.parameters(self._layout, "last", parameters)
        self.log.close()

    def note_precision(self, dtype: Any) -> None:
        """Remember a data type that products are computed in."""
        if str(dtype) not in self._precision:
            self._precision.add(str(dtype))
            self.log.write("precision", str(dtype), always=True)

    def _due(self) -> bool:
        """Return whether checksums are taken at this step: at steps 1, 2, 4, 8 and so on."""
        return self._step & (self._step - 1) == 0

    def _understand(self, optimizer: Any, parameters: list[Any]) -> None:
        """Learn the names and the layout of parameters not seen before."""
        from .numbers_layout import Layout

        if any(optimizer is known for known in self._optimizers):
            return
        self._optimizers.append(optimizer)
        every = [p for known in self._optimizers for p in _parameters_of(known)]
        self._layout = Layout(every, self._rank)
        for dtype in self._layout.precisions:
            self.note_precision(dtype)
        self.log.write("model", self._layout.summary(), always=True)
        if self._capture:
            self._capture.choose(self._layout)
            self._capture.parameters(self._layout, "first", parameters)

    def _find_nan(self, parameters: list[Any]) -> None:
        """Look for the first gradient that is not finite."""
        import torch

        from .numbers_layout import local

        held = [p for p in parameters if p.grad is not None]
        values = [local(p.grad) for p in held]
        sums = [value.sum(dtype=torch.float32) for value in values if value.numel()]
        if not sums or bool(torch.isfinite(torch.stack(sums)).all()):
            return
        for parameter, value in zip(held, values):  # noqa: B905, Python 3.8
            if not bool(torch.isfinite(value).all()):
                kind = "nan" if bool(torch.isnan(value).any()) else "inf"
                self._note_nan(f"the gradient of {self._layout.name(parameter)} has {kind}")
                return

    def _note_nan(self, what: str) -> None:
        if not self._seen_nan:
            self._seen_nan = True
            self.log.write("nan", time.monotonic(), self._step, what, *self._users_line(), always=True)

    def _check(self, what: str, pairs: list[tuple[Any, Any]]) -> None:
        """Write checksums and samples of what other ranks must hold alike."""
        rows = self._layout.checksums(pairs)
        if rows:
            self.log.write("check", self._step, what, rows, always=True)

    def _users_line(self) -> tuple[str | None, int | None]:
        """Return file and line of the innermost frame in the user's files."""
        frame: types.FrameType | None = sys._getframe(1)
        while frame is not None:
            if self._is_users(frame.f_code.co_filename):
                return frame.f_code.co_filename, frame.f_lineno
            frame = frame.f_back
        return None, None


def _parameters_of(optimizer: Any) -> list[Any]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def _found_infinity(optimizer: Any) -> bool:
    """Return whether a GradScaler has told a fused optimizer to leave this step out."""
    found = getattr(optimizer, "found_inf", None)
    return found is not None and bool(float(found))


def _compiling() -> bool:
    import torch

    compiler = getattr(torch, "compiler", None)
    return bool(compiler and getattr(compiler, "is_compiling", bool)())


def _scalar(loss: Any) -> float | None:
    """Return the value of a scalar, before a GradScaler multiplied it; None where this rank alone cannot know it."""
    loss = getattr(loss, "_before_scaling", loss)
    if loss.numel() != 1 or loss.device.type == "meta":
        return None
    placements = getattr(loss, "placements", None)
    if placements is not None and not all(placement.is_replicate() for placement in placements):
        return None
    return float(getattr(loss, "_local_tensor", loss).detach().item())
