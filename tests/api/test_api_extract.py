"""The API of a torch is read from its files as an import would show it."""

from __future__ import annotations

import ast
import inspect
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from fsdp_mcp.api.catalogue import Catalogue
from fsdp_mcp.api.extract import TorchApi, extract_api, read_torch
from fsdp_mcp.models import ApiSymbol

Read = Callable[[Mapping[str, str]], dict[str, ApiSymbol]]
Write = Callable[[Mapping[str, str]], Path]

_IMPORT = """
import importlib, inspect, json, sys
import torch.distributed as dist

def owner(path):
    parts = path.split(".")
    for end in range(len(parts) - 1, 0, -1):
        try:
            value = importlib.import_module(".".join(parts[:end]))
            break
        except ImportError:
            continue
    for part in parts[end:-1]:
        value = getattr(value, part)
    return value, parts[-1]

signatures = {}
for path in json.load(sys.stdin):
    try:
        value, name = owner(path)
        value = inspect.getattr_static(value, name)
        is_static = isinstance(value, staticmethod)
        value = getattr(value, "__func__", value)
        signatures[path] = [is_static, list(inspect.signature(value).parameters)]
    except (AttributeError, ImportError, TypeError, ValueError):
        continue
print(json.dumps({"all": dist.distributed_c10d.__all__, "signatures": signatures}))
"""


def _import(paths: list[str]) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _IMPORT],
        input=json.dumps(paths),
        capture_output=True,
        encoding="utf-8",
        timeout=180,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def _names_of(symbol: ApiSymbol) -> list[str]:
    assert symbol.signature is not None
    function = ast.parse(f"def {symbol.signature}: ...").body[0]
    assert isinstance(function, ast.FunctionDef)
    arguments = function.args
    names = [item.arg for item in (*arguments.posonlyargs, *arguments.args)]
    names += [arguments.vararg.arg] if arguments.vararg else []
    names += [item.arg for item in arguments.kwonlyargs]
    return names + ([arguments.kwarg.arg] if arguments.kwarg else [])


def test_signatures_and_names_agree_with_the_imported_torch(torch_api: TorchApi, catalogue: Catalogue) -> None:
    python = [raw.symbol for raw in torch_api.symbols if not raw.symbol.home.startswith("torch._C.")]
    functions = [symbol for symbol in python if symbol.kind == "function"]
    methods = [symbol for symbol in python if symbol.kind == "method"]
    imported = _import([symbol.qualified_name for symbol in (*functions, *methods)])
    signatures = imported["signatures"]
    assert isinstance(signatures, dict)

    differing = {}
    for symbol in (*functions, *methods):
        if symbol.qualified_name in signatures and "\n" not in (symbol.signature or ""):
            is_static, names = signatures[symbol.qualified_name]
            expected = names[1:] if symbol.kind == "method" and not is_static else names
            if _names_of(symbol) != expected:
                differing[symbol.qualified_name] = (_names_of(symbol), expected)
    assert len(signatures) > 800
    assert differing == {}
    assert isinstance(imported["all"], list)
    assert [name for name in imported["all"] if catalogue.resolve(f"torch.distributed.{name}") is None] == []


def test_every_name_listed_by_a_module_is_found(torch_api: TorchApi) -> None:
    known = {raw.symbol.qualified_name for raw in torch_api.symbols}
    known |= {path for raw in torch_api.symbols for path in raw.symbol.other_paths}
    assert torch_api.skipped == ()
    assert {
        "torch.distributed.fsdp.fully_shard",
        "torch.distributed._composable.fsdp.fully_shard",
        "torch.distributed.DeviceMesh",
        "torch.distributed.TCPStore",
        "torch.distributed.DistStoreError",
        "torch.distributed.checkpoint.state_dict.get_state_dict",
        "torch.distributed.algorithms.Join",
        "torch.nn.utils.clip_grad_norm_",
        "torch.utils.checkpoint.checkpoint",
        "torch.amp.GradScaler",
        "torch.distributed.autograd.backward",
    } <= known


def test_the_most_public_path_names_an_object_and_the_others_are_kept(read: Read) -> None:
    symbols = read(
        {
            "distributed/fsdp/__init__.py": """
                from ._impl import shard
                __all__ = ["shard"]
            """,
            "distributed/fsdp/_impl.py": "def shard(module): ...",
            "distributed/fsdp/old.py": """
                from ._impl import shard
                __all__ = ["shard"]
            """,
        }
    )
    shard = symbols["torch.distributed.fsdp.shard"]
    assert (shard.home, shard.other_paths, shard.source) == (
        "torch.distributed.fsdp._impl.shard",
        ("torch.distributed.fsdp.old.shard",),
        "torch/distributed/fsdp/_impl.py:1",
    )


