"""What may be asked of `sinkflex bench`, and what is said of the rest."""

from __future__ import annotations

from typing import Any

import pytest
from sinkflex.bench.request import IMPLS, parse
from sinkflex.refusal import Refusal

NULLS: dict[str, Any] = dict.fromkeys(
    ("seq", "impls", "num_q_heads", "num_kv_heads", "head_dim", "window", "vocabulary", "hidden", "head", "layers",
     "train", "repeat", "threads")
)  # fmt: skip


def refused(**raw: Any) -> str:
    with pytest.raises(Refusal) as caught:
        parse({"v": 1, "verb": "bench", **NULLS, **raw})
    assert (caught.value.code, caught.value.exit_code) == ("SF-BENCH-REQUEST", 2)
    return caught.value.what


def test_nulls_are_left_to_the_plan() -> None:
    asked = parse(
        {"v": 1, "verb": "bench", "what": "attention", **NULLS, "device": "auto", "command": "sinkflex bench"}
    )
    assert (asked.what, asked.seq, asked.impls, asked.device, asked.dtype) == ("attention", None, None, "auto", "auto")
    assert asked.command == "sinkflex bench"


def test_a_script_names_only_what_it_means() -> None:
    assert parse({}).what == "attention"
    assert parse({"what": "model", "seq": [2048, 1024, 2048]}).seq == (1024, 2048)
    assert parse({"impls": ["flash", "eager", "flash"]}).impls == ("flash", "eager")


@pytest.mark.parametrize("length", [0, -1, True, 1.5, "abc", None])
def test_a_length_is_a_whole_number_from_one_on(length: Any) -> None:
    assert "--seq has" in refused(seq=[64, length])


@pytest.mark.parametrize("seq", [[], "4096", 4096])
def test_lengths_come_as_a_list(seq: Any) -> None:
    assert "--seq is" in refused(seq=seq)


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ({"impls": ["flsh"]}, '--impl is "flsh" (did you mean flash?)'),
        ({"impls": ["naive"]}, "allowed are eager, flash, flex, triton, transformers, fla"),
        ({"impls": []}, "--impl is []"),
        ({"what": "atention"}, '--what is "atention" (did you mean attention?)'),
        ({"what": ["attention"]}, "--what is"),
        ({"dtype": "bfloat"}, "(did you mean bfloat16?)"),
        ({"device": "gpu"}, '--device is "gpu"'),
        ({"windo": 3}, 'unknown key "windo" (did you mean window?)'),
        ({"window": 0}, "--window is 0"),
        ({"threads": -2}, "--threads is -2"),
        ({"repeat": "3"}, '--repeat is "3"'),
        ({"num_q_heads": 6, "num_kv_heads": 4}, "--heads is 6/4"),
        ({"num_q_heads": 6}, "given together"),
        ({"vocabulary": 100}, "--vocabulary means nothing to --what attention; it belongs to --what log-prob"),
        ({"what": "model", "window": 64}, "--window means nothing to --what model"),
        ({"what": "log-prob", "head": "cold"}, '--head is "cold"'),
        ({"seed": "x"}, "seed must be a whole number"),
    ],
)
def test_everything_else_is_refused_by_name(raw: dict[str, Any], words: str) -> None:
    assert words in refused(**raw)


def test_all_problems_come_at_once() -> None:
    text = refused(seq=[0], impls=["flsh"], dtype="int8")
    assert all(word in text for word in ("--seq", "--impl", "--dtype"))


def test_the_words_of_the_subjects_are_those_of_the_kernels() -> None:
    from sinkflex.kernels.api import IMPLS as kernels

    assert set(kernels) <= set(IMPLS["attention"])
