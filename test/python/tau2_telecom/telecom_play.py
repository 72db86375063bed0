"""What the telecom tests share."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from sinkflex.envs import DualControlEnv
from sinkflex.envs.conversation import AgentAction, Message, ToolCall

Play = Callable[..., tuple[float, dict[str, Any]]]
SERVICE = "[service_issue]airplane_mode_on|break_apn_settings|overdue_bill_suspension|unseat_sim_card[PERSONA:None]"


def play_to_the_end(env: DualControlEnv, task_id: str, agent: Any, seed: int = 0) -> tuple[float, dict[str, Any]]:
    """Plays a task with an agent, by name or as an object: (reward, last info)."""
    observation, _ = env.reset(seed=seed, options={"task_id": task_id})
    if isinstance(agent, str):
        agent = env.domain.agent(agent, env.task, seed)
    while True:
        observation, reward, terminated, truncated, info = env.step(agent.act(observation))
        if terminated or truncated:
            return reward, info


def call(env: DualControlEnv, name: str, **arguments: Any) -> tuple[str, dict[str, Any]]:
    observation, _, _, _, info = env.step(AgentAction(tool_calls=(ToolCall(name, arguments),)))
    return observation[-1].content, info


def say(env: DualControlEnv, words: str) -> tuple[str, dict[str, Any]]:
    observation, _, _, _, info = env.step(AgentAction(text=words))
    return observation[-1].content, info


def tasks_with(domain: Any, *wrong: str, split: str = "base") -> list[str]:
    """The tasks in which all of these are wrong."""
    return [i for i in domain.task_ids(split) if set(wrong) <= set(i.partition("]")[2].partition("[")[0].split("|"))]


def package_messages(transcript: Sequence[Message], solo: bool, invalid: frozenset[str] = frozenset()) -> list[Any]:
    """The transcript as the package's own message types. `invalid`: ids of calls that never reached the package. Solo
    the package knows no user and no `done`."""
    from tau2.data_model.message import AssistantMessage, ToolMessage, UserMessage
    from tau2.data_model.message import ToolCall as PackageCall

    out: list[Any] = []
    who: dict[str, str] = {}
    dropped = {*invalid, *(c.id for m in transcript for c in m.tool_calls if c.name == "done")}
    for m in transcript:
        requestor = "user" if m.role == "user" else "assistant"
        calls = [
            PackageCall(id=c.id, name=c.name, arguments=c.arguments, requestor=requestor)
            for c in m.tool_calls
            if c.id not in dropped
        ]
        who |= {c.id: requestor for c in calls}
        if m.role == "assistant" and (m.content or calls):
            out.append(AssistantMessage(role="assistant", content=m.content or None, tool_calls=calls or None))
        elif m.role == "user" and not solo:
            out.append(UserMessage(role="user", content=m.content or None, tool_calls=calls or None))
        elif m.role == "tool" and m.tool_call_id not in dropped:
            name = m.tool_call_id
            out.append(ToolMessage(id=name, role="tool", content=m.content, requestor=who[name], error=m.is_error))
    return out


def oracle(domain: Any, task: Any, messages: list[Any]) -> tuple[dict[str, float], float]:
    """The package's components and their product over the task's basis, computed as its `evaluate_simulation` does
    (that module itself imports litellm). Two accidents of the process are kept out: VPN details shared by all
    environments, and random bill ids."""
    from tau2.domains.telecom.environment import get_environment
    from tau2.evaluator.evaluator_action import ActionEvaluator
    from tau2.evaluator.evaluator_communicate import CommunicateEvaluator
    from tau2.evaluator.evaluator_env import EnvironmentEvaluator

    def environment(solo_mode: bool = False) -> Any:
        env = get_environment()
        env.solo_mode = solo_mode  # set_solo_mode builds 43 tool schemas to compare their names: 30 ms
        env.tools.__class__ = domain.package.tools_type
        env.user_tools.default_vpn_details = domain.package.vpn_details.model_copy(deep=True)
        return env

    in_env = EnvironmentEvaluator.calculate_reward(environment, task, messages, solo_mode=domain.solo)
    held = [check.met for check in in_env.env_assertions]
    parts = {
        "DB": in_env.db_check.db_reward,
        "ENV_ASSERTION": float(all(held)),
        "ACTION": ActionEvaluator.calculate_reward(task, messages).reward,
        "COMMUNICATE": CommunicateEvaluator.calculate_reward(task, messages).reward,
    }
    return parts, math.prod(parts[kind.value] for kind in task.evaluation_criteria.reward_basis)


def assert_equal_to_oracle(env: DualControlEnv, invalid: frozenset[str] = frozenset()) -> dict[str, float]:
    domain: Any = env.domain
    task = env.task.data
    ours = domain.score(env.task, env.state, env.transcript)
    parts, reward = oracle(domain, task, package_messages(env.transcript, domain.solo, invalid))
    assert ({name: ours.parts[name] for name in parts}, ours.reward) == (parts, reward), (task.id, env.render())
    assert (ours.graded == 1.0) == (ours.reward == 1.0) and 0.0 <= ours.graded <= 1.0
    return parts
