"""The layers of the design, read from the import statements."""

import ast
import subprocess
import sys
from pathlib import Path

import fsdp_mcp

PACKAGE = Path(fsdp_mcp.__file__).parent

# A module may import those of lower layers only; capabilities of one layer never import each other.
LAYERS = (
    {
        "errors",
        "models",
        "lab",
        "simulated",
        "run_report",
        "phrases",
        "releases",
        "tokens",
        "prompts",
        "call",
        "cache",
        "usage",
    },
    {"corpus", "target", "script", "sections"},
    {"docs", "api"},
    {"backends", "generate", "verify", "migrate", "review", "diagnose", "plan"},
    {"index", "index_build", "index_store", "library"},
    {"toolbox", "doctor"},
    {"server", "http", "demo"},
    {"command", "tool_command", "docs_command"},
    {"__main__"},
)
# Within these layers modules build on one another.
FOUNDATIONS = (LAYERS[0], LAYERS[1], LAYERS[4], LAYERS[6], LAYERS[7])
SPEAKS_MCP = {"server", "http", "demo"}
RUNS_BESIDE_TORCH = {"verify/rank_side", "api/probe.py"}
HEAVY = ("libcst", "griffe", "numpy", "markdown_it", "torch", "rank_bm25")


def _area(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def _imports(path: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return found


def _modules() -> list[Path]:
    return [path for path in sorted(PACKAGE.rglob("*.py")) if path.parent != PACKAGE or path.stem != "__init__"]


def _layer(area: str) -> int:
    return next(number for number, areas in enumerate(LAYERS) if area in areas)


def test_every_module_belongs_to_a_layer():
    known = set().union(*LAYERS)
    assert {_area(path) for path in _modules()} - known == set()


def test_imports_point_down_and_never_sideways():
    wrong = []
    for path in _modules():
        area = _area(path)
        for name in _imports(path):
            parts = name.split(".")
            if parts[0] != "fsdp_mcp" or parts[1].startswith("__version") or parts[1] == area:
                continue
            sideways = _layer(parts[1]) == _layer(area) and LAYERS[_layer(area)] not in FOUNDATIONS
            if _layer(parts[1]) > _layer(area) or sideways:
                wrong.append(f"{path.relative_to(PACKAGE)} imports {name}")
    assert wrong == []


def test_only_the_protocol_modules_import_mcp():
    speaking = {_area(p) for p in _modules() if any(n.split(".")[0] in ("mcp", "mcp_types") for n in _imports(p))}
    assert speaking <= SPEAKS_MCP


def test_only_files_that_run_beside_torch_import_it():
    importing = {
        path.relative_to(PACKAGE).as_posix()
        for path in _modules()
        if any(name.split(".")[0] == "torch" for name in _imports(path))
    }
    assert {name for name in importing if not name.startswith(tuple(RUNS_BESIDE_TORCH))} == set()


def test_listing_the_tools_loads_no_heavy_package():
    code = (
        "import sys, fsdp_mcp.server, fsdp_mcp.toolbox as t\n"
        "[tool.input_schema() for tool in t.TOOLS]\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=True)
    assert done.stdout.strip() == "[]"


def test_no_module_beside_the_ranks_is_called_like_one_of_the_standard_library():
    """Processes that a script starts find the folder of these modules on their import path, before the library."""
    beside = [path.stem for path in _modules() if "verify" in path.parts]
    assert set(beside) & sys.stdlib_module_names == set()
