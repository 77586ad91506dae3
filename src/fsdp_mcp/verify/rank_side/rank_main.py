"""What each rank runs: the user's script as `__main__`, with reports of its error and of where it stands."""

from __future__ import annotations

import atexit
import builtins
import contextlib
import faulthandler
import json
import linecache
import os
import signal
import site
import sys
import tempfile
import threading
import time
import traceback
import types
from pathlib import Path
from typing import IO, NoReturn

from . import collective_record, limits, numbers_record
from .job import Job

TEXT_LIMIT = 8_000
"""Characters of a message or traceback that are reported."""

STACK_SIGNAL = signal.SIGRTMIN + 7 if hasattr(signal, "SIGRTMIN") else getattr(signal, "SIGUSR2", None)
"""On it a rank writes its stacks, without running Python: it works while the rank waits inside a collective.
A real-time signal, because scripts use SIGUSR1 and SIGUSR2 for themselves (Slurm's warning, for one)."""

_OURS = os.path.dirname(__file__) + os.sep  # noqa: PTH120, as the frames spell it

_open_files: list[IO[str]] = []  # faulthandler writes to their descriptors: they have to stay open


def environment(job: Job, rank: int, port: int) -> dict[str, str]:
    """Return what a rank finds in its environment beyond the supervisor's."""
    home, temporary = (str(Path(job.scratch, name)) for name in ("home", "tmp"))
    return {
        **({} if job.starts_ranks else _set_by_torchrun(job, rank, port)),
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONDONTWRITEBYTECODE": "1",  # also for processes that a rank starts
        "HOME": home,
        "TMPDIR": temporary,
        "TEMP": temporary,
        "TMP": temporary,
        # Processes that a rank starts look for packages where the target does, although HOME has moved.
        "PYTHONUSERBASE": site.getuserbase(),
        **_loopback(),
    }


