"""What run_on_gloo tells of losses, NaN and values that ranks should hold alike."""

import math
from pathlib import Path

import pytest

from fsdp_mcp.lab import FirstNaN, Numbers, RankLosses
from fsdp_mcp.verify.run import run_on_gloo
from fsdp_mcp.verify.run_numbers import RankNumbers, disagreeing

SCRIPTS = Path(__file__).parent / "scripts"


@pytest.mark.ranks
def test_a_forward_that_goes_round_ddp_shows_in_gradients_then_parameters_and_nan_at_its_rank() -> None:
    numbers = run_on_gloo((SCRIPTS / "goes_round_ddp.py").read_text(encoding="utf-8")).numbers
    assert numbers is not None
    assert numbers.first_nan == FirstNaN(rank=1, step=5, what="the loss is nan", file="train.py", line=18)
    assert [(one.what, one.name, one.step, one.ranks) for one in numbers.disagreeing] == [
        ("gradient", "weight", 1, (0, 1)),
        ("gradient", "bias", 1, (0, 1)),
        ("parameter", "weight", 1, (0, 1)),
        ("parameter", "bias", 1, (0, 1)),
    ]
    assert numbers.steps == 5
    assert [[value is None for value in losses.values] for losses in numbers.losses] == [
        [False] * 5,
        [False] * 4 + [True],
    ]


@pytest.mark.ranks
def test_ranks_without_a_wrapper_may_differ_and_accumulated_losses_are_one_step() -> None:
    code = """
import os, torch
weight = torch.nn.Parameter(torch.tensor(float(os.environ["RANK"])))
optimizer = torch.optim.SGD([weight], lr=0.5)
scaler = torch.amp.GradScaler("cpu")
for _ in range(2):
    for share in (0.25, 0.75):
        scaler.scale(share * (weight - 3)).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
"""
    numbers = run_on_gloo(code).numbers
    assert numbers == Numbers(
        steps=2,
        losses=(
            RankLosses(rank=0, count=2, values=(-3.0, -3.5)),
            RankLosses(rank=1, count=2, values=(-2.0, -2.5)),
        ),
    )


@pytest.mark.ranks
def test_a_backward_inside_the_closure_of_a_step_belongs_to_that_step() -> None:
    code = """
import torch
weight = torch.nn.Parameter(torch.ones(2))
optimizer = torch.optim.SGD([weight], lr=0.25)
def closure():
    optimizer.zero_grad()
    loss = (weight[:1] / weight[1:]).log().sum() + weight.sum()
    loss.backward()
    weight.grad[1] = torch.inf
    return loss
for _ in range(2):
    optimizer.step(closure)
"""
    numbers = run_on_gloo(code, world_size=1).numbers
    assert numbers is not None
    assert (numbers.steps, numbers.losses[0].values[0]) == (2, 2.0)
    assert numbers.first_nan == FirstNaN(
        rank=0, step=1, what="the gradient of parameter 0 has inf", file="train.py", line=12
    )


def held(*values: float) -> RankNumbers:
    """Return the record of a rank that holds these values after step 2."""
    bits = hash(values)
    return RankNumbers(checks=[(2, "parameter", [["key", "weight", bits, sum(values), len(values), list(values)]])])


def test_equal_values_agree_and_signed_zeros_do() -> None:
    zeros = held(0.0), held(-0.0)
    assert (disagreeing([held(1.0, 2.0), held(1.0, 2.0)]), disagreeing(list(zeros))) == ((), ())


def test_nan_on_one_rank_is_a_difference_without_a_size() -> None:
    found = disagreeing([held(1.0, 2.0), held(1.0, math.nan)])
    assert [(one.name, one.largest_difference) for one in found] == [("weight", None)]


def test_numbers_read_in_a_line_each() -> None:
    losses = tuple(RankLosses(rank=rank, count=2, values=(2.0, 1.0)) for rank in range(2))
    nan = FirstNaN(rank=1, step=2, what="the loss is nan", file="train.py", line=7)
    found = disagreeing([held(1.0), held(1.5)])
    assert Numbers(steps=2, losses=losses, first_nan=nan, disagreeing=found).lines() == [
        "Loss 2 -> 1 in 2 steps, equal on all ranks",
        "**First NaN or infinity**: rank 1, step 2: the loss is nan (train.py:7)",
        "**Ranks disagree**: parameter weight differs by 0.5 at step 2 between ranks 0, 1",
    ]
