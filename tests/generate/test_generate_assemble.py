"""Templates become scripts: marks, values, imports."""

import pytest

from fsdp_mcp.generate.assemble import fill, join_blocks, merge_imports

TEMPLATE = """
first = $one
both()  #? a b
neither()  #? !a !b
only_a()  #? a !b
text = "# a comment"  # that stays
"""


@pytest.mark.parametrize(
    ("flags", "kept"),
    [({"a", "b"}, ["both()"]), (set(), ["neither()"]), ({"a"}, ["only_a()"]), ({"b"}, [])],
)
def test_a_marked_line_stays_when_all_its_flags_are_as_wanted(flags: set[str], kept: list[str]) -> None:
    text = fill(TEMPLATE, flags=frozenset(flags), values={"one": 1})
    assert text.splitlines() == ["first = 1", *kept, 'text = "# a comment"  # that stays']


@pytest.mark.parametrize(
    ("value", "literal"),
    [(1, "1"), (1.0, "1.0"), (None, "None"), (True, "True"), ('it\'s "q"\n', '"it\'s \\"q\\"\\n"'), (("A",), '("A",)')],
)
def test_a_value_is_entered_as_a_literal(value: object, literal: str) -> None:
    assert fill("x = $v", flags=frozenset(), values={"v": value}) == f"x = {literal}\n"


def test_a_placeholder_without_a_value_is_an_error() -> None:
    with pytest.raises(KeyError):
        fill("x = $missing", flags=frozenset(), values={})


def test_imports_are_merged_and_sorted_with_the_standard_library_first() -> None:
    lines = ["from torch import nn", "import torch", "import os", "from pkg.a import z, B", "from pkg.a import B, C"]
    assert merge_imports(lines) == "import os\n\nimport torch\nfrom pkg.a import B, C, z\nfrom torch import nn"


def test_blocks_are_joined_with_their_imports_on_top() -> None:
    blocks = ["import os\n\nX = 1\n", "import os\nimport sys\n\n\ndef f():\n    return os, sys\n"]
    text = join_blocks(blocks, header='"""Title."""')
    assert text == '"""Title."""\n\nimport os\nimport sys\n\nX = 1\n\n\ndef f():\n    return os, sys\n'
