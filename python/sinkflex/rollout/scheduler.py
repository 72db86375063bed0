"""The episode scheduler: many multi-turn episodes at once, tokens in and tokens out.

Idea: every live episode has tokens waiting to be fed: its opening, its own last sampled token, or what the environment
said. One forward feeds them all; the rows with nothing left to feed sample one token. A turn that ends is read into an
action, the environment answers, and its answer becomes the next tokens to feed. No row waits for another, and a
finished row's place is taken by the next job (or by the last row, so that live rows stay in one block).

A fault of environment or user makes an `infra_error` trajectory with its owner: data, not an exception (B75).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from sinkflex.envs.conversation import AgentAction, Observation
from sinkflex.envs.episode import COUNTERS
from sinkflex.policy.chat import ChatFormat, Piece
from sinkflex.policy.model import Policy

from .engine import CHUNK, LocalEngine
from .sampling import sample
from .trajectory import CallRecord, Span, Trajectory


@dataclass(frozen=True, slots=True)
class EpisodeJob:
    """One episode to play. `seed` drives the user and the sampling; `id` names it in logs."""

    id: str
    task_id: str
    split: str
    task_index: int
    sample: int
    seed: int


@dataclass(frozen=True, slots=True)
class RolloutSettings:
    """Limits in tokens: `max_new_tokens` per turn, `max_total_tokens` per episode (prompt, observations and all)."""

    temperature: float
    max_new_tokens: int
    max_total_tokens: int
    max_live_episodes: int
    system_prompt: bool


@dataclass(slots=True)
class _Live:
    """An episode in flight. `pending` are ids already stored in the trajectory but not yet fed to the engine."""

    job: EpisodeJob
    env: Any
    t: Trajectory
    stream: Random
    pending: list[int]
    started: float
    turn_start: int = -1


@dataclass(slots=True)
class Collector:
    """Plays jobs with one policy. `make_env` is called once per job; a later `collect` reuses the environments."""

    policy: Policy
    make_env: Callable[[], Any]
    settings: RolloutSettings
    on_episode: Callable[[Trajectory], None] = lambda t: None
    _envs: list[Any] = field(default_factory=list)

    def collect(self, jobs: Sequence[EpisodeJob]) -> list[Trajectory]:
        """All trajectories, in the order of `jobs`. Deterministic: episodes depend on their seed, not on each other."""
        queue = [live for job in jobs if (live := self._start(job)) is not None]
        waiting = list(reversed(queue))
        engine = LocalEngine(self.policy, min(self.settings.max_live_episodes, max(len(waiting), 1)))
        done: dict[str, Trajectory] = {t.id: t for t in self._failed}
        self._failed.clear()
        engine.expect([live.t.ids for live in queue])
        rows: list[_Live] = []
        while waiting or rows:
            fresh = []
            while waiting and len(rows) < engine.rows:
                fresh.append((len(rows), waiting[-1].pending))
                rows.append(waiting.pop())
            for (row, prompt), held in zip(fresh, engine.open(fresh), strict=True):
                rows[row].pending = prompt[held:]
            work = [(row, live.pending[:CHUNK]) for row, live in enumerate(rows)]
            ready = [row for row, live in enumerate(rows) if len(live.pending) <= CHUNK]
            logits = engine.feed(work, ready)
            for row, live in enumerate(rows):
                live.pending = live.pending[len(work[row][1]) :]
            if ready:
                tokens, logprobs = sample(logits, self.settings.temperature, [rows[r].stream for r in ready])
                for row, token, logprob in zip(ready, tokens, logprobs, strict=True):
                    self._took(rows[row], row, engine, token, logprob)
            for row in range(len(rows) - 1, -1, -1):
                if rows[row].turn_start >= 0:
                    continue
                finished = rows[row]
                done[finished.job.id] = self._finish(finished)
                last = rows.pop()
                if last is not finished:
                    engine.move(len(rows), row)
                    rows[row] = last
        return [done[job.id] for job in jobs]

    _failed: list[Trajectory] = field(default_factory=list)

    def _start(self, job: EpisodeJob) -> _Live | None:
        """Reset an environment and render its opening; a reset that fails is a recorded episode."""
        started = time.monotonic()
        env = self._envs.pop() if self._envs else self.make_env()
        t, observation, info = begin(env, job)
        if info.get("outcome") == "infra_error":
            _record_fault(t, info)
            t.transcript = env.transcript
            self._envs.append(env)
            self._failed.append(t)
            self.on_episode(t)
            return None
        append_pieces(t, opening(self.policy.chat, info, observation, self.settings.system_prompt), turn=-1)
        return _Live(job, env, t, Random(job.seed), list(t.ids), started, turn_start=len(t.ids))

    def _took(self, live: _Live, row: int, engine: LocalEngine, token: int, logprob: float) -> None:
        """One sampled token: store it; on the end of the turn, hand the turn to the environment."""
        t = live.t
        append_sampled(t, token, logprob)
        live.pending = [token]
        ended = token in self.policy.chat.stop_ids
        cut = len(t.ids) - live.turn_start >= self.settings.max_new_tokens
        full = len(t.ids) >= self.settings.max_total_tokens
        if not (ended or cut or full):
            return
        engine.assert_holds(row, t.ids[:-1])
        reading = self.policy.chat.read(t.ids[live.turn_start :])
        t.spans += [Span(kind, live.turn_start + a, live.turn_start + b, t.turns) for kind, a, b in reading.spans]  # type: ignore[arg-type]
        t.policy_versions.append(self.policy.version)
        if full and not ended:
            self._overflow(live)
            return
        messages, over = act(t, live.env, reading.action)
        if over:
            live.turn_start = -1
            return
        before = len(t.ids)
        pieces = self.policy.chat.following(token, messages)
        if len(t.ids) + sum(len(p.ids) for p in pieces) >= self.settings.max_total_tokens:
            self._overflow(live)
            return
        append_pieces(t, pieces, turn=t.turns - 1)
        live.pending = [token, *t.ids[before:]]
        live.turn_start = len(t.ids)

    def _overflow(self, live: _Live) -> None:
        """The episode no longer fits its token limit: truncated, which the task did not reward (B31)."""
        t = live.t
        t.truncated, t.reason, t.outcome, t.reward, t.graded = True, "max_total_tokens", "scored", 0.0, 0.0
        live.turn_start = -1

    def _finish(self, live: _Live) -> Trajectory:
        live.t.wall_s = time.monotonic() - live.started
        live.t.check()
        live.t.transcript = live.env.transcript
        self._envs.append(live.env)
        self.on_episode(live.t)
        return live.t


def begin(env: Any, job: EpisodeJob) -> tuple[Trajectory, Observation, dict[str, Any]]:
    """Reset `env` to the job's task and seed: an empty trajectory, the first observation, the info of the reset."""
    observation, info = env.reset(seed=job.seed, options={"task_id": job.task_id})
    t = Trajectory(
        id=job.id,
        task_id=job.task_id,
        level=str(info.get("level", "")),
        split=job.split,
        task_index=job.task_index,
        sample=job.sample,
        seed=job.seed,
    )
    return t, observation, info


