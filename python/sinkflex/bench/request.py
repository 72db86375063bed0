"""What `sinkflex bench` may be asked: bench.json as a frozen dataclass. Standard library only.

The command line passes null for everything that was not given; the defaults depend on the device and are plan.py's.
An absent key is null, too, so that scripts name only what they mean. Errors: Refusal with exit code 2, which names the
key, its value and what is allowed; nothing is coerced, and a key that the subject does not read is refused.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from sinkflex.refusal import Refusal

IMPLS: Mapping[str, tuple[str, ...]] = {
    "attention": ("eager", "flash", "flex", "triton", "transformers", "fla"),
    "log-prob": ("naive", "linear"),
    "model": ("eager", "ours"),
}
"""What can be measured, by subject. `transformers` and `fla` (flash-linear-attention) are peers, never a default."""

_CHOICES: Mapping[str, tuple[str, ...]] = {
    "what": tuple(IMPLS),
    "device": ("auto", "cpu", "cuda"),
    "dtype": ("auto", "float32", "bfloat16", "float16"),
    "head": ("frozen", "trained"),
    "train": ("full", "lora"),
    "geometry": ("scaled", "gpt-oss-20b"),
}
_COUNTS = (
    "num_q_heads", "num_kv_heads", "head_dim", "window", "repeat", "threads", "vocabulary", "hidden", "layers",
    "seconds_per_cell", "memory_limit",
)  # fmt: skip
_READ_BY: Mapping[str, tuple[str, ...]] = {
    "attention": ("num_q_heads", "num_kv_heads", "head_dim", "window"),
    "log-prob": ("vocabulary", "hidden", "head"),
    "model": ("layers", "train", "geometry"),
}
_OPTIONS = {"num_q_heads": "--heads", "num_kv_heads": "--heads", "impls": "--impl"}


@dataclass(frozen=True, slots=True)
class Request:
    """None is "not given". Sizes are counts; `seconds_per_cell` seconds; `memory_limit` bytes above a fresh process."""

    what: str
    seq: tuple[int, ...] | None = None
    impls: tuple[str, ...] | None = None
    device: str = "auto"
    dtype: str = "auto"
    num_q_heads: int | None = None
    num_kv_heads: int | None = None
    head_dim: int | None = None
    window: int | None = None
    vocabulary: int | None = None
    hidden: int | None = None
    head: str | None = None
    layers: int | None = None
    train: str | None = None
    geometry: str | None = None
    repeat: int | None = None
    threads: int | None = None
    seconds_per_cell: int | None = None
    memory_limit: int | None = None
    seed: int = 0
    command: str = "sinkflex.bench.run.measure"


def parse(raw: Mapping[str, Any]) -> Request:
    """The request that bench.json (or a script) describes. All keys are judged before the first refusal is worded."""
    given = {key: value for key, value in raw.items() if value is not None and key not in ("v", "verb")}
    known = {field.name for field in dataclasses.fields(Request)}
    problems = [f"unknown key {_quoted(key)}{suggestion(key, known)}" for key in given if key not in known]
    what = given.setdefault("what", "attention")
    for key, allowed in _CHOICES.items():
        if key in given and given[key] not in allowed:
            problems.append(_unknown(key, given[key], allowed))
    for key in _COUNTS:
        if key in given and not _is_count(given[key]):
            problems.append(f"{_option(key)} is {_quoted(given[key])}; it must be a whole number from 1 on")
    if not isinstance(given.get("seed", 0), int) or not isinstance(given.get("command", ""), str):
        problems.append("seed must be a whole number and command a text")
    problems += _seq_problems(given)
    if isinstance(what, str) and what in IMPLS:
        problems += _impl_problems(given, what)
        problems += [
            f"{_option(key)} means nothing to --what {what}; it belongs to --what {owner}"
            for owner, keys in _READ_BY.items()
            for key in keys
            if key in given and owner != what
        ]
    heads, kv_heads = given.get("num_q_heads"), given.get("num_kv_heads")
    if _is_count(heads) and _is_count(kv_heads) and cast(int, heads) % cast(int, kv_heads):
        problems.append(f"--heads is {heads}/{kv_heads}; the query heads must be a multiple of the key heads")
    if (heads is None) != (kv_heads is None):
        problems.append("num_q_heads and num_kv_heads are given together or not at all")
    if problems:
        raise Refusal(
            "SF-BENCH-REQUEST",
            f"Not measured: {'; '.join(problems)}.",
            why="A benchmark of something else than was asked for would mislead.",
            fix="Correct the option; `sinkflex bench --help` lists them.",
            exit_code=2,
        )
    for key in ("seq", "impls"):
        if key in given:
            given[key] = tuple(sorted(set(given[key]))) if key == "seq" else tuple(dict.fromkeys(given[key]))
    return Request(**given)


def suggestion(word: object, known: Sequence[str] | set[str]) -> str:
    """` (did you mean flash?)`, or nothing."""
    near = difflib.get_close_matches(str(word), sorted(known), n=1, cutoff=0.5)
    return f" (did you mean {near[0]}?)" if near else ""


def _seq_problems(given: Mapping[str, Any]) -> list[str]:
    if "seq" not in given:
        return []
    if not isinstance(given["seq"], list | tuple) or not given["seq"]:
        return [f"--seq is {_quoted(given['seq'])}; it needs one or more lengths in tokens"]
    return [f"--seq has {_quoted(n)}; a length is a whole number from 1 on" for n in given["seq"] if not _is_count(n)]


def _impl_problems(given: Mapping[str, Any], what: str) -> list[str]:
    if "impls" not in given:
        return []
    if not isinstance(given["impls"], list | tuple) or not given["impls"]:
        return [f"--impl is {_quoted(given['impls'])}; allowed are {', '.join(IMPLS[what])}"]
    return [_unknown("impls", impl, IMPLS[what]) for impl in given["impls"] if impl not in IMPLS[what]]


def _unknown(key: str, value: object, allowed: Sequence[str]) -> str:
    return f"{_option(key)} is {_quoted(value)}{suggestion(value, allowed)}; allowed are {', '.join(allowed)}"


def _option(key: str) -> str:
    return _OPTIONS.get(key, "--" + key.replace("_", "-"))


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _quoted(value: object) -> str:
    return json.dumps(value, default=str)
