"""The suites: one line each, loaded only when asked for.

A suite is a module that defines `load(suite: str, levels: Sequence[int] | None, natural: bool) -> Domain`. It raises
`MissingExtra` when a package that the suite needs is absent.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import gymnasium

from .domain import Domain

if TYPE_CHECKING:
    from .env import DualControlEnv

SUITES: dict[str, str] = {
    "mini-shop": "sinkflex.envs.mini_shop",
    "tool-calls": "sinkflex.envs.tool_calls",
    "tau2-retail": "sinkflex.envs.tau2",
    "tau2-airline": "sinkflex.envs.tau2",
    "tau2-telecom": "sinkflex.envs.tau2",
    "tau2-telecom-solo": "sinkflex.envs.tau2",
}


class UnknownSuite(ValueError):
    """No suite of that name."""


class MissingExtra(ImportError):
    """A suite exists, but a package it needs is not installed. The message says how to install it."""


def suites() -> tuple[str, ...]:
    return tuple(SUITES)


def domain(suite: str, levels: Sequence[int] | None = None, natural: bool = False) -> Domain:
    """The domain behind a suite. `natural`: in sentences, for a policy of open vocabulary, where the suite also has a
    closed one (mini-shop). Raises UnknownSuite (with a suggestion), MissingExtra, or ValueError for levels that the
    suite does not have."""
    if suite not in SUITES:
        near = difflib.get_close_matches(suite, SUITES, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"the suites are: {', '.join(SUITES)}"
        raise UnknownSuite(f"there is no suite {suite!r}; {hint}")
    loaded: Domain = importlib.import_module(SUITES[suite]).load(suite, levels, natural)
    return loaded


def make(
    suite: str,
    *,
    split: str = "train",
    user: str = "scripted",
    max_turns: int = 12,
    max_errors: int = 4,
    levels: Sequence[int] | None = None,
    natural: bool = False,
    examples: int = 0,
    render_mode: str | None = None,
) -> DualControlEnv:
    """An environment of a suite. The same through Gymnasium: `gymnasium.make("sinkflex/mini-shop-v0", ...)`."""
    from .env import DualControlEnv

    return DualControlEnv(
        domain(suite, levels, natural),
        split=split,
        user=user,
        max_turns=max_turns,
        max_errors=max_errors,
        examples=examples,
        render_mode=render_mode,
    )


def register_suites() -> None:
    """Make every suite known to `gymnasium.make` as `sinkflex/<suite>-v0`."""
    for suite in SUITES:
        env_id = f"sinkflex/{suite}-v0"
        if env_id not in gymnasium.registry:
            gymnasium.register(id=env_id, entry_point="sinkflex.envs.registry:make", kwargs={"suite": suite})
