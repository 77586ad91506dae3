"""Finds docs_corpus and loads each fact table into its model, once."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TypeVar

import yaml

from fsdp_mcp.models import Value

Row = TypeVar("Row", bound=Value)


@lru_cache(maxsize=1)
def corpus_dir() -> Path:
    """Return the folder of the corpus: inside the installed package, else beside `src` in a checkout."""
    package = Path(__file__).resolve().parent
    installed = package / "docs_corpus"
    return installed if installed.is_dir() else package.parents[1] / "docs_corpus"


@lru_cache(maxsize=32)
def load_facts(table: str, row: type[Row]) -> tuple[Row, ...]:
    """Return the rows of `docs_corpus/facts/{table}.yaml`, a list of mappings, each checked against the model `row`."""
    text = (corpus_dir() / "facts" / f"{table}.yaml").read_text(encoding="utf-8")
    return tuple(row.model_validate(item) for item in yaml.load(text, Loader=_LOADER))  # noqa: S506, a safe loader


_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
