"""One trial: an agent and an environment, until one of them ends it or the time is up.

The agent is awaited, so that many trials can wait for their servers at once; the environment is called, under what is
left of the trial's time. A fault of either is recorded with its owner and never scored.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from sinkflex.envs.conversation import AgentAction, Message, Observation
from sinkflex.envs.deadline import deadline
from sinkflex.envs.domain import Owner

from .results import Trial

Watch = Callable[[str, int, str | None], None]
"""Called with what is happening ("waiting"), the turn, and who is waited for ("agent", "user", "environment")."""


@dataclass(frozen=True, slots=True)
class TrialJob:
    """One trial to play. `attempts` counts earlier attempts that ended in a fault. `user_waits`: the user answers
    asynchronously. `person`: the side, "user" or "agent", that a person plays; their time is not limited, and the limit
    holds for each answer of the others."""

    task_id: str
    trial: int
    seed: int
    split: str
    timeout_s: float
    attempts: int = 0
    user_waits: bool = False
    person: str | None = None


@dataclass(slots=True)
class Usage:
    """What an agent used in one trial. `cost` None: not known."""

    tokens: dict[str, int] = field(default_factory=dict)
    cost: float | None = 0.0
    length_finishes: int = 0


class AgentFault(Exception):
    """The agent could not be asked (server, network, limits of an account): a fault with an owner, never a failure."""

    def __init__(self, owner: Owner, what: str, reason: str = "agent_error") -> None:
        super().__init__(what)
        self.owner = owner
        self.reason = reason


class Stopped(BaseException):
    """Asked to stop: the trial is dropped, not recorded. Not an `Exception`: an environment makes a fault of those."""


class ContextOverflow(Exception):
    """The conversation no longer fits the agent: truncated, as a limit of the agent's own, and not a fault."""


class Player(Protocol):
    """Whoever plays the agent in one trial. `usage` is read when the trial is over."""

    usage: Usage

    async def act(self, observation: Observation) -> AgentAction: ...


@runtime_checkable
class Sees(Protocol):
    """A player that wants to see how the trial ended: called with the last observation."""

    def see(self, observation: Observation) -> None: ...


class Scripted:
    """A scripted agent of the domain: answers at once and costs nothing."""

    def __init__(self, agent: Any) -> None:
        self.agent = agent
        self.usage = Usage()

    async def act(self, observation: Observation) -> AgentAction:
        action: AgentAction = self.agent.act(observation)
        return action


async def play(env: Any, job: TrialJob, player: Callable[[Any, dict[str, Any]], Player], watch: Watch) -> Trial:
    """The finished trial. `player(task, info)` is called after the reset, with what an agent may see."""
    started = time.monotonic()

    def left(whom: str) -> float | None:
        """Seconds that the trial waits for somebody."""
        if job.person is not None:
            return None if whom == job.person else job.timeout_s
        return job.timeout_s - (time.monotonic() - started)

    trial = Trial(job.task_id, job.trial, job.seed, attempts=job.attempts + 1)
    options = {"task_id": job.task_id}
    try:
        if job.user_waits:
            async with asyncio.timeout(left("user")):
                observation, info = await env.areset(seed=job.seed, options=options)
        else:
            with deadline(left("user")):
                observation, info = env.reset(seed=job.seed, options=options)
    except TimeoutError:
        _fault(trial, "user", f"the user did not answer within the trial's {job.timeout_s:g} s", "timeout")
        return _finished(trial, env, Usage(), started)
    trial.level = str(info.get("level", ""))
    if info.get("outcome") == "infra_error":
        _fault(trial, info["owner"], info["error"], info.get("reason") or "infra_error")
        return _finished(trial, env, Usage(), started)
    agent = player(env.task, info)
    while True:
        watch("waiting", trial.turns, "agent")
        try:
            async with asyncio.timeout(left("agent")):
                action = await agent.act(observation)
        except TimeoutError:
            _fault(trial, "engine", f"the agent did not answer within the trial's {job.timeout_s:g} s", "timeout")
            break
        except AgentFault as fault:
            _fault(trial, fault.owner, str(fault), fault.reason)
            break
        except ContextOverflow as overflow:
            _truncated(trial, env, "context", str(overflow))
            break
        try:
            if job.user_waits:
                watch("waiting", trial.turns, "user")
                async with asyncio.timeout(left("user")):
                    observation, reward, terminated, truncated, info = await env.astep(action)
            else:
                watch("waiting", trial.turns, "environment")
                with deadline(left("user")):
                    observation, reward, terminated, truncated, info = env.step(action)
        except TimeoutError:
            _fault(trial, "user", f"the user did not answer within the trial's {job.timeout_s:g} s", "timeout")
            break
        _count(trial, action, info)
        if terminated or truncated:
            if isinstance(agent, Sees):
                agent.see(observation)
            _scored(trial, float(reward), terminated, truncated, info)
            break
    return _finished(trial, env, agent.usage, started)


