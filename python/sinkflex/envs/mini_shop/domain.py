"""mini-shop as a `Domain`: its splits, its words, its agents."""

from __future__ import annotations

import hashlib
import itertools
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Literal

from ..conversation import Message, ToolCall
from ..domain import Agent, Score, Task, ToolError, ToolSpec, User
from ..problems import Problem, sentence
from . import sentences, speech
from .baselines import HandOff, Noop, RandomAgent
from .examples import examples
from .expert import Expert
from .faulty import Faulty
from .generator import LEVELS, build, essence
from .rules import POLICY
from .scoring import score
from .state import ShopState
from .tasks import ShopTask, gold
from .tools import AGENT_TOOLS, USER_TOOLS, call_tool
from .user import Customer
from .words import VOCABULARY

SPLITS: Mapping[str, tuple[int, int]] = {
    "train": (1_000_000_000, 20_000),
    "tune": (2_000_000_000, 500),
    "report": (3_000_000_000, 500),
}
"""Split to (first seed, number of tasks). The three ranges of seeds are disjoint, and so are the contents: every
essence (customer and requests) belongs to one split by its checksum, see `_split_of`."""

PATTERN = (0, 1, 2, 3, 4, 4, 1, 2, 3, 0, 4, 1, 2, 3, 4, 0, 1, 2, 3, 4)
"""The levels of every twenty tasks in a row: 15, 20, 20, 20 and 25 per cent."""

_AGENTS: Mapping[str, Callable[[ShopTask, int], Agent]] = {
    "noop": lambda task, seed: Noop(),
    "random": lambda task, seed: RandomAgent(seed),
    "expert": lambda task, seed: Expert(),
    "gold": lambda task, seed: Expert(),
    "faulty": Faulty,
    "hand_off": lambda task, seed: HandOff(seed),
}

_PROBLEMS = {
    "unreadable": "error unreadable",
    "silent": "error silent",
    "unknown_tool": "error unknown tool",
    "users_tool": "error user tool",
    "bad_json": "error arguments",
    "missing": "error missing",
    "unexpected": "error unexpected",
    "mistyped": "error wrong",
    "not_run": "error not run",
}


