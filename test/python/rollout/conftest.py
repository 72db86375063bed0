"""The smallest domain (docs/environments.md) with the tiny policy, for tests of whole rollouts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from sinkflex.envs import DualControlEnv
from sinkflex.policy.model import Policy, build_tiny

PAGE = Path(__file__).resolve().parents[3] / "docs" / "environments.md"


@pytest.fixture(scope="session")
def domain() -> Any:
    block = re.search(r"```python\n(# lamp\.py\n.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    names: dict[str, Any] = {"__name__": "lamp_for_rollouts"}
    exec(compile(block[1], str(PAGE), "exec"), names)
    return names["Lamp"]()


@pytest.fixture
def policy(domain: Any) -> Policy:
    torch.set_num_threads(1)
    built = build_tiny(domain, impl="flash", seed=3, max_positions=2048)
    with torch.no_grad():
        for layer in built.model.model.layers:
            layer.self_attn.sinks.uniform_(-2, 5, generator=torch.Generator().manual_seed(1))
    return built


@pytest.fixture
def make_env(domain: Any) -> Any:
    return lambda: DualControlEnv(domain, max_turns=5, max_errors=3)
