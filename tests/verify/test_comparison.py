"""compare= on real ranks, and the tolerance it judges by."""

from pathlib import Path

import pytest

from fsdp_mcp.errors import BadArgument
from fsdp_mcp.lab import Comparison, Difference
from fsdp_mcp.tokens import estimate_tokens
from fsdp_mcp.verify.comparison import step_tolerance
from fsdp_mcp.verify.run import run_on_gloo
from fsdp_mcp.verify.run_numbers import RankNumbers

SCRIPTS = Path(__file__).parent / "scripts"


def text(name: str) -> str:
    """Return a script."""
    return (SCRIPTS / name).read_text(encoding="utf-8")


@pytest.mark.ranks
def test_shards_in_two_dimensions_compute_what_one_process_computes() -> None:
    report = run_on_gloo(text("two_dimensional.py"), world_size=4, compare="single_process")
    found = report.comparison
    assert found is not None
    assert found.equal, report.render()
    assert None not in (found.losses, found.gradients, found.parameters)
    assert found.notes == ("Dropout was off in both: ranks together draw other masks than one process.",)


@pytest.mark.ranks
def test_flat_parameters_train_as_ddp_does() -> None:
    report = run_on_gloo(text("fsdp1_flat.py"), compare="ddp")
    found = report.comparison
    assert found is not None
    assert found.equal, report.render()
    assert found.gradients is not None
    assert found.notes == ("DDP ran without FSDP's mixed precision and offloading.",)


@pytest.mark.ranks
def test_another_learning_rate_differs_from_the_second_step_on() -> None:
    code = text("fsdp1_flat.py")
    report = run_on_gloo(code, compare=code.replace("lr=0.1", "lr=0.1001"))
    found = report.comparison
    assert found is not None
    assert (found.equal, found.first_step, report.ok, report.negative) == (False, 2, True, True)


@pytest.mark.ranks
def test_data_that_depend_on_the_rank_are_named_as_the_reason() -> None:
    report = run_on_gloo(text("fsdp1_flat.py"), compare="single_process")
    found = report.comparison
    assert found is not None
    assert (found.equal, found.first_step) == (False, 1)
    assert "one process gets other data than the ranks together" in found.notes[0]


@pytest.mark.ranks
def test_a_variant_that_fails_is_no_verdict() -> None:
    report = run_on_gloo("print('no training')", world_size=1, compare="import sys\nsys.exit(3)\n")
    found = report.comparison
    assert found is not None
    assert (found.equal, found.notes) == (
        None,
        ("The second variant failed: rank 0: SystemExit: exit status 3 (train.py:2)",),
    )


def test_one_process_is_no_variant_of_one_process() -> None:
    with pytest.raises(BadArgument, match="needs world_size above 1"):
        run_on_gloo("print()", world_size=1, compare="single_process")


def test_a_word_that_is_no_variant_is_not_taken_for_code() -> None:
    with pytest.raises(BadArgument, match=r"Give single_process, ddp, a \.py file"):
        run_on_gloo("print()", compare="single-gpu")


def test_low_precision_is_given_its_rounding_and_float32_the_order_of_its_sums() -> None:
    single = RankNumbers(precisions={"torch.float32"}, tensors=16, largest_dimension=1024)
    low = RankNumbers(precisions={"torch.float32", "torch.bfloat16"}, tensors=16, largest_dimension=1024)
    order = 2.0**-23 * 2048**0.5
    assert step_tolerance([single], 2) == pytest.approx((order, 4 * order))
    assert step_tolerance([single, low], 2) == pytest.approx((order + 2.0**-8, 4 * (order + 2.0**-8)))


def test_a_comparison_takes_few_tokens() -> None:
    worst = Difference(
        absolute=1e-9, relative=1e-9, tolerance=1e-9, within=False, name="layers.11.attention.w" * 9, step=9
    )
    found = Comparison(
        variant="single_process",
        losses=worst,
        gradients=worst,
        parameters=worst,
        equal=False,
        first_step=1,
        notes=("n" * 900,),
    )
    assert estimate_tokens(found.render()) < 300
