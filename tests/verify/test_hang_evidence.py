"""What tells one hang from another, without ranks: pairs of calls, stacks, conditions in the source."""

from pathlib import Path

import pytest

from fsdp_mcp.verify.condition import (
    Branch,
    Condition,
    branches,
    loop_around,
    swallowing_handler,
    swapped_branches,
)
from fsdp_mcp.verify.hang_sites import Sites
from fsdp_mcp.verify.rank_side.collective_log import Call, Place, Reader, Writer
from fsdp_mcp.verify.rank_side.collective_match import Matcher, why_not_fitting
from fsdp_mcp.verify.rank_side.collective_watch import stands_in_collective

REDUCE = Call("all_reduce", "1:0", (0, 1), (4,), 4, "float32", 16, "", None, 0, (Place("train.py", 3, "main"),))
SEND = REDUCE._replace(kind="send", peer=1)
RECEIVE = REDUCE._replace(kind="recv", peer=0)


def test_a_call_waits_until_every_rank_of_the_group_has_begun_it() -> None:
    matcher = Matcher()
    matcher.add(0, REDUCE)
    waits = matcher.waits(0)
    assert waits is not None
    assert (waits.sequence, matcher.missing(waits)) == (0, (1,))
    matcher.add(1, REDUCE)
    assert (matcher.waits(0), matcher.waits(1), matcher.mismatch) == (None, None, None)


def test_calls_that_meet_are_compared_by_number_within_their_group() -> None:
    matcher = Matcher()
    other_group = REDUCE._replace(group="1:1")
    for rank, call in ((0, other_group), (0, REDUCE), (1, REDUCE), (1, REDUCE._replace(kind="barrier"))):
        matcher.add(rank, call)
    assert matcher.mismatch is None
    matcher.add(0, REDUCE)
    assert matcher.mismatch is not None
    assert [begun.call.kind for begun in matcher.mismatch] == ["barrier", "all_reduce"]


@pytest.mark.parametrize(("expected", "fits"), [((2, 1), True), ((1, 2), False), ((1, 2, 3), True)])
def test_rows_that_one_rank_sends_are_those_that_the_other_expects(expected: tuple[int, ...], fits: bool) -> None:
    matcher = Matcher()
    matcher.add(0, REDUCE._replace(kind="all_to_all_single", elements=None, splits=((1, 2), (1, 3))))
    matcher.add(1, REDUCE._replace(kind="all_to_all_single", elements=None, splits=((3, 1), expected)))
    assert (matcher.mismatch is None) == fits


def test_a_receive_pairs_with_the_send_of_the_other_end() -> None:
    matcher = Matcher()
    matcher.add(1, RECEIVE)
    matcher.add(0, SEND._replace(tag=1))
    assert matcher.waits(1) is not None
    matcher.add(0, SEND)
    assert (matcher.waits(1), matcher.mismatch) == (None, None)


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        (REDUCE._replace(shape=(2, 2)), None),
        (REDUCE._replace(elements=5), "shape"),
        (REDUCE._replace(dtype="bfloat16"), "shape"),
        (REDUCE._replace(kind="broadcast"), "kind"),
        (REDUCE._replace(detail="root 1"), "detail"),
        (REDUCE._replace(elements=None), None),
    ],
)
def test_calls_fit_when_kind_size_and_root_agree(other: Call, difference: str | None) -> None:
    assert why_not_fitting(REDUCE, other) == difference


def test_a_log_is_read_while_it_grows_and_nonsense_in_it_is_left_out(tmp_path: Path) -> None:
    writer, reader = Writer(tmp_path / "log"), Reader(tmp_path / "log")
    line = writer.describe(REDUCE)
    writer.note(line)
    assert reader.new_calls() == [REDUCE]
    writer.note(b"7\n[]\nx\n" + line + line[:1])
    assert reader.new_calls() == [REDUCE]
    writer.note(line[1:])
    assert reader.new_calls() == [REDUCE]


MAIN = "main 0x00000001\nCurrent thread 0x00000001 (most recent call first):\n"


