"""What runs in the target interpreter may not need more than an old Python and its torch."""

import ast
import stat
import sys
from pathlib import Path

from fsdp_mcp import verify
from fsdp_mcp.verify.rank_side import rank_main
from fsdp_mcp.verify.rank_side.job import Job, remove_tree

FILES = sorted(Path(verify.__file__).with_name("rank_side").glob("*.py"))


def test_the_files_parse_on_the_oldest_python_of_a_target() -> None:
    assert [path for path in FILES if not ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 8))] == []


def test_the_files_import_only_the_standard_library_and_torch() -> None:
    imported = set()
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {name.name.partition(".")[0] for name in node.names}
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                imported.add(str(node.module).partition(".")[0])
    assert imported - set(sys.stdlib_module_names) == {"torch"}


def test_a_folder_without_permissions_is_removed_and_what_a_link_names_is_not(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(mode=stat.S_IRUSR | stat.S_IXUSR)
    locked = tmp_path / "scratch" / "a" / "b"
    locked.mkdir(parents=True)
    (locked / "file").touch()
    (tmp_path / "scratch" / "link").symlink_to(outside)
    locked.chmod(0)
    locked.parent.chmod(0)
    remove_tree(str(tmp_path / "scratch"))
    assert not (tmp_path / "scratch").exists()
    assert stat.S_IMODE(outside.stat().st_mode) == stat.S_IRUSR | stat.S_IXUSR


def test_a_job_is_read_as_it_was_written(tmp_path: Path) -> None:
    job = Job(
        entry="/x/train.py",
        arguments=["--é", "1"],
        world_size=2,
        nodes=1,
        timeout_seconds=1.5,
        scratch="/s",
        work_dir="/s/code",
        import_path=["/s/code"],
        user_roots=["/s/code"],
        preload=[],
        fresh=False,
        starts_ranks=False,
        map_cuda=False,
    )
    job.write(str(tmp_path / "job.json"))
    assert Job.read(str(tmp_path / "job.json")) == job


def test_our_own_files_are_never_the_users() -> None:
    ours = rank_main.__file__
    root = str(Path(ours).parents[3])
    assert (rank_main.is_users(ours, [root]), rank_main.is_users(f"{root}/train.py", [root])) == (False, True)