class MiniShop:
    """Words of a closed vocabulary, or, with `natural`, the same shop and the same tasks in whole sentences. Raises
    ValueError for levels that do not exist. Tasks are named `<split>-L<level>-<index>`; `index` counts within the split
    over all levels, so a task keeps its name under any choice of levels."""

    name = "mini-shop"
    version = "1"
    score_mode = "exact state"
    policy_text = POLICY
    agent_tools: Sequence[ToolSpec] = AGENT_TOOLS
    user_tools: Sequence[ToolSpec] = USER_TOOLS

    def __init__(self, levels: Sequence[int] | None = None, natural: bool = False) -> None:
        chosen = LEVELS if levels is None else tuple(sorted(set(levels)))
        if not chosen or not set(chosen) <= set(LEVELS):
            raise ValueError(f"mini-shop has the levels 0 to 4, got {list(levels or ())}")
        self.levels, self.natural = chosen, natural
        if natural:
            self.version = f"{self.version} natural"
        self._ids: dict[str, tuple[str, ...]] = {}

    def splits(self) -> Mapping[str, int]:
        return {split: len(self.task_ids(split)) for split in SPLITS}

    def task_ids(self, split: str) -> Sequence[str]:
        """In the order of their index, so the levels are interleaved and any prefix is a fair sample."""
        if split not in self._ids:
            numbered = ((index, PATTERN[index % len(PATTERN)]) for index in range(SPLITS[split][1]))
            self._ids[split] = tuple(
                f"{split}-L{level}-{index:05d}" for index, level in numbered if level in self.levels
            )
        return self._ids[split]

    def task(self, task_id: str) -> Task:
        """Of any level, whatever levels were chosen. Raises KeyError."""
        return _task(task_id)

    def start(self, task: Task) -> ShopState:
        shop: ShopTask = task.data
        return shop.start()

    def call(self, state: ShopState, requestor: Literal["agent", "user"], call: ToolCall) -> str:
        if not self.natural or requestor == "user":
            return call_tool(state, requestor, call)
        try:
            return sentences.result(call.name, call_tool(state, requestor, call))
        except ToolError as refused:
            raise ToolError(sentences.refusal(str(refused))) from None

    def user(self, task: Task, kind: str, seed: int) -> User:
        return Customer(task.data, seed, sentences if self.natural else speech)

    def greeting(self) -> str | None:
        return None

    def ends_episode(self, call: ToolCall) -> bool:
        return call.name == "hand_off"

    def score(self, task: Task, state: ShopState, transcript: Sequence[Message]) -> Score:
        return score(task.gold, state)

    def copy_state(self, state: ShopState) -> ShopState:
        return state.copy()

    def agent(self, name: str, task: Task, seed: int) -> Agent:
        agent = _AGENTS[name](task.data, seed)
        return sentences.InSentences(agent) if self.natural else agent

    def phrase_problem(self, problem: Problem) -> str:
        """Error observations in the closed vocabulary; the field is named where it is one of the schema's own."""
        if self.natural:
            return sentence(problem)
        phrase = _PROBLEMS[problem.kind]
        return f"{phrase} {problem.field}" if problem.kind in ("missing", "mistyped") else phrase

    def closed_vocabulary(self) -> Sequence[str] | None:
        """None in sentences. Every word an episode can hold, arguments and error observations included. Not covered:
        the policy text and the tools' descriptions, which are ordinary English; the quick start trains with
        `system_prompt: none`."""
        return None if self.natural else VOCABULARY

    def corpus(self) -> Iterable[str]:
        """The policy, the tools and the vocabulary."""
        yield POLICY
        for tool in (*AGENT_TOOLS, *USER_TOOLS):
            yield f"{tool.name} {tool.description}"
        yield " ".join(VOCABULARY)

    def data_sha256(self) -> str:
        """Of the vocabulary and the first 100 tasks of every split: changes when words or generator do."""
        return _data_sha256()

    def examples(self, count: int, task: Task) -> Sequence[Message]:
        """Conversations of the expert, in sentences, with the levels taking turns. ValueError in the closed vocabulary,
        whose names and ids all occur in tasks."""
        if not self.natural:
            raise ValueError("mini-shop in its closed vocabulary has no example conversations")
        return examples(self.levels, count)


@lru_cache(maxsize=8192)
def _task(task_id: str) -> Task:
    split, _, rest = task_id.partition("-L")
    level, _, number = rest.partition("-")
    _, count = SPLITS[split]
    index = int(number) if number.isdigit() and len(number) == 5 else -1
    if not 0 <= index < count or level != str(PATTERN[index % len(PATTERN)]):
        raise KeyError(task_id)
    content = _content(split, index)
    return Task(task_id, level, content, gold(content))


def _split_of(content: ShopTask) -> str:
    """Five of a hundred essences are tune's, five report's, the others train's."""
    return {0: "tune", 1: "report"}.get(zlib.crc32(essence(content).encode()) % 20, "train")


def _content(split: str, index: int) -> ShopTask:
    """The first content for this place, over the place's own seeds, that belongs to the split."""
    start, count = SPLITS[split]
    level = PATTERN[index % len(PATTERN)]
    return next(c for seed in itertools.count(start + index, count) if _split_of(c := build(seed, level)) == split)


@lru_cache(maxsize=1)
def _data_sha256() -> str:
    digest = hashlib.sha256(" ".join(VOCABULARY).encode())
    for split, (_, count) in SPLITS.items():
        for index in range(min(count, 100)):
            digest.update(repr(_content(split, index)).encode())
    return digest.hexdigest()
