"""The verdicts of the benchmark: a ratio where there is a reference, else the value, from either side."""

import pytest
from tools.bench.figure import Figure


@pytest.mark.parametrize(
    ("figure", "kept"),
    [
        (Figure("g", "n", 6, "ms", reference=5, budget=1.2), True),
        (Figure("g", "n", 7, "ms", reference=5, budget=1.2), False),
        (Figure("g", "n", 70, "req/s", reference=100, budget=0.7, at_least=True), True),
        (Figure("g", "n", 69, "req/s", reference=100, budget=0.7, at_least=True), False),
        (Figure("g", "n", 251, "MB", budget=250), False),
        (Figure("g", "n", 1, "MB"), None),
    ],
)
def test_a_budget_bounds_the_ratio_if_there_is_a_reference_and_the_value_otherwise(figure, kept):
    assert figure.kept is kept
