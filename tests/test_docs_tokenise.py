"""Terms of identifiers, words and Chinese."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsdp_mcp.docs.spelling import Spelling
from fsdp_mcp.docs.tokenise import is_identifier, stem, terms_of


@pytest.mark.parametrize(
    ("text", "among"),
    [
        ("torch.distributed.fsdp.fully_shard", {"torch.distributed.fsdp.fully_shard", "fully_shard", "shard", "fsdp"}),
        ("FSDPModule", {"fsdpmodule", "fsdp", "modul"}),
        ("FSDP2", {"fsdp2", "fsdp"}),
        ("NCCL_SOCKET_IFNAME", {"nccl_socket_ifname", "nccl", "socket"}),
        ("--local-rank=0", {"local_rank", "local", "rank"}),
        ("all-reduce", {"all_reduce", "reduc"}),
        ("2.13.0", {"2.13.0"}),
        ("1F1B", {"1f1b"}),
        ("梯度累积", {"梯度", "累积"}),
    ],
)
def test_an_identifier_gives_itself_and_its_parts(text: str, among: set[str]) -> None:
    assert among <= set(terms_of(text))


@pytest.mark.parametrize(
    "words", ["shard shards sharded sharding", "reduce reduces reduced reducing", "param parameters"]
)
def test_forms_of_a_word_share_one_term(words: str) -> None:
    assert len(set(terms_of(words))) == 1


def test_words_without_a_subject_give_no_term() -> None:
    assert terms_of("how do I use the 怎么 ?!") == []


@given(st.text())
def test_any_text_gives_folded_terms(text: str) -> None:
    assert all(term and term == term.casefold() for term in terms_of(text))


@given(st.text(alphabet="abcdefghijklmnopqrstuvwxyz", min_size=1, max_size=20))
def test_a_stem_is_never_empty(word: str) -> None:
    assert stem(word)


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("fully_shard", True),
        ("DeviceMesh", True),
        ("a.b", True),
        ("barrier", False),
        ("NCCL", False),
        ("中文_a", False),
    ],
)
def test_code_is_told_from_words(word: str, expected: bool) -> None:
    assert is_identifier(word) is expected


@pytest.mark.parametrize("wrong", ["MixedPrecisonPolicy", "mixedprecisionpolicys", "MixdPrecisionPolicy"])
def test_a_misspelt_name_finds_its_target(wrong: str) -> None:
    names = ["mixedprecision", "mixedprecisionpolicy", "offloadpolicy", "fully_shard"]
    assert Spelling(names).closest(wrong) == ["mixedprecisionpolicy"]


def test_a_word_that_resembles_nothing_finds_no_name() -> None:
    assert Spelling(["fully_shard", "devicemesh"]).closest("kubernetes") == []