def test_all_may_be_computed_and_conditional(read: Read) -> None:
    symbols = read(
        {
            "distributed/__init__.py": """
                def is_available(): ...
                if is_available():
                    from .core import *
                else:
                    def reduce(stub): ...
            """,
            "distributed/core.py": """
                from . import api
                from .api import *
                __all__ = ["reduce"]
                __all__ += api.__all__
                try:
                    from torch._C._distributed_c10d import ProcessGroupFast
                    __all__ += ["ProcessGroupFast"]
                except ImportError:
                    pass
                def reduce(tensor): ...
                def helper(): ...
            """,
            "distributed/api.py": """
                __all__ = ["gather"]
                def gather(tensor): ...
            """,
            "_C/_distributed_c10d.pyi": "class ProcessGroupFast: ...",
        }
    )
    assert symbols["torch.distributed.reduce"].signature == "reduce(tensor)"
    assert "torch.distributed.gather" in symbols
    assert symbols["torch.distributed.ProcessGroupFast"].build_dependent
    assert not symbols["torch.distributed.reduce"].build_dependent
    assert "torch.distributed.helper" not in symbols


def test_names_that_only_a_type_checker_sees_are_left_out(read: Read) -> None:
    symbols = read(
        {
            "distributed/__init__.py": """
                from typing import TYPE_CHECKING
                if TYPE_CHECKING:
                    def imagined(): ...
                def real(): ...
            """,
        }
    )
    assert "torch.distributed.real" in symbols
    assert "torch.distributed.imagined" not in symbols


def test_the_implementation_below_overloads_counts(read: Read) -> None:
    symbols = read(
        {
            "distributed/__init__.py": """
                from typing import overload
                @overload
                def wrap(module: int) -> int: ...
                @overload
                def wrap(module: str) -> str: ...
                def wrap(module, *, mesh=None): ...
            """,
            "_C/_distributed_c10d.pyi": "",
        }
    )
    assert symbols["torch.distributed.wrap"].signature == "wrap(module, *, mesh=None)"


def test_a_stub_with_overloads_shows_all_and_lists_the_widest(read: Read) -> None:
    symbols = read(
        {
            "distributed/__init__.py": "from torch._C._distributed_c10d import Store",
            "_C/_distributed_c10d.pyi": """
                class Store:
                    @overload
                    def wait(self, keys: list[str]) -> None: ...
                    @overload
                    def wait(self, keys: list[str], timeout: timedelta) -> None: ...
            """,
        }
    )
    wait = symbols["torch.distributed.Store.wait"]
    assert wait.signature == "wait(keys: list[str]) -> None\nwait(keys: list[str], timeout: timedelta) -> None"
    assert [item.name for item in wait.parameters] == ["keys", "timeout"]


def test_dataclass_fields_are_parameters_those_of_bases_first(read: Read) -> None:
    symbols = read(
        {
            "distributed/__init__.py": """
                from dataclasses import dataclass, field
                from typing import ClassVar
                @dataclass
                class Base:
                    '''A base.'''
                    first: int
                    shared: ClassVar[int] = 3
                @dataclass(frozen=True)
                class Config(Base):
                    '''A config.

                    Attributes:
                        names (list): What to call it.
                    '''
                    names: list = field(default_factory=list)
                    made: int = field(init=False)
                    size: int = field(default=4)
            """,
        }
    )
    config = symbols["torch.distributed.Config"]
    assert config.signature == "Config(first: int, names: list = list(), size: int = 4)"
    assert [item.description for item in config.parameters] == [None, "What to call it.", None]
    assert symbols["torch.distributed.Config.names"].kind == "attribute"


def test_members_are_symbols_and_private_bases_lend_theirs(read: Read) -> None:
    symbols = read(
        {
            "distributed/__init__.py": """
                from enum import Enum
                class _Hidden:
                    def lent(self, x: int) -> str: ...
                class Group(_Hidden):
                    @property
                    def rank(self) -> int: ...
                    @classmethod
                    def make(cls, size): ...
                    @staticmethod
                    def free(text): ...
                    def _private(self): ...
                class Mode(Enum):
                    FAST = 1
                class OddError(RuntimeError):
                    pass
            """,
        }
    )
    shown = {
        name.removeprefix("torch.distributed."): (item.kind, item.signature)
        for name, item in symbols.items()
        if name.startswith("torch.distributed.")
    }
    assert shown == {
        "Group": ("class", "Group()"),
        "Group.lent": ("method", "lent(x: int) -> str"),
        "Group.rank": ("property", "rank: int"),
        "Group.make": ("method", "make(size)"),
        "Group.free": ("method", "free(text)"),
        "Mode": ("class", None),
        "Mode.FAST": ("attribute", "FAST = 1"),
        "OddError": ("exception", None),
    }


def test_options_taken_out_of_kwargs_are_parameters(read: Read) -> None:
    symbols = read(
        {
            "utils/checkpoint.py": """
                __all__ = ["checkpoint"]
                def checkpoint(function, *args, use_reentrant=None, **kwargs):
                    preserve = kwargs.pop("preserve_rng_state", True)
            """,
        }
    )
    checkpoint = symbols["torch.utils.checkpoint.checkpoint"]
    assert checkpoint.signature == "checkpoint(function, *args, use_reentrant=None, **kwargs)"
    assert [(item.name, item.default) for item in checkpoint.parameters] == [
        ("function", None),
        ("*args", None),
        ("use_reentrant", "None"),
        ("**kwargs", None),
        ("preserve_rng_state", "True"),
    ]