def _count(trial: Trial, action: AgentAction, info: dict[str, Any]) -> None:
    calls: Sequence[dict[str, Any]] = info.get("tool_calls", ())
    trial.turns += 1
    trial.tool_calls += len(calls)
    trial.tool_errors += sum(call["error"] is not None for call in calls)
    trial.parse_failures += action.error is not None
    trial.user_owned_calls = info.get("user_tool_calls_by_agent", 0)
    trial.coerced_arguments = info.get("coerced_arguments", 0)


def _scored(trial: Trial, reward: float, terminated: bool, truncated: bool, info: dict[str, Any]) -> None:
    trial.terminated, trial.truncated, trial.reason = terminated, truncated, info["reason"]
    if info["outcome"] == "infra_error":
        _fault(trial, info["owner"], info["error"], info["reason"])
        return
    trial.outcome = info["outcome"]
    trial.reward_parts = dict(info["reward_parts"] or {})
    if trial.outcome == "scored":
        trial.reward, trial.graded = reward, float(info["graded"])


def _truncated(trial: Trial, env: Any, reason: str, error: str) -> None:
    """Cut by a limit of the agent: a failure of the agent with the parts of the score that say how far it came."""
    score = env.domain.score(env.task, env.state, env.transcript)
    trial.outcome, trial.truncated, trial.reason, trial.error = "scored", True, reason, error
    trial.reward, trial.graded, trial.reward_parts = 0.0, float(score.graded), dict(score.parts)


def _fault(trial: Trial, owner: str, error: str, reason: str) -> None:
    trial.outcome, trial.owner, trial.error, trial.reason = "infra_error", owner, error, reason
    trial.truncated = True


def _finished(trial: Trial, env: Any, usage: Usage, started: float) -> Trial:
    parts = [usage, *([env.user.usage] if hasattr(env.user, "usage") else [])]
    trial.tokens = {name: count for part in parts for name, count in part.tokens.items()}
    trial.cost = None if any(part.cost is None for part in parts) else sum(part.cost or 0.0 for part in parts)
    trial.length_finishes = usage.length_finishes
    trial.transcript = [as_json(message) for message in env.transcript]
    trial.wall_s = round(time.monotonic() - started, 3)
    return trial


def as_json(message: Message) -> dict[str, Any]:
    """A message of a transcript; keys that say nothing are left out, arguments that are not JSON travel as text."""
    entry: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.name is not None:
        entry["name"] = message.name
    if message.tool_call_id is not None:
        entry["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        entry["tool_calls"] = [
            {"id": c.id, "name": c.name, "arguments": _plain(c.arguments)} for c in message.tool_calls
        ]
    if message.is_error:
        entry["is_error"] = True
    return entry


def _plain(value: Any) -> Any:
    try:
        json.dumps(value, allow_nan=False)
        return value
    except (TypeError, ValueError):
        return str(value)
