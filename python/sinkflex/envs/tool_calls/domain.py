"""tool-calls as a `Domain`: one request, one call, and the conversation is over."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Literal

from ..conversation import Message, ToolCall
from ..domain import Agent, Score, Task, ToolSpec, User, UserTools, UserTurn
from .agents import Gold, Noop, RandomAgent
from .examples import EXAMPLES, example_messages
from .expert import Expert
from .families import FAMILIES, HELD_OUT
from .generator import STYLES, Content, build, place
from .scoring import score

SPLITS: Mapping[str, int] = {"train": 20_000, "tune": 200, "report": 200}

POLICY = "Answer each request with one tool call. Copy names, numbers and words exactly."

_AGENTS: Mapping[str, Callable[[Content, int], Agent]] = {
    "noop": lambda content, seed: Noop(),
    "random": lambda content, seed: RandomAgent(content.family.tools, seed),
    "expert": lambda content, seed: Expert(content.family),
    "gold": lambda content, seed: Gold(ToolCall(content.tool, content.arguments)),
}


class Asker:
    """Asks once. Words are no call, so any answer in words ends the conversation."""

    def __init__(self, content: Content) -> None:
        self._text = content.text

    def open(self) -> UserTurn:
        return UserTurn(self._text)

    def reply(self, agent_text: str, tools: UserTools) -> UserTurn:
        return UserTurn("That is not what I asked for.", stop=True, reason="no_call")

    def snapshot(self) -> None:
        return None

    def restore(self, saved: None) -> None:
        return None


class ToolCalls:
    """Raises ValueError for levels that do not exist; they are the styles of `generator.STYLES`. Tasks are named
    `<split>-<family>-<style>-<index>`; `index` counts within the split over all styles and families.

    The agent has one turn, `turn_limit`: a wrong call, words and an output that cannot be read all end the episode
    with reward 0. A second try would only be worth what the first one said, and cost as much."""

    name = "tool-calls"
    version = "1"
    score_mode = "exact call"
    policy_text = POLICY
    turn_limit = 1
    user_tools: Sequence[ToolSpec] = ()
    agent_tools: Sequence[ToolSpec] = tuple(tool for family in (*FAMILIES, *HELD_OUT.values()) for tool in family.tools)

    def __init__(self, levels: Sequence[int] | None = None) -> None:
        known = range(len(STYLES))
        chosen = tuple(known) if levels is None else tuple(sorted(set(levels)))
        if not chosen or not set(chosen) <= set(known):
            raise ValueError(f"tool-calls has the levels 0 to {known[-1]}, got {list(levels or ())}")
        self.levels = chosen
        self._ids: dict[str, tuple[str, ...]] = {}

    def splits(self) -> Mapping[str, int]:
        return {split: len(self.task_ids(split)) for split in SPLITS}

    def task_ids(self, split: str) -> Sequence[str]:
        """In the order of their index, so any prefix is a fair sample of families and styles."""
        if split not in self._ids:
            places = ((index, *place(split, index)) for index in range(SPLITS[split]))
            self._ids[split] = tuple(
                _id(split, family.name, style, index) for index, family, style in places if style in self.levels
            )
        return self._ids[split]

    def task(self, task_id: str) -> Task:
        """Of any style, whatever levels were chosen. Raises KeyError."""
        return _task(task_id)

    def tools_for(self, task: Task) -> Sequence[ToolSpec]:
        """The tools of the task's family: what the prompt lists and what can be called."""
        content: Content = task.data
        return content.family.tools

    def examples(self, count: int, task: Task) -> Sequence[Message]:
        """Of the task's family, the same for all its tasks."""
        content: Content = task.data
        return example_messages(content.family.name, count)

    def start(self, task: Task) -> None:
        return None

    def call(self, state: None, requestor: Literal["agent", "user"], call: ToolCall) -> str:
        return "ok"

    def user(self, task: Task, kind: str, seed: int) -> User:
        return Asker(task.data)

    def greeting(self) -> str | None:
        return None

    def ends_episode(self, call: ToolCall) -> bool:
        return True

    def score(self, task: Task, state: None, transcript: Sequence[Message]) -> Score:
        return score(task.gold, {tool.name: tool for tool in self.tools_for(task)}, transcript)

    def copy_state(self, state: None) -> None:
        return None

    def agent(self, name: str, task: Task, seed: int) -> Agent:
        return _AGENTS[name](task.data, seed)

    def closed_vocabulary(self) -> None:
        return None

    def corpus(self) -> Iterable[str]:
        """The policy, train's tools, and a thousand requests of train."""
        yield POLICY
        for tool in (tool for family in FAMILIES for tool in family.tools):
            yield f"{tool.name} {tool.description} {' '.join(tool.parameters['properties'])}"
        for index in range(1000):
            yield build("train", index).text

    def data_sha256(self) -> str:
        """Of tools, examples and the first 200 tasks of every split: changes when phrases, values or generator do."""
        return _data_sha256()


def _id(split: str, family: str, style: int, index: int) -> str:
    return f"{split}-{family}-{STYLES[style]}-{index:05d}"


@lru_cache(maxsize=8192)
def _task(task_id: str) -> Task:
    split, _, rest = task_id.partition("-")
    number = rest.rpartition("-")[2]
    index = int(number) if number.isdecimal() and number.isascii() else -1
    if not 0 <= index < SPLITS.get(split, 0):
        raise KeyError(task_id)
    family, style = place(split, index)
    if task_id != _id(split, family.name, style, index):
        raise KeyError(task_id)
    content = build(split, index)
    return Task(task_id, str(style), content, ToolCall(content.tool, content.arguments))


@lru_cache(maxsize=1)
def _data_sha256() -> str:
    digest = hashlib.sha256(repr((POLICY, ToolCalls.agent_tools, EXAMPLES)).encode())
    for split, count in SPLITS.items():
        for index in range(min(count, 200)):
            content = build(split, index)
            digest.update(repr((content.text, content.tool, content.arguments)).encode())
    return digest.hexdigest()