def test_a_function_hides_the_module_of_its_name(read: Read) -> None:
    symbols = read(
        {
            "nn/parallel/__init__.py": """
                from .replicate import replicate
                __all__ = ["replicate"]
            """,
            "nn/parallel/replicate.py": """
                __all__ = ["replicate"]
                def replicate(network, devices): ...
            """,
        }
    )
    assert symbols["torch.nn.parallel.replicate"].kind == "function"


def test_modules_that_torch_redirects_are_followed(read: Read) -> None:
    symbols = read(
        {
            "distributed/_tensor/__init__.py": "",
            "distributed/tensor/device_mesh.py": """
                __all__ = ["Mesh"]
                class Mesh: ...
            """,
        }
    )
    assert symbols["torch.distributed.tensor.device_mesh.Mesh"].other_paths == (
        "torch.distributed._tensor.device_mesh.Mesh",
    )


def test_deprecations_are_read_from_decorators_and_unconditional_warnings(read: Read) -> None:
    symbols = read(
        {
            "distributed/__init__.py": """
                import warnings
                from typing_extensions import deprecated
                @deprecated("Use " "other.")
                def marked(): ...
                def warned():
                    '''Docs.'''
                    warnings.warn("Going away.", FutureWarning, stacklevel=2)
                def sometimes(flag):
                    if flag:
                        warnings.warn("The flag goes away.", FutureWarning)
            """,
        }
    )
    texts = [symbols[f"torch.distributed.{name}"].deprecated for name in ("marked", "warned", "sometimes")]
    assert texts == ["Use other.", "Going away.", None]


def test_options_of_torchrun_are_symbols(read: Read) -> None:
    symbols = read(
        {
            "distributed/run.py": """
                def get_args_parser():
                    parser.add_argument("--number-of-nodes", "--number_of_nodes", action=env, type=str, default="1",
                                        help="Number of " "nodes.")
                    parser.add_argument("--alone", action="store_true", help="Local.")
                    parser.add_argument("training_script", type=str)
            """,
        }
    )
    options = {name: item for name, item in symbols.items() if item.kind == "option"}
    assert {name: (item.signature, item.text) for name, item in options.items()} == {
        "torchrun --number-of-nodes": (
            "--number-of-nodes STR (default: '1')",
            "Number of nodes.\n\nThe environment variable `PET_NUMBER_OF_NODES` sets its default.",
        ),
        "torchrun --alone": ("--alone", "Local."),
    }
    assert "number_of_nodes" in options["torchrun --number-of-nodes"].other_paths


def test_a_file_that_does_not_parse_is_skipped_and_named(write_torch: Write) -> None:
    folder = write_torch(
        {
            "distributed/__init__.py": "def barrier(group=None): ...",
            "distributed/broken.py": "def f(:",
            "distributed/latin.py": "",
        }
    )
    (folder / "distributed" / "latin.py").write_bytes(b"name = '\xff'")
    api = read_torch(folder)
    assert api.skipped == ("distributed/broken.py", "distributed/latin.py")
    assert [raw.symbol.qualified_name for raw in api.symbols] == [
        "torch.distributed",
        "torch.distributed.barrier",
    ]


def test_a_torch_without_distributed_has_what_is_left(write_torch: Write, tmp_path: Path) -> None:
    folder = write_torch({"utils/checkpoint.py": "__all__ = ['checkpoint']\ndef checkpoint(function): ..."})
    assert {symbol.qualified_name for symbol in extract_api(folder)} == {
        "torch.utils.checkpoint",
        "torch.utils.checkpoint.checkpoint",
    }
    assert extract_api(tmp_path / "nothing") == ()


def test_imports_in_a_circle_end(read: Read) -> None:
    symbols = read(
        {
            "distributed/__init__.py": "from .a import *",
            "distributed/a.py": "from .b import *\nfrom .b import lost",
            "distributed/b.py": "from .a import *\nfrom .a import lost\ndef found(): ...",
        }
    )
    assert "torch.distributed.found" in symbols
    assert not any(name.endswith("lost") for name in symbols)


def test_every_symbol_has_a_source_line_that_defines_it(catalogue: Catalogue, torch_dir: Path) -> None:
    wrong = []
    for symbol in catalogue:
        if symbol.kind in ("function", "class", "method"):
            assert symbol.source is not None
            path, _, line = symbol.source.rpartition(":")
            text = (torch_dir.parent / path).read_text(encoding="utf-8").splitlines()[int(line) - 1]
            if not inspect.cleandoc(text).startswith(("def ", "async def ", "class ")):
                wrong.append((symbol.qualified_name, text))
    assert wrong == []
