"""How the script is started."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fsdp_mcp import call
from fsdp_mcp.generate.training_code import generate_training_code


@pytest.fixture
def odd_folder(tmp_path: Path) -> Iterator[Path]:
    """Make a project whose path a shell would take apart."""
    folder = tmp_path / "a b; $(touch hacked) 'c'"
    folder.mkdir()
    call.enter(call.Caller(roots=(tmp_path,)))
    yield folder
    call.enter(call.Caller())


def test_one_node_starts_standalone() -> None:
    code = generate_training_code("fsdp2", devices_per_node=4, verify=False)
    assert code.launch == ("torchrun --standalone --nproc-per-node 4 train.py",)


def test_several_nodes_meet_at_a_head_node_that_has_to_be_set() -> None:
    code = generate_training_code("fsdp2", nodes=4, checkpoint="dcp", verify=False)
    assert code.launch == (
        ': "${HEAD_NODE:?set it on every node to the host name of the first node}"',
        "torchrun --nnodes 4 --nproc-per-node 8 --rdzv-id fsdp2 --rdzv-backend c10d"
        ' --rdzv-endpoint "$HEAD_NODE:29500" train.py --resume',
    )


def test_launch_lines_stop_when_the_head_node_is_not_set() -> None:
    code = generate_training_code("fsdp2", nodes=4, verify=False)
    done = subprocess.run(["bash", "-c", code.launch[0]], env={}, capture_output=True, check=False)
    assert done.returncode != 0


def test_slurm_gets_a_batch_file_that_bash_accepts() -> None:
    code = generate_training_code("hsdp", nodes=4, launcher="slurm", checkpoint="dcp", verify=False)
    script = next(file.content for file in code.files if file.path == "launch.sbatch")
    done = subprocess.run(["bash", "-n"], input=script, encoding="utf-8", capture_output=True, check=False)
    assert (code.launch, done.returncode, done.stderr) == (("sbatch launch.sbatch",), 0, "")
    assert "#SBATCH --nodes=4\n#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-node=8\n" in script


@pytest.mark.parametrize("launcher", ["torchrun", "slurm"])
def test_a_folder_with_shell_characters_reaches_the_import_path_unharmed(odd_folder: Path, launcher: str) -> None:
    code = generate_training_code(
        "ddp", model="pkg.model:build", project_dir=str(odd_folder), launcher=launcher, verify=False
    )
    texts = code.launch if launcher == "torchrun" else code.files[1].content.splitlines()
    export = next(line for line in texts if line.startswith("export PYTHONPATH="))
    command = f'{export}\nprintf %s "$PYTHONPATH"'
    done = subprocess.run(
        ["bash", "-c", command], cwd=odd_folder, env={}, capture_output=True, encoding="utf-8", check=True
    )
    assert done.stdout == str(odd_folder)
    assert list(odd_folder.iterdir()) == []


def test_a_snippet_has_no_launch_line() -> None:
    assert generate_training_code("ddp", what="snippet", verify=False).launch == ()