def _set_by_torchrun(job: Job, rank: int, port: int) -> dict[str, str]:
    """Return the variables that torchrun sets, for a store that the supervisor holds as torchrun's agent does."""
    world, rank = (job.simulated_world, job.simulated_rank) if job.simulated_world else (job.world_size, rank)
    per_node = world // job.nodes
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank % per_node),
        "WORLD_SIZE": str(world),
        "LOCAL_WORLD_SIZE": str(per_node),
        "GROUP_RANK": str(rank // per_node),
        "GROUP_WORLD_SIZE": str(job.nodes),
        "ROLE_NAME": "default",
        "ROLE_RANK": str(rank),
        "ROLE_WORLD_SIZE": str(world),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_RUN_ID": "none",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }


def _loopback() -> dict[str, str]:
    """Return the variable that keeps Gloo on the loopback interface, where its name is known."""
    names = {"linux": "lo", "darwin": "lo0"}
    return {"GLOO_SOCKET_IFNAME": names[sys.platform]} if sys.platform in names else {}


def run(job: Job, rank: int, address_space_bytes: int) -> int:
    """Run the script in this process and return its exit status; the error, if any, is reported and printed."""
    _write_stacks_on_demand(job, rank)
    _reseed()
    tempfile.tempdir = None  # what a module asked for before the fork would hide the TMPDIR of the run
    os.chdir(job.work_dir)
    sys.dont_write_bytecode = True  # a run leaves nothing behind in the user's project
    sys.path[:0] = job.import_path
    sys.argv = [job.entry, *job.arguments]
    limits.apply_to_this_process(address_space_bytes)
    try:
        simulation = _simulation(job)  # first, so that what is mapped or recorded goes on to it
        _activate_cuda_map(job, rank)
        if not job.simulated_world:
            numbers_record.activate(job, rank, lambda file: is_users(file, job.user_roots))
        _record_collectives(job, rank)
        with simulation:
            _execute(job.entry)
    except SystemExit as error:
        return _exit_status(job, rank, error)
    except BaseException as error:
        _report_error(job, rank, error, exit_code=1)
        _print_error(error)
        return 1
    _report_end(job, rank, ("", 0))
    return 0


def end_process(status: int) -> NoReturn:
    """End this process as the interpreter would, but without taking down what torch has loaded.

    A thread of Gloo that still needs the interpreter then may abort it, "terminate called without an active exception",
    although the script is done. Seen with DDP on torch 2.13; remove when torch ends these threads in
    destroy_process_group.
    """
    try:
        threading._shutdown()  # type: ignore[attr-defined]  # waits for the threads that are not daemons
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()
    finally:
        os._exit(status & 0xFF)


def _execute(entry: str) -> None:
    """Execute the file as the module `__main__`, which stays importable so that pickling and inspection work."""
    module = types.ModuleType("__main__")
    module.__dict__.update(__file__=entry, __builtins__=builtins)
    sys.modules["__main__"] = module
    code = compile(Path(entry).read_bytes(), entry, "exec", dont_inherit=True)
    exec(code, module.__dict__)  # noqa: S102


def _simulation(job: Job) -> contextlib.AbstractContextManager[None]:
    """Return what simulates one rank of a large world, or does nothing."""
    if not job.simulated_world:
        return contextlib.nullcontext()
    from .simulate import Simulation

    return Simulation(job, lambda file: is_users(file, job.user_roots))


def _record_collectives(job: Job, rank: int) -> None:
    noted: collective_record.Noted = "calls" if job.simulated_world else "calls and groups"
    path = job.report_path("collectives", rank)
    collective_record.activate(path, lambda file: is_users(file, job.user_roots), noted)


def _activate_cuda_map(job: Job, rank: int) -> None:
    if job.map_cuda:
        from . import cuda_map

        path = job.report_path("mapped", rank)
        cuda_map.activate(path, lambda file: is_users(file, job.user_roots), job.preload)
        needed = [module for module in job.preload if module != "torch._dynamo"]  # which only saves time when forked
        cuda_map.map_in_spawned_processes(path, job.user_roots, needed)


def map_spawned(path: str, roots: list[str], preload: list[str]) -> None:
    """Map CUDA calls in a process that multiprocessing has spawned from a rank; it keeps a record of its own."""
    from . import cuda_map

    cuda_map.activate(Path(f"{path}-{os.getpid()}"), lambda file: is_users(file, roots), preload)
    cuda_map.map_in_spawned_processes(Path(path), roots, preload)


def _exit_status(job: Job, rank: int, error: SystemExit) -> int:
    """Return the status that the interpreter would exit with; anything but 0 is reported as an error."""
    if error.code is None or error.code == 0:
        _report_end(job, rank, _user_place(error, job.user_roots))
        return 0
    status = error.code if isinstance(error.code, int) else 1
    _report_error(job, rank, error, exit_code=status)
    if not isinstance(error.code, int):
        print(error.code, file=sys.stderr)
    return status


def _report_end(job: Job, rank: int, place: tuple[str, int]) -> None:
    """Write down where the script ended well, ("", 0) for its last line: a rank that calls os._exit leaves nothing."""
    logs = [job.report_path("collectives", number) for number in range(job.world_size)]
    collective_record.wait_for_joining(logs[rank], logs)
    with contextlib.suppress(OSError):
        job.report_path("exit", rank).write_text(json.dumps(place), encoding="utf-8")


def _report_error(job: Job, rank: int, error: BaseException, *, exit_code: int) -> None:
    """Write down what was raised, when, and at which line of the user's."""
    now = time.monotonic()
    error.__traceback__ = _without_our_frames(error.__traceback__)
    place = _user_place(error, job.user_roots)
    report = {
        "time": now,
        "type": type(error).__name__,
        "message": _message(error)[:TEXT_LIMIT],
        "file": place[0],
        "line": place[1],
        "code": linecache.getline(place[0], place[1]).strip()[:500] if place[0] else None,
        "traceback": "".join(traceback.format_exception(type(error), error, error.__traceback__))[-TEXT_LIMIT:],
        "number": error.errno if isinstance(error, OSError) else None,
        "by_simulation": _raised_by_fake_tensors(error),
        "by_communication": any(_raised_by_communication(link) for link in _chain(error)),
        "exit_code": exit_code,
    }
    part = job.report_path("part", rank)
    with contextlib.suppress(OSError):
        part.write_text(json.dumps(report), encoding="utf-8", errors="replace")
        part.replace(job.report_path("error", rank))


def _message(error: BaseException) -> str:
    is_status = isinstance(error, SystemExit) and isinstance(error.code, int)
    return f"exit status {error}" if is_status else str(error)


def _without_our_frames(frames: types.TracebackType | None) -> types.TracebackType | None:
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    return frames


def _user_place(error: BaseException, roots: list[str]) -> tuple[str, int]:
    """Return file and line of the innermost frame in the user's files, ("", 0) when there is none."""
    if isinstance(error, SyntaxError) and error.filename and is_users(error.filename, roots):
        return error.filename, error.lineno or 1
    places = [(frame.filename, frame.lineno or 0) for frame in traceback.extract_tb(error.__traceback__)]
    users = [place for place in places if is_users(place[0], roots)]
    return (users or [("", 0)])[-1]


def is_users(file: str, roots: list[str]) -> bool:
    """Return whether a file is the user's own: below one of the roots, not in an environment there and not ours."""
    if file.startswith(_OURS):
        return False
    for root in roots:
        if file.startswith(root + os.sep):
            return "site-packages" not in Path(file[len(root) :]).parts
    return False


def _raised_by_communication(error: BaseException) -> bool:
    """Return whether torch raised it while it talked to other ranks: then another rank may be the cause."""
    if not isinstance(error, RuntimeError) or error.__traceback__ is None:
        return False
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    ours = os.path.dirname(__file__)  # noqa: PTH120, as the frames spell it
    innermost = ([""] + [file for file in files if not file.startswith(ours)])[-1].replace(os.sep, "/")
    return "/torch/distributed/" in innermost or innermost.endswith("/torch/autograd/graph.py")


def _raised_by_fake_tensors(error: BaseException) -> bool:
    """Return whether torch raised it because a fake tensor has no values."""
    files = [frame.filename.replace(os.sep, "/") for frame in traceback.extract_tb(error.__traceback__)]
    return "/torch/_subclasses/" in "\n".join(files[-3:])


def _chain(error: BaseException) -> list[BaseException]:
    """Return the exception and those during whose handling it was raised."""
    links: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in links:
        links.append(link)
        link = link.__cause__ or link.__context__
    return links


def _print_error(error: BaseException) -> None:
    """Print the traceback the way the script would have, through its own hook if it set one."""
    try:
        sys.excepthook(type(error), error, error.__traceback__)
    except BaseException:
        traceback.print_exc()


def _write_stacks_on_demand(job: Job, rank: int) -> None:
    """Let a signal, and a crash, write the stacks of all threads into the reports folder."""
    stacks, crash = (job.report_path(kind, rank).open("w", encoding="utf-8") for kind in ("stack", "crash"))
    for file in (stacks, crash):
        print(f"main {threading.main_thread().ident:#018x}", file=file, flush=True)
        _open_files.append(file)
    faulthandler.enable(file=crash)
    if STACK_SIGNAL is None or not hasattr(faulthandler, "register"):  # Windows
        faulthandler.dump_traceback_later(job.timeout_seconds, file=stacks)
    else:
        faulthandler.register(STACK_SIGNAL, file=stacks)


def _reseed() -> None:
    """Give each forked rank its own seeds of NumPy and torch, as processes started apart have."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None:
        numpy.random.seed()
    if torch is not None:
        torch.default_generator.seed()
