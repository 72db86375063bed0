"""`DualControlEnv`: one conversation between an agent, a user and a shared state, as a Gymnasium environment.

Idea: the domain supplies rules and data, this class supplies the contract. An action is one agent turn: words to the
user, or tool calls. The channel decides who acts: words go to the user, who alone can run the user's tools; calls go
to the agent's tools. An action that makes no sense costs its turn and returns an error observation.

How an episode ends:
- the user stops, or a call that ends the episode succeeds: terminated, reward from the domain's score;
- `max_turns` or `max_errors` is reached: truncated, reward 0, reason `max_turns` or `too_many_errors` (whatever the
  state is: an agent that did not finish has not succeeded; `graded` and `reward_parts` still say how far it came);
- something other than the agent failed: truncated, outcome `infra_error` with owner and error, reward 0 that nobody may
  use as a score. A caller's `deadline` that ran out is such a fault (reason `timeout`).
A further `step` raises `gymnasium.error.ResetNeeded`.

Every error an agent causes counts toward `max_errors`: unreadable output, silence, a call that fits no tool, and a
tool's own refusal. Several calls in one turn run in order; each gets its result under its own id.

No threads, no globals: all randomness comes from the generator that `reset(seed)` seeds, so equal seeds give equal
episodes whatever runs beside them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import gymnasium
from gymnasium.error import InvalidAction, ResetNeeded

from .arguments import check_arguments
from .conversation import AgentAction, Message, Observation, ToolCall
from .deadline import TimedOut
from .domain import (
    Domain,
    InfraFault,
    MakeUser,
    Outcome,
    Owner,
    Score,
    Task,
    ToolError,
    ToolSpec,
    UserFault,
    UserTurn,
    examples_of,
    tools_for,
)
from .episode import COUNTERS, Episode, Snapshot
from .hearing import listen, spoken, without_waiting
from .problems import BadArguments, Kind, PhrasesProblems, Problem, preview, sentence
from .registry import domain as load_domain
from .render import conversation_text
from .seeds import MAX_SEED
from .spaces import ActionSpace, ObservationSpace


class DualControlEnv(gymnasium.Env[Observation, AgentAction]):
    """See the module's docstring. `domain` is a `Domain` or the name of a suite; `split` is where `reset` draws a task
    when its options name none. `make_user(task, seed)` supplies a user from outside the domain, of kind `user`.
    `examples` conversations go into the info of `reset`, for the prompt. `strict_arguments` refuses what is otherwise
    coerced. Raises ValueError for limits below 1, an unknown split or kind of user, and examples that there are not."""

    metadata = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012 (Gymnasium's own declaration)

    def __init__(
        self,
        domain: Domain | str,
        *,
        split: str = "train",
        user: str = "scripted",
        max_turns: int = 12,
        max_errors: int = 4,
        examples: int = 0,
        strict_arguments: bool = False,
        render_mode: str | None = None,
        make_user: MakeUser | None = None,
    ) -> None:
        self.domain: Domain = load_domain(domain) if isinstance(domain, str) else domain
        for name, limit in (("max_turns", max_turns), ("max_errors", max_errors)):
            if limit < 1:
                raise ValueError(f"{name} must be at least 1, got {limit}: an episode needs an end and a beginning")
        if split not in self.domain.splits():
            raise ValueError(f"{self.domain.name} has no split {split!r}; it has: {', '.join(self.domain.splits())}")
        kinds: tuple[str, ...] = getattr(self.domain, "user_kinds", ("scripted",))
        if make_user is None and user not in kinds:
            raise ValueError(f"{self.domain.name} has no user {user!r}; it has: {', '.join(kinds)}")
        if render_mode not in (None, "ansi"):
            raise ValueError(f"render_mode must be None or 'ansi', got {render_mode!r}")
        self.split, self.user_kind = split, user
        self._make_user = make_user or (lambda task, seed: self.domain.user(task, user, seed))
        self.max_turns = min(max_turns, getattr(self.domain, "turn_limit", max_turns))
        self.max_errors = max_errors
        self.examples = examples
        self.strict_arguments = strict_arguments
        examples_of(self.domain, self.domain.task(self.domain.task_ids(split)[0]), examples)  # refused before any reset
        self.render_mode = render_mode
        self._user_tools: dict[str, ToolSpec] = {tool.name: tool for tool in self.domain.user_tools}
        words = self.domain.closed_vocabulary()
        self.action_space = ActionSpace(tuple(self.domain.agent_tools), words)
        self.observation_space = ObservationSpace(words)
        self._phrase = self.domain.phrase_problem if isinstance(self.domain, PhrasesProblems) else sentence
        self._episode: Episode | None = None

    # The life of an episode

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start the task `options["task_id"]`, or one drawn from the split. Raises ValueError for an unknown task or
        option. A fault of domain or user is not raised: the info carries outcome, owner and error, and the episode
        is over before its first step. TypeError when the user answers asynchronously: await `areset` then."""
        return without_waiting(self.areset(seed=seed, options=options))

    async def areset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """`reset`, waiting for a user that answers asynchronously (a model behind an endpoint, a person)."""
        super().reset(seed=seed)
        options = dict(options or {})
        task_id = options.pop("task_id", None)
        if options:
            raise ValueError(f"unknown options of reset: {', '.join(map(str, options))}; it takes task_id")
        # Drawn first, so that naming the task does not change the user.
        user_seed = int(self.np_random.integers(MAX_SEED, endpoint=True))
        if task_id is None:
            ids = self.domain.task_ids(self.split)
            task_id = ids[int(self.np_random.integers(len(ids)))]
        try:
            task = self.domain.task(task_id)
        except KeyError:
            raise ValueError(f"{self.domain.name} has no task {task_id!r}") from None
        episode = self._episode = Episode(task, user_seed, tools_for(self.domain, task))
        observation: list[Message] = []
        fault: dict[str, Any] = {"outcome": None, "owner": None, "error": None}
        try:
            episode.state = self.domain.start(task)
            greeting = self.domain.greeting()
            if greeting is not None:
                self._show(observation, Message("assistant", greeting))
            episode.stage = "user"
            user = episode.user = self._make_user(task, user_seed)
            self._user_says(observation, await listen(user.open))
            if episode.over:
                raise UserFault("the user ended the conversation before the agent could act")
        except (Exception, TimedOut) as error:
            fault = self._fault(observation, error)
        info = {
            "task_id": task.id,
            "level": task.level,
            "policy_text": self.domain.policy_text,
            "tools": [tool.as_function() for tool in episode.tools.values()],
            "examples": examples_of(self.domain, task, self.examples),
        }
        return tuple(observation), info | fault | {"reason": episode.reason}

    def step(self, action: AgentAction) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """One agent turn. Raises InvalidAction for anything but an `AgentAction` (a bug of the caller; whatever a
        policy can produce is an AgentAction) and ResetNeeded when no episode is running."""
        return without_waiting(self.astep(action))

    async def astep(self, action: AgentAction) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """`step`, waiting for a user that answers asynchronously."""
        episode = self._running()
        if not self.action_space.contains(action):
            raise InvalidAction(f"step takes an AgentAction with text and tool calls, got {preview(action)}")
        episode.turn += 1
        episode.stage = "env"
        observation: list[Message] = []
        calls: list[dict[str, Any]] = []
        result: dict[str, Any] = {"outcome": None, "owner": None, "error": None, "graded": None, "reward_parts": {}}
        reward, terminated, truncated = 0.0, False, False
        try:
            await self._act(action, observation, calls)
            terminated = episode.over
            if not terminated and (limit := self._limit()):
                episode.over, episode.reason, truncated = True, limit, True
            if episode.over:
                score = self._score()
                reward = score.reward if terminated and score.outcome == "scored" else 0.0
                parts = {name: float(value) for name, value in score.parts.items()}
                result |= {"outcome": score.outcome, "graded": float(score.graded), "reward_parts": parts}
        except (Exception, TimedOut) as error:
            result |= self._fault(observation, error)
            reward, terminated, truncated = 0.0, False, True
        counters = {name: episode.counters[name] for name in COUNTERS}
        info = {"turn": episode.turn, "tool_calls": calls, "reason": episode.reason, **result, **counters}
        return tuple(observation), float(reward), terminated, truncated, info

    def render(self) -> str | None:
        """The whole conversation as plain text when render_mode is 'ansi'; the user's own tool calls included."""
        if self.render_mode != "ansi":
            return None
        return conversation_text(self._begun().transcript)

    # Moments

    def snapshot(self) -> Snapshot:
        """The present moment, as data. Raises ResetNeeded before the first reset."""
        return self._begun().moment(self.domain, self.np_random)

    def restore(self, saved: Snapshot) -> None:
        """Continue from `saved`. Raises ValueError for a snapshot of another domain or version."""
        self._episode = Episode.at(saved, self.domain, lambda task: self._make_user(task, saved.user_seed))
        self.np_random.bit_generator.state = dict(saved.rng)

    # What others may look at

    @property
    def task(self) -> Task:
        """The task of this episode, gold included: for scorers and tests, never for a prompt."""
        return self._begun().task

    @property
    def state(self) -> Any:
        return self._begun().state

    @property
    def user(self) -> Any:
        return self._begun().user

    @property
    def transcript(self) -> tuple[Message, ...]:
        """Everything said and done so far, the user's own tool calls included."""
        return tuple(self._begun().transcript)

    # Acting

    async def _act(self, action: AgentAction, observation: list[Message], calls: list[dict[str, Any]]) -> None:
        e = self._running()
        if action.error is not None and not action.tool_calls:
            e.transcript.append(Message("assistant", action.text))
            self._complain(observation, Problem("unreadable", got=preview(action.error)))
        elif action.tool_calls:
            named = tuple(c if c.id else replace(c, id=f"{e.turn}.{i}") for i, c in enumerate(action.tool_calls))
            e.transcript.append(Message("assistant", action.text, tool_calls=named))
            for call in named:
                self._run(call, observation, calls)
        else:
            words = spoken(action.text)
            e.transcript.append(Message("assistant", words))
            user = e.user
            if not words or getattr(user, "absent", False):
                self._complain(observation, Problem("alone" if words else "silent"))
                return
            e.stage = "user"
            assert user is not None, "a running episode has a user"
            self._user_says(observation, await listen(lambda: user.reply(words, self._user_calls)))

    def _run(self, call: ToolCall, observation: list[Message], calls: list[dict[str, Any]]) -> None:
        """One agent call: its result or its error becomes a tool message under the call's id."""
        e = self._running(over_too=True)
        arguments, error, valid = call.arguments, None, True
        try:
            spec = self._agent_spec(call.name)
            arguments, coerced = check_arguments(spec, call.arguments, self.strict_arguments)
            e.counters["coerced_arguments"] += coerced
            content = self.domain.call(e.state, "agent", ToolCall(call.name, arguments, call.id))
            if self.domain.ends_episode(call):
                e.over, e.reason = True, call.name
        except BadArguments as bad:
            valid = False
            e.counters["invalid_tool_json"] += bad.problem.kind == "bad_json"
            e.counters["user_tool_calls_by_agent"] += bad.problem.kind == "users_tool"
            content = error = self._phrase(bad.problem)
        except ToolError as refused:
            content = error = str(refused)
        e.counters["errors"] += error is not None
        name = preview(call.name, 80)
        calls.append({"name": name, "arguments": arguments, "valid": valid, "error": error})
        self._show(observation, Message("tool", content, name=name, tool_call_id=call.id, is_error=error is not None))

    def _agent_spec(self, name: str) -> ToolSpec:
        e = self._running(over_too=True)
        kind: Kind = "users_tool" if name in self._user_tools else "unknown_tool"
        if e.over:
            kind = "not_run"
        elif name in e.tools:
            return e.tools[name]
        raise BadArguments(Problem(kind, tool=name, got=preview(name, 80), wanted=", ".join(e.tools)))

    def _user_calls(self, call: ToolCall) -> str:
        """The user's channel: the user's tools only. Recorded in the transcript, not shown to the agent."""
        e = self._running()
        spec = self._user_tools.get(call.name)
        if spec is None:
            raise ToolError(f"the user has no tool named {preview(call.name, 80)}")
        try:
            arguments, _ = check_arguments(spec, call.arguments)
        except BadArguments as bad:
            raise ToolError(str(bad)) from bad
        call = ToolCall(call.name, arguments, call.id or f"user.{len(e.transcript)}")
        e.transcript.append(Message("user", "", tool_calls=(call,)))
        failed = False
        try:
            content = self.domain.call(e.state, "user", call)
        except ToolError as refused:
            content, failed = str(refused), True
        e.transcript.append(Message("tool", content, name=call.name, tool_call_id=call.id, is_error=failed))
        if failed:
            raise ToolError(content)
        return content

    def _user_says(self, observation: list[Message], turn: UserTurn) -> None:
        self._show(observation, Message("user", turn.text))
        if turn.stop:
            e = self._running()
            e.over, e.reason = True, turn.reason or "user_stop"

    def _complain(self, observation: list[Message], problem: Problem) -> None:
        self._running().counters["errors"] += 1
        self._show(observation, Message("env", self._phrase(problem), is_error=True))

    def _show(self, observation: list[Message], message: Message) -> None:
        observation.append(message)
        self._begun().transcript.append(message)

    # Ending

    def _limit(self) -> str | None:
        e = self._begun()
        if e.counters["errors"] >= self.max_errors:
            return "too_many_errors"
        return "max_turns" if e.turn >= self.max_turns else None

    def _score(self) -> Score:
        e = self._begun()
        e.stage = "reward"
        return self.domain.score(e.task, e.state, e.transcript)

    def _fault(self, observation: list[Message], error: BaseException) -> dict[str, Any]:
        """Close the episode because something other than the agent failed."""
        e = self._begun()
        owner: Owner = "user" if isinstance(error, UserFault) else "infra" if isinstance(error, InfraFault) else e.stage
        e.over, e.reason = True, "timeout" if isinstance(error, TimedOut) else f"{owner}_error"
        what = preview(f"{type(error).__name__}: {error}")
        self._show(observation, Message("env", f"The episode was ended by a fault ({owner}): {what}", is_error=True))
        outcome: Outcome = "infra_error"
        return {"outcome": outcome, "owner": owner, "error": what}

    def _begun(self) -> Episode:
        if self._episode is None:
            raise ResetNeeded("there is no episode yet: call reset() first")
        return self._episode

    def _running(self, over_too: bool = False) -> Episode:
        e = self._begun()
        if e.over and not over_too:
            raise ResetNeeded(f"the episode is over ({e.reason}): call reset() before another step()")
        return e