@pytest.mark.parametrize(
    ("frames", "waits"),
    [
        (['"/x/torch/distributed/distributed_c10d.py", line 9 in all_reduce', '"/s/train.py", line 2 in main'], True),
        (['"/x/torch/autograd/graph.py", line 9 in _engine_run_backward', '"/s/train.py", line 2 in main'], True),
        (['"/s/train.py", line 2 in hook', '"/x/torch/autograd/graph.py", line 9 in _engine_run_backward'], False),
        (['"/x/torch/distributed/checkpoint/filesystem.py", line 9 in write'], False),
        ([], False),
    ],
)
def test_a_rank_waits_when_its_innermost_line_is_in_torch_distributed(frames: list[str], waits: bool) -> None:
    assert stands_in_collective(MAIN + "".join(f"  File {frame}\n" for frame in frames)) == waits


def test_a_second_thread_of_the_users_keeps_a_rank_from_being_stuck() -> None:
    waiting = '  File "/x/torch/distributed/distributed_c10d.py", line 9 in barrier\n'
    working = 'Thread 0x00000002 (most recent call first):\n  File "/s/train.py", line 9 in prefetch\n'
    assert stands_in_collective(MAIN + waiting)
    assert not stands_in_collective(f"main 0x00000001\n{working}\n{MAIN.partition(chr(10))[2]}{waiting}")


SOURCE = """def step(rank):
    if rank != 0:
        return
    if rank == 0 and ready:
        save()
    try:
        sync()
    except ValueError:
        log()
if dist.get_rank() == 0:
    first()
    second()
else:
    second()
    first()
third()
"""


@pytest.fixture
def source(tmp_path: Path) -> str:
    path = tmp_path / "train.py"
    path.write_text(SOURCE, encoding="utf-8")
    return str(path)


def test_conditions_on_the_rank_are_read_from_the_source(source: str) -> None:
    found = {line: [each.condition for each in branches(source, line) if each.of_rank] for line in (5, 7, 11, 16)}
    guard, first_only = Condition(2, "rank != 0"), Condition(10, "dist.get_rank() == 0")
    assert found == {5: [guard, Condition(4, "rank == 0 and ready")], 7: [guard], 11: [first_only], 16: []}


def test_branches_with_the_same_calls_in_another_order_are_seen(source: str) -> None:
    assert swapped_branches(source, 11, 14) == Condition(10, "dist.get_rank() == 0")
    assert swapped_branches(source, 11, 12) is None


def test_a_handler_that_hides_an_exception_is_seen(source: str) -> None:
    assert swallowing_handler(source, 7) == Condition(8, "except ValueError")
    assert swallowing_handler(source, 5) is None


DECIDES = """def setup():
    return dist.get_rank(), 2
r, size = setup()
if r == 0: dist.barrier()
main = r == 0
main and save()
group = new([0, 1]) if r else new([2])
for batch in data:
    if isnan(batch):
        continue
    step(batch)
if __name__ == "__main__":
    sync()
"""


def test_conditions_on_the_line_itself_and_names_of_the_rank_are_read(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(DECIDES, encoding="utf-8")
    found = {line: [(*branch[1:], branch.condition.text) for branch in branches(str(path), line)] for line in (4, 6, 7)}
    assert found == {
        4: [("then", True, "", "r == 0")],
        6: [("then", True, "", "main")],
        7: [("either", True, "", "r")],
    }
    assert branches(str(path), 11) == (Branch(Condition(9, "isnan(batch)"), "stays", False, "continue"),)
    assert (branches(str(path), 13), loop_around(str(path), 11)) == ((), Condition(8, "for batch in data"))


def test_the_condition_under_which_only_one_rank_made_a_call_decides(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("if a:\n    if loss > 1:\n        one()\n    two()\n", encoding="utf-8")
    one, two = (REDUCE._replace(places=(Place(str(path), line, "f"),)) for line in (3, 4))
    matcher = Matcher()
    for rank, call in ((0, one), (1, two)):
        matcher.add(rank, call)
    sites = Sites(matcher)
    decided = sites.deciding(sites.between(0, 1, (0, 1)) + sites.between(1, 0, (0, 1)))
    assert decided is not None
    assert (decided.site.rank, decided.condition, decided.both) == (0, Condition(2, "loss > 1"), False)