def opening(chat: ChatFormat, info: dict[str, Any], observation: Observation, system_prompt: bool) -> list[Piece]:
    """The prompt of an episode, from the info and the observation of its reset: the system message with the tools, the
    example conversations, the first observation, and the header after which the policy speaks. Whoever plays a policy
    asks here, so it meets everywhere what it was trained on. ValueError for what the format cannot spell."""
    policy_text = info["policy_text"] if system_prompt else None
    tools = info["tools"] if system_prompt else ()
    return chat.opening(policy_text, tools, (*info["examples"], *observation))


def append_pieces(t: Trajectory, pieces: Sequence[Piece], turn: int) -> None:
    """Add ids that nobody sampled: no loss, no log-prob. A header opens the next turn and belongs to it."""
    for piece in pieces:
        start = len(t.ids)
        t.ids += piece.ids
        t.loss_mask += [False] * len(piece.ids)
        t.logprobs += [0.0] * len(piece.ids)
        t.spans.append(Span(piece.kind, start, len(t.ids), turn + (piece.kind == "header")))  # type: ignore[arg-type]


def append_sampled(t: Trajectory, token: int, logprob: float) -> None:
    t.ids.append(token)
    t.loss_mask.append(True)
    t.logprobs.append(logprob)


def act(t: Trajectory, env: Any, action: AgentAction) -> tuple[Observation, bool]:
    """One environment step, recorded. Returns the new messages and whether the episode is over."""
    observation, reward, terminated, truncated, info = env.step(action)
    for call in info.get("tool_calls", ()):
        t.calls.append(CallRecord(t.turns, call["name"], call["arguments"], call["valid"], call["error"]))
    t.turns += 1
    t.parse_failures += action.error is not None
    t.counters = {name: info[name] for name in COUNTERS if name in info}
    if terminated or truncated:
        t.terminated, t.truncated, t.reason = terminated, truncated, info["reason"]
        if info["outcome"] == "infra_error":
            _record_fault(t, info)
        else:
            t.outcome = info["outcome"]
            t.reward_parts = dict(info["reward_parts"] or {})
            if t.outcome == "scored":
                t.reward, t.graded = float(reward), float(info["graded"])
    return observation, terminated or truncated


def _record_fault(t: Trajectory, info: dict[str, Any]) -> None:
    t.outcome, t.owner, t.error = "infra_error", info.get("owner", "env"), info.get("error")
    t.truncated, t.reason = True, info.get("reason") or "infra_error"


def demonstrate(chat: ChatFormat, env: Any, agent_name: str, job: EpisodeJob, system_prompt: bool) -> Trajectory:
    """Play a scripted agent; its turns carry the loss mask, as if sampled. Log-probs are 0.0: nobody sampled them."""
    t, observation, info = begin(env, job)
    agent = env.domain.agent(agent_name, env.domain.task(job.task_id), job.seed)
    append_pieces(t, opening(chat, info, observation, system_prompt), turn=-1)
    while True:
        action = agent.act(observation)
        start = len(t.ids)
        for token in chat.write(action):
            append_sampled(t, token, 0.0)
        t.spans.append(Span("text", start, len(t.ids), t.turns))
        observation, over = act(t, env, action)
        if over:
            return t
        append_pieces(t, chat.following(t.ids[-1], observation), turn=t.turns - 1)
