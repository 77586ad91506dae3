"""Finds docs_corpus and loads each fact table into its model, once."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field

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
    return tuple(row.model_validate(item) for item in read_yaml(text))


_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's is ten times as fast, and often missing.


def read_yaml(text: str) -> Any:
    """Return what a YAML text holds; a broken one raises yaml.YAMLError."""
    return yaml.load(text, Loader=_LOADER)  # noqa: S506, both loaders are safe


class GuideHeader(BaseModel):
    """What a list of guides says of one; further front matter is the section splitter's business."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    stem: str = Field(description="File name without .md")
    title: str
    summary: str = Field(description="One sentence")


@lru_cache(maxsize=1)
def guide_headers() -> tuple[GuideHeader, ...]:
    """Return the header of each guide in name order; one whose front matter is broken is left out."""
    headers = []
    for path in sorted((corpus_dir() / "guides").glob("*.md")):
        front_matter = path.read_text(encoding="utf-8").split("---", 2)[1:2]
        try:
            headers.append(GuideHeader.model_validate({**read_yaml(front_matter[0]), "stem": path.stem}))
        except (IndexError, TypeError, ValueError, yaml.YAMLError):
            continue
    return tuple(headers)
