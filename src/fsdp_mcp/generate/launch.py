"""How the script is started: shell lines for torchrun, a batch file for Slurm."""

from __future__ import annotations

from shlex import quote

from fsdp_mcp.generate.recipe import Options
from fsdp_mcp.models import GeneratedFile

BATCH_FILE = "launch.sbatch"
_PORT = 29500

_BATCH = """\
#!/bin/bash
#SBATCH --job-name={name}
#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node={devices}
# Add what your cluster asks for: --partition, --account, --time, --cpus-per-task.

set -euo pipefail
{path}head_node=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
port=$(({port} + SLURM_JOB_ID % 1000))  # another port for each job on a shared node

srun torchrun --nnodes "$SLURM_JOB_NUM_NODES" --nproc-per-node {devices} \\
    --rdzv-id "$SLURM_JOB_ID" --rdzv-backend c10d --rdzv-endpoint "$head_node:$port" \\
    {script}
"""


def launch_lines(options: Options) -> tuple[str, ...]:
    """Return the shell lines that start the script, in order; on several nodes they are run on each."""
    if options.what == "snippet":
        return ()
    if options.launcher == "slurm":
        return (f"sbatch {BATCH_FILE}",)
    path = _import_path(options)
    devices = options.devices_per_node
    if options.nodes == 1:
        return (*path, f"torchrun --standalone --nproc-per-node {devices} {_script(options)}")
    return (
        *path,
        ': "${HEAD_NODE:?set it on every node to the host name of the first node}"',
        f"torchrun --nnodes {options.nodes} --nproc-per-node {devices} --rdzv-id {options.strategy}"
        f' --rdzv-backend c10d --rdzv-endpoint "$HEAD_NODE:{_PORT}" {_script(options)}',
    )


def launch_files(options: Options) -> tuple[GeneratedFile, ...]:
    """Return the files that the launcher needs beside the script."""
    if options.launcher != "slurm":
        return ()
    content = _BATCH.format(
        name=options.strategy,
        nodes=options.nodes,
        devices=options.devices_per_node,
        path="".join(f"{line}\n" for line in _import_path(options)),
        port=_PORT,
        script=_script(options),
    )
    return (GeneratedFile(path=BATCH_FILE, content=content),)


def _import_path(options: Options) -> tuple[str, ...]:
    """Return the line that puts the model's project on the import path, if there is one."""
    if options.project_dir is None:
        return ()
    return (f"export PYTHONPATH={quote(str(options.project_dir))}${{PYTHONPATH:+:$PYTHONPATH}}",)


def _script(options: Options) -> str:
    """Return the script with its arguments; a job that is started again continues."""
    return "train.py --resume" if options.checkpoint == "dcp" else "train.py"
