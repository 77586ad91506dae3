"""What the server asks of the supervisor, as a JSON file in the scratch folder."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path

from . import limits

START = "import sys; sys.path[0] = sys.argv[1]; from rank_side.supervisor import main; del sys.path[0]; main()"
"""Run with `-c`, the folder that holds this package and the job file; for a started rank also rank, port and bound."""

START_TEMPLATE = START.replace("supervisor", "template")
"""Run with `-c`, the folder that holds this package and the number of the socket to the server."""


@dataclass(frozen=True)
class Job:
    """One run.

    Args:
        entry: absolute path of the script that each rank runs.
        arguments: command line of the script.
        world_size: ranks.
        nodes: pretended nodes; divides world_size.
        timeout_seconds: from the start of the ranks.
        scratch: folder of this run, with `home`, `tmp` and `reports`; the keeper removes it at the end.
        work_dir: folder in which the ranks run.
        import_path: folders put first on the import path of the ranks.
        user_roots: folders whose files are the user's; a line of theirs is what an error is located at.
        preload: modules imported once, before the ranks are forked.
        fresh: whether each rank has to be a process that has not imported torch yet.
        starts_ranks: whether the script starts its ranks itself, so that it has to find no variables of torchrun.
        map_cuda: whether to map CUDA calls to the CPU.
        variant: `as_is`, `without_dropout` or `ddp` when gradients and parameters are to be saved for a comparison.
        simulated_world: ranks of the world of which one rank is simulated, 0 for a real run.
        simulated_rank: the rank to simulate.
        simulated_tensors: `fake`, or `real` for a script that needs values.
        scratch_bytes: the most that all files below the scratch folder may have.
        memory_share: the most of the free memory that all ranks together may use.
    """

    entry: str
    arguments: list[str]
    world_size: int
    nodes: int
    timeout_seconds: float
    scratch: str
    work_dir: str
    import_path: list[str]
    user_roots: list[str]
    preload: list[str]
    fresh: bool
    starts_ranks: bool
    map_cuda: bool
    variant: str | None = None
    simulated_world: int = 0
    simulated_rank: int = 0
    simulated_tensors: str = "fake"
    scratch_bytes: int = limits.SCRATCH_BYTES
    memory_share: float = limits.MEMORY_SHARE

    @staticmethod
    def read(path: str) -> Job:
        """Return the job written at `path`."""
        return Job(**json.loads(Path(path).read_text(encoding="utf-8")))

    def write(self, path: str) -> None:
        """Write the job to `path`."""
        Path(path).write_text(json.dumps(dataclasses.asdict(self)), encoding="utf-8")

    def report_path(self, kind: str, rank: int) -> Path:
        """Return where rank `rank` leaves a report: `error`, `stack`, `crash`, `mapped`, `exit`, `simulation` ..."""
        return Path(self.scratch, "reports", f"{kind}{rank}")


def remove_tree(folder: str) -> None:
    """Remove a folder, also where a rank took away permissions inside it."""
    shutil.rmtree(folder, ignore_errors=True)
    if not Path(folder).exists():
        return
    for parent, names, _ in os.walk(folder):
        for path in (Path(parent, name) for name in names):
            if not path.is_symlink():
                path.chmod(stat.S_IRWXU)
    shutil.rmtree(folder, ignore_errors=True)
