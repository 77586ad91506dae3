"""What run_on_gloo tells of one simulated rank of a large world, and that it is what a real run of it does."""

from collections import Counter
from pathlib import Path

import pytest

from fsdp_mcp.run_report import RunReport
from fsdp_mcp.simulated import Simulation, UnevenDimension, size
from fsdp_mcp.tokens import estimate_tokens
from fsdp_mcp.verify.run import run_on_gloo

SCRIPTS = Path(__file__).parent / "scripts"


def simulated(report: RunReport) -> Simulation:
    assert report.simulation is not None, report.render()
    return report.simulation


@pytest.mark.ranks
def test_a_rank_of_4096_tells_mesh_shards_bytes_and_collectives_of_a_model_larger_than_memory() -> None:
    code = (SCRIPTS / "hsdp_over_tp.py").read_text(encoding="utf-8")
    report = run_on_gloo(code, simulate={"world_size": 4096, "rank": 4095}, nodes=512)
    found = simulated(report)
    assert (report.ok, found.tensors, found.steps, report.ranks[0].rank) == (True, "fake", 2, 4095)
    assert [(mesh.shape, mesh.names, mesh.coordinate) for mesh in found.mesh if not mesh.part] == [
        ((2, 256, 8), ("replicate", "shard", "tp"), (1, 255, 7))
    ]
    by_name = {one.name: one for one in found.parameters}
    column, embedding = by_name["1.0.weight"], by_name["0.weight"]
    assert (column.shape, column.local_shape, column.local_bytes) == ((65_536, 16_384), (32, 16_384), 32 * 16_384 * 4)
    assert embedding.local_shape == (22, 16_384)
    assert embedding.uneven == (UnevenDimension(dimension=0, size=50_257, held=((197, 255), (22, 1)), in_order=True),)
    assert found.bytes.optimizer_state is not None
    assert found.bytes.optimizer_state >= 2 * found.bytes.parameters
    assert found.bytes.gradients == found.bytes.parameters
    assert {(one.kind, one.group_size, one.mesh_dimension, one.count) for one in found.collectives} == {
        ("all_gather_into_tensor", 256, "shard", 5),
        ("reduce_scatter_tensor", 256, "shard", 3),
        ("all_reduce", 2, "replicate", 3),
        ("all_reduce", 8, "tp", 4),
    }
    assert "loss simulated" in report.ranks[0].output
    assert report.render().startswith("**simulated**: simulation of rank 4095 of 4096")
    assert estimate_tokens("\n".join(found.lines())) < 300


@pytest.mark.ranks
def test_shards_and_collectives_are_those_of_a_real_run() -> None:
    code = (SCRIPTS / "two_dimensional.py").read_text(encoding="utf-8")
    told = """
def held(tensors):
    return sum(t.nbytes for t in (getattr(x, "_local_tensor", x) for x in tensors))
print(held(model.parameters()), held(x for state in optimizer.state.values() for x in state.values()))
print(sorted((name, list(p.to_local().shape)) for name, p in model.named_parameters()))
"""
    real = run_on_gloo(code + told, world_size=4)
    found = simulated(run_on_gloo(code + told, simulate={"world_size": 4, "rank": 3}))
    shapes = sorted((one.name, list(one.local_shape)) for one in found.parameters)
    expected_end = f"{found.bytes.parameters} {found.bytes.optimizer_state}\n{shapes}\n"
    assert real.ranks[3].output.endswith(expected_end)
    counted: Counter[tuple[str, int, int]] = Counter()
    for one in found.collectives:
        times = found.steps if one.phase == "step" else 1
        counted[one.kind, one.group_size, 0] += times * one.count
        counted[one.kind, one.group_size, 1] += times * one.bytes
    expected: Counter[tuple[str, int, int]] = Counter()
    for total in (total for total in real.collectives if total.rank == 3):
        expected[total.kind, len(total.group), 0] += total.count
        expected[total.kind, len(total.group), 1] += total.bytes
    assert counted == expected


@pytest.mark.ranks
def test_a_mesh_that_does_not_fit_is_an_error_at_its_line_or_names_the_ranks_left_out() -> None:
    code = 'from torch.distributed.device_mesh import init_device_mesh\ninit_device_mesh("cuda", (SIZE, 8))\n'
    over = run_on_gloo(code.replace("SIZE", "16"), simulate=64)
    under = run_on_gloo(code.replace("SIZE", "3"), simulate=64)
    assert over.first_failure is not None
    assert (over.ok, over.first_failure.line, over.negative) == (False, 2, True)
    assert "**40 of 64 ranks left out**" in under.render()


@pytest.mark.ranks
def test_a_script_that_needs_values_runs_with_real_tensors_and_the_report_says_why() -> None:
    code = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
x = torch.randn(10)
dist.all_reduce(x[x > -9])
"""
    found = simulated(run_on_gloo(code, simulate=8))
    assert (found.tensors, [(one.kind, one.group_size, one.bytes) for one in found.collectives]) == (
        "real",
        [("all_reduce", 8, 40)],
    )
    assert found.notes[0].startswith("real tensors, as fake ones failed at train.py:5")


def test_bytes_are_told_in_the_largest_unit_that_fits() -> None:
    assert [size(count) for count in (0, 1023, 1536, 3 << 30, 5 << 40)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "3 GiB",
        "5 TiB",
    ]
