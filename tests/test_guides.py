"""The guides: each statement of form that a reader, the search index and the examples rely on."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools.run_guides import blocks, examples, run

from fsdp_mcp.corpus import corpus_dir
from fsdp_mcp.sections import Guide, read_guide

PATHS = sorted((corpus_dir() / "guides").glob("*.md"))
GUIDES = {path.stem: read_guide(path) for path in PATHS}
SAMPLE = ("fsdp2", "join")
"""Whose examples `make test` runs, one of each; `make guides` runs all."""

# Names that exist only in builds with the library in question.
BUILD_DEPENDENT = re.compile(r"torch\.distributed\.(ProcessGroup(NCCL|MPI|UCC|XCCL)\b|_symmetric_memory)")

RESOLVE = """
import importlib, json, sys, warnings

warnings.simplefilter("ignore")


def exists(name):
    first, *rest = name.split(".")
    found, path = importlib.import_module(first), first
    for part in rest:
        path += "." + part
        try:
            found = getattr(found, part) if hasattr(found, part) else importlib.import_module(path)
        except ImportError:
            return part in getattr(found, "__annotations__", {})
    return True


print(json.dumps([name for name in json.load(sys.stdin) if not exists(name)]))
"""


def test_front_matter_names_the_title_the_release_and_official_pages() -> None:
    incomplete = {
        stem
        for stem, guide in GUIDES.items()
        if not (guide.front.torch.startswith(">=") and guide.front.pages and guide.front.symbols)
        or not guide.body.lstrip().startswith(f"# {guide.front.title}\n")
        or not all(page.url.startswith("https://docs.pytorch.org/") for page in guide.front.pages)
    }
    assert incomplete == set()


def test_every_python_block_compiles_on_its_own() -> None:
    broken = []
    for path in PATHS:
        for block in python_blocks(path):
            try:
                compile(block.code, f"{path.name}:{block.line}", "exec")
            except SyntaxError as error:
                broken.append(f"{path.name}:{block.line + (error.lineno or 1) - 1}: {error.msg}")
    assert broken == []


def test_every_torch_name_in_code_and_front_matter_exists() -> None:
    where: dict[str, str] = {}
    for path in PATHS:
        for symbol in GUIDES[path.stem].front.symbols:
            where.setdefault(symbol, f"{path.name}, front matter")
        for block in python_blocks(path):
            for name in torch_names(block.code):
                where.setdefault(name, f"{path.name}:{block.line}")
    names = sorted(name for name in where if not BUILD_DEPENDENT.match(name))
    done = subprocess.run(
        [sys.executable, "-c", RESOLVE], input=json.dumps(names), capture_output=True, encoding="utf-8", check=True
    )
    assert {name: where[name] for name in json.loads(done.stdout)} == {}


def test_torch_names_are_found_through_aliases_and_attributes() -> None:
    code = "import torch.distributed as dist\nfrom torch import nn\nfrom torch.optim import SGD as S\n"
    assert sorted(torch_names(code + "dist.ReduceOp.AVG, nn.Linear(1, 1).weight, S, x.y")) == [
        "torch.distributed",
        "torch.distributed.ReduceOp.AVG",
        "torch.nn",
        "torch.nn.Linear",
        "torch.optim.SGD",
    ]


def test_every_link_to_a_guide_finds_its_page_and_section() -> None:
    dangling = [
        f"{path.name}: {target}"
        for path in PATHS
        for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", without_code(path.read_text(encoding="utf-8")))
        if not resolves(target, inside=path.stem)
    ]
    assert dangling == []


def test_every_section_ends_with_its_sources() -> None:
    without = [
        f"{stem}#{section.slug}"
        for stem, guide in GUIDES.items()
        for section in top_sections(guide)
        if not re.fullmatch(
            r"Sources: \[[^\]]+\]\(https://\S+\)(, \[[^\]]+\]\(https://\S+\))*", section.text.strip().split("\n\n")[-1]
        )
    ]
    assert without == []


def test_every_section_is_short_enough_to_be_read_in_one_reply() -> None:
    long = {
        f"{stem}#{section.slug}": words
        for stem, guide in GUIDES.items()
        for section in guide.sections
        if (words := len(without_code(section.text).split())) > 300
    }
    assert long == {}


def test_a_script_without_its_output_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\n# runs: 2 ranks\nprint(1)\n```\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"page\.md:2"):
        list(examples(page))


def test_every_guide_has_a_script_that_runs() -> None:
    assert [path.name for path in PATHS if not list(examples(path))] == []


@pytest.mark.ranks
@pytest.mark.parametrize("stem", SAMPLE)
def test_a_script_of_the_guide_prints_what_the_guide_says(stem: str) -> None:
    *_, example = examples(corpus_dir() / "guides" / f"{stem}.md")
    assert run(example).problem == ""


def python_blocks(path: Path) -> list:
    return [block for block in blocks(path.read_text(encoding="utf-8")) if block.language == "python"]


def without_code(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def top_sections(guide: Guide) -> list:
    """Return the `##` sections that have no `###` of their own, and the last `###` of the others."""
    following = [*guide.sections[1:], None]
    return [
        section
        for section, after in zip(guide.sections, following, strict=True)
        if section.level > 1 and (after is None or after.level <= 2)
    ]


def resolves(target: str, *, inside: str) -> bool:
    page, _, slug = target.partition("#")
    guide = GUIDES.get(page.removesuffix(".md") if page else inside)
    return guide is not None and (not slug or slug in {section.slug for section in guide.sections})


def torch_names(code: str) -> set[str]:
    """Return the torch names that a program imports or reaches by attributes of what it imports, as full names."""
    tree = ast.parse(code)
    imported = dict(imports(tree))
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    chains = (dotted(node) for node in ast.walk(tree) if id(node) not in inner)
    reached = {
        ".".join([imported[chain[0]], *chain[1:]]) for chain in chains if len(chain) > 1 and chain[0] in imported
    }
    return reached | {name for name in imported.values() if "." in name}


def imports(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the local name and the full name of each import from torch."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "torch":
                    yield (alias.asname, alias.name) if alias.asname else ("torch", "torch")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "torch":
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def dotted(node: ast.AST) -> list[str]:
    """Return the parts of `a.b.c`, or of its longest part in front of a call: an empty list for other nodes."""
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute):
        head = dotted(node.value)
        return [*head, node.attr] if head else []
    return []
