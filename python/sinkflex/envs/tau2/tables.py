"""A domain of tau2-bench whose state is the agent's database: what retail and airline have in common as a `Domain`.

A subclass names the domain, its odd tasks and the agent's writing tools, and supplies the scripted user and agents.
Splits and task ids are the data's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal

from ..conversation import Message, ToolCall
from ..domain import Score, Task, ToolSpec
from .package import Package, load_package
from .scoring import basis, dropped, gold_changes, judged, score
from .state import Changes, TableState, changes, duplicate, fresh
from .tools import run, tool_specs

GREETING = "Hi! How can I help you today?"
"""The assistant's first words in tau2-bench's orchestrator: not policy output."""


class TableDomain:
    """Implements `Domain` but for `user`, `agent` and `corpus`. Beyond the protocol, for reports: `known_odd` (tasks
    whose gold is bad or odd, with the reason; they are scored as the package scores them), `dropped_components` and
    `solved_by_doing_nothing`."""

    domain: ClassVar[str]
    user_kinds: ClassVar[tuple[str, ...]] = ("scripted",)
    known_odd: ClassVar[Mapping[str, str]] = {}

    def __init__(self, package: Package | None = None) -> None:
        self.package = package or load_package(self.domain)
        self.name = f"tau2-{self.domain}"
        self.version = self.package.version
        self.score_mode = "offline" if self.dropped_components() else "official"
        self._tools = tool_specs(self.package.environment(self.package.database))
        self._writes = frozenset(tool.name for tool in self._tools if tool.kind == "write")
        self._gold: dict[str, Changes] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """Copied and pickled as its name: the data is the package's, wherever it is loaded."""
        return type(self), ()

    @property
    def policy_text(self) -> str:
        return self.package.policy

    @property
    def agent_tools(self) -> Sequence[ToolSpec]:
        return self._tools

    @property
    def user_tools(self) -> Sequence[ToolSpec]:
        return ()

    def splits(self) -> Mapping[str, int]:
        return {name: len(ids) for name, ids in self.package.splits.items()}

    def task_ids(self, split: str) -> Sequence[str]:
        return self.package.splits[split]

    def data(self, task_id: str) -> Any:
        """The package's own task. Raises KeyError for an unknown id."""
        return self.package.tasks[task_id]

    def task(self, task_id: str) -> Task:
        """`data` and `gold` are the package's own task. The level is the number of gold writes."""
        task = self.data(task_id)
        actions = task.evaluation_criteria.actions or ()
        writes = sum(action.name in self._writes for action in actions)
        return Task(id=task_id, level=f"writes-{writes}", data=task, gold=actions)

    def start(self, task: Task) -> TableState:
        return fresh(self.package)

    def call(self, state: TableState, requestor: Literal["agent", "user"], call: ToolCall) -> str:
        return run(state, requestor, call)

    def greeting(self) -> str | None:
        return GREETING

    def ends_episode(self, call: ToolCall) -> bool:
        """Never: also after transfer_to_human_agents the agent still says so, and the customer leaves."""
        return False

    def score(self, task: Task, state: TableState, transcript: Sequence[Message]) -> Score:
        return score(task.data, self._gold_changes(task.id), changes(state), transcript)

    def copy_state(self, state: TableState) -> TableState:
        return duplicate(state)

    def scenario(self, task: Task) -> str:
        """The customer's side of a task in the data's own words, for users that are language models. No gold in it."""
        return str(task.data.user_scenario)

    def assertions(self, task: Task) -> tuple[str, ...]:
        """What a judge has to decide for the reward of a task, in natural language; mostly nothing."""
        return judged(task.data)

    def closed_vocabulary(self) -> Sequence[str] | None:
        return None

    def data_sha256(self) -> str:
        return self.package.data_sha256

    def dropped_components(self, task_ids: Iterable[str] | None = None) -> Mapping[str, int]:
        """Components of a reward basis that need a judge, and for how many of these tasks (without any: of all that the
        data has) they are left out."""
        ids = self.package.tasks if task_ids is None else task_ids
        missing = [name for task_id in ids for name in dropped(self.data(task_id))]
        return {name: missing.count(name) for name in dict.fromkeys(missing)}

    def solved_by_doing_nothing(self) -> tuple[str, ...]:
        """Tasks that reward an agent which never acts: to be printed beside a score and left out of training."""
        return tuple(
            task_id
            for task_id, task in self.package.tasks.items()
            if not self._gold_changes(task_id)
            and not ("COMMUNICATE" in basis(task) and task.evaluation_criteria.communicate_info)
        )

    def _gold_changes(self, task_id: str) -> Changes:
        if task_id not in self._gold:
            self._gold[task_id] = gold_changes(self.package, self.data(task_id))
        return self._gold[task_id]
