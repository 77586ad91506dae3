"""The wheel, built and installed into a folder of its own, answers without the checkout."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    return next(folder.glob("*.whl"))


def test_the_wheel_carries_the_whole_corpus(wheel):
    corpus = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs_corpus").rglob("*") if path.is_file()}
    packed = set(zipfile.ZipFile(wheel).namelist())
    assert {f"fsdp_mcp/{path}" for path in corpus} - packed == set()


def test_the_wheel_does_not_require_torch(wheel):
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith("METADATA"))
        metadata = archive.read(name).decode("utf-8")
    needed = [line for line in metadata.splitlines() if line.startswith("Requires-Dist: torch")]
    assert all("extra == 'torch'" in line for line in needed)


def test_the_installed_wheel_reads_its_own_corpus(wheel, tmp_path):
    site = tmp_path / "site"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site), str(wheel)]
    subprocess.run(install, check=True, capture_output=True)
    ask = "import fsdp_mcp.corpus as c; print(c.corpus_dir()); print([g.stem for g in c.guide_headers()])"
    environment = {**os.environ, "PYTHONPATH": str(site)}
    done = subprocess.run(
        [sys.executable, "-c", ask], cwd=tmp_path, env=environment, capture_output=True, encoding="utf-8", check=True
    )
    folder, guides = done.stdout.splitlines()
    assert Path(folder) == site / "fsdp_mcp" / "docs_corpus"
    assert "fsdp2" in guides
