"""tau2-bench of another generation: a user's clone read as data, and an installed package that offers other features.

Both generations are small fakes over the installed package's types: what differs is what the adapter looks at."""

from __future__ import annotations

import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sinkflex.envs import DualControlEnv
from sinkflex.envs.conversation import AgentAction, ToolCall
from sinkflex.envs.domain import InfraFault
from sinkflex.envs.tau2 import package as door
from sinkflex.envs.tau2.airline.domain import AirlineDomain
from sinkflex.envs.tau2.retail.domain import RetailDomain

SOURCE = Path(__file__).resolve().parents[3] / "python"
DOMAINS = Path("data") / "tau2" / "domains"
JUDGED = ("2", "24", "50", "64")


@pytest.fixture(scope="module")
def clone(retail: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone of the newer generation: four retail tasks need a judge, tasks have fields that this package lacks, one
    gold list is another, and its code must not be imported."""
    import tau2

    root = tmp_path_factory.mktemp("clone")
    for name in ("retail", "airline"):
        shutil.copytree(Path(tau2.__file__).parent / "data" / "tau2" / "domains" / name, root / DOMAINS / name)
    (root / "src" / "tau2").mkdir(parents=True)
    (root / "src" / "tau2" / "__init__.py").write_text("raise SystemExit('the code of a clone was run')")
    file = root / DOMAINS / "retail" / "tasks.json"
    tasks = json.loads(file.read_text())
    for task in tasks:
        task |= {"issues": [], "user_tools": None, "required_documents": None}
        if task["id"] in JUDGED:
            criteria = task["evaluation_criteria"]
            criteria["reward_basis"] = ["DB", "NL_ASSERTION"]
            criteria["nl_assertions"] = ["The agent was kind."]
    tasks[12]["evaluation_criteria"]["actions"] = tasks[12]["evaluation_criteria"]["actions"][:1]
    file.write_text(json.dumps(tasks))
    return root


def gold(domain: Any, *task_ids: str, name: str = "gold") -> list[float]:
    env = DualControlEnv(domain, split="base", max_turns=100, max_errors=10)
    rewards = []
    for task_id in task_ids:
        observation, _ = env.reset(seed=1, options={"task_id": task_id})
        agent, over, reward = domain.agent(name, env.task, 1), False, 0.0
        while not over:
            observation, reward, terminated, truncated, _ = env.step(agent.act(observation))
            over = terminated or truncated
        rewards.append(reward)
    return rewards


def test_a_clone_is_read_as_data_and_validated_by_the_package(
    clone: Path, retail: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(door.DATA_VARIABLE, str(clone))
    package = door.read_package("retail")
    domain = RetailDomain(package)
    assert domain.score_mode == "offline"
    assert domain.dropped_components() == {"NL_ASSERTION": 4}
    assert domain.dropped_components(["2", "3", "24"]) == {"NL_ASSERTION": 2} and not domain.dropped_components(["3"])
    assert domain.assertions(domain.task("2")) == ("The agent was kind.",) and domain.assertions(domain.task("3")) == ()
    assert {k: v for k, v in domain.splits().items() if k != "generated"} == {"train": 74, "test": 40, "base": 114}
    assert len(domain.task("12").gold) == 1 < len(retail.task("12").gold)
    assert gold(domain, "0", "2", "50", "64", "88") == [1.0] * 5
    # Task 24 writes nothing: with what it has to tell out of its basis, doing nothing is rewarded.
    assert set(domain.solved_by_doing_nothing()) == {*retail.solved_by_doing_nothing(), "24"}
    assert gold(domain, "24", "62", name="noop") == [1.0, 0.0]
    assert package.data_sha256 == door.hash_files([clone / DOMAINS / "retail" / file for file in door.FILES])
    assert package.data_sha256 != retail.data_sha256()
    assert package.version == f"{retail.version} with the data that SINKFLEX_TAU2_DATA names"


def test_all_gold_runs_of_the_clone_s_airline(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(door.DATA_VARIABLE, str(clone))
    domain = AirlineDomain(door.read_package("airline"))
    assert domain.score_mode == "official" and domain.splits() == {"train": 30, "test": 20, "base": 50}
    assert gold(domain, *map(str, range(0, 50, 7))) == [1.0] * 8


@pytest.mark.parametrize("below", ["", "data", "data/tau2", "data/tau2/domains", "data/tau2/domains/retail"])
def test_any_folder_from_the_root_down_to_the_domain_s_may_be_named(
    below: str, clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(door.DATA_VARIABLE, str(clone / below))
    assert door.named_folder("retail", door.FILES) == clone / DOMAINS / "retail"


def test_a_folder_without_the_data_is_named_and_nothing_else_is_taken(
    tmp_path: Path, clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(door.DATA_VARIABLE, str(tmp_path))
    with pytest.raises(InfraFault, match=rf"SINKFLEX_TAU2_DATA names {tmp_path}, where there is no retail data"):
        door.read_package("retail")
    # One domain's folder is not another's.
    monkeypatch.setenv(door.DATA_VARIABLE, str(clone / DOMAINS / "retail"))
    with pytest.raises(InfraFault, match="no airline data"):
        door.read_package("airline")
    for unset in ("", None):
        monkeypatch.setenv(door.DATA_VARIABLE, unset) if unset == "" else monkeypatch.delenv(door.DATA_VARIABLE)
        assert door.named_folder("retail", door.FILES) is None


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("tasks.json", "[{"),
        ("tasks.json", '[{"id": "0"}]'),
        ("db.json", '{"products": {}, "users": {"a": {"name": 3}}, "orders": {}}'),
        ("policy.md", b"\xff\xfe\xfa"),
    ],
)
def test_data_that_does_not_fit_the_package_s_types_is_an_infrastructure_fault(
    file: str, text: str | bytes, tmp_path: Path, clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "retail"
    shutil.copytree(clone / DOMAINS / "retail", folder)
    (folder / file).write_bytes(text if isinstance(text, bytes) else text.encode())
    monkeypatch.setenv(door.DATA_VARIABLE, str(folder))
    with pytest.raises(InfraFault, match=r"cannot be read: .*mend .*retail, or unset SINKFLEX_TAU2_DATA"):
        door.read_package("retail")


def test_a_clone_without_a_split_file_has_one_split(
    tmp_path: Path, clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "retail"
    shutil.copytree(clone / DOMAINS / "retail", folder)
    (folder / "split_tasks.json").unlink()
    monkeypatch.setenv(door.DATA_VARIABLE, str(folder))
    assert list(door.read_package("retail").splits) == ["base"]


# An installed package of either generation


@pytest.fixture
def newer(retail: Any) -> Any:
    """Sixteen tools, get_tools(include), get_tasks and splits by name, and a reward basis with NL_ASSERTION."""
    from tau2.data_model.tasks import RewardType
    from tau2.domains.retail.tools import RetailTools
    from tau2.environment.toolkit import ToolType, is_tool

    class Tools(RetailTools):
        @is_tool(ToolType.READ)
        def get_item_details(self, item_id: str) -> Any:
            """Get the details of an item.

            Args:
                item_id: The item id.
            """
            for product in self.db.products.values():
                if item_id in product.variants:
                    return product.variants[item_id]
            raise ValueError("Item not found")

        def get_tools(self, include: list[str] | None = None) -> Any:
            tools = super().get_tools()
            return tools if include is None else {name: tools[name] for name in include}

    tasks = [task.model_copy(deep=True) for task in list(retail.package.tasks.values())[:20]]
    for task in tasks[4:8]:
        task.evaluation_criteria.reward_basis = [RewardType.DB, RewardType.NL_ASSERTION]
    splits = {"train": ["0", "2", "4", "6"], "test": ["1", "3"], "base": [task.id for task in tasks]}

    def get_tasks(task_split_name: str | None = "test") -> list[Any]:
        return [task for task in tasks if task_split_name is None or task.id in splits[task_split_name]]

    def get_environment(db: Any = None, solo_mode: bool = False) -> Any:
        kind = retail.package.environment_type
        return kind(domain_name="retail", policy="newer", tools=Tools(db or retail.package.database))

    return SimpleNamespace(get_environment=get_environment, get_tasks=get_tasks, get_tasks_split=lambda: splits)


@pytest.fixture
def paths() -> Any:
    from tau2.domains.retail import utils

    return utils


def test_an_installed_package_of_the_newer_generation_is_known_by_what_it_offers(newer: Any, paths: Any) -> None:
    domain = RetailDomain(door._read("retail", newer, paths))
    assert [tool.name for tool in domain.agent_tools].count("get_item_details") == 1 and len(domain.agent_tools) == 16
    assert {tool.name: tool.kind for tool in domain.agent_tools}["get_item_details"] == "read"
    assert domain.score_mode == "offline" and domain.dropped_components() == {"NL_ASSERTION": 4}
    assert domain.policy_text == "newer" and domain.splits()["base"] == 20 and domain.splits()["train"] == 4
    assert gold(domain, "0", "5", "6", "13") == [1.0] * 4

    env = DualControlEnv(domain, split="base")
    env.reset(seed=1, options={"task_id": "0"})
    observation, *_ = env.step(AgentAction(tool_calls=(ToolCall("get_item_details", {"item_id": "7706410293"}),)))
    assert not observation[0].is_error and '"item_id": "7706410293"' in observation[0].content
    observation, *_ = env.step(AgentAction(tool_calls=(ToolCall("get_item_details", {"item_id": "1"}),)))
    assert observation[0].content == "Error: Item not found"


def test_an_installed_package_of_the_older_generation_is_known_by_what_it_lacks(newer: Any, paths: Any) -> None:
    older = SimpleNamespace(get_environment=newer.get_environment, get_tasks=lambda: newer.get_tasks(None))
    domain = RetailDomain(door._read("retail", older, paths))
    assert {k: v for k, v in domain.splits().items() if k != "generated"} == {"base": 20}
    assert gold(domain, "1") == [1.0]


def test_no_version_is_asked_for() -> None:
    """The version is a word in reports: nothing is decided by it."""
    source = inspect.getsource(door)
    asked = [line.strip() for line in source.splitlines() if re.search(r"(?<!def )\bversion\(", line)]
    assert asked == ["version=version(folder),", 'return f"{name} {importlib.metadata.version(name)}{whose}"']


# Many processes

WORKER = """
import json, os, sys, threading
writes, reads = [], []
def watch(event, args):
    if event == "open":
        path, mode, flags = args
        writing = bool((flags or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC))
        if writing and str(path) != os.devnull:
            writes.append(str(path))
        if str(path).endswith("db.json"):
            reads.append(str(path))
            if "--die" in sys.argv and "clone" in str(path):
                os.kill(os.getpid(), 9)
    elif event in ("os.mkdir", "os.rename", "os.remove", "os.link", "os.symlink", "shutil.copyfile", "shutil.copytree"):
        writes.append(f"{event} {args[0]}")
sys.addaudithook(watch)
import sinkflex.envs
seen = []
def work():
    domain = sinkflex.envs.domain("tau2-retail")
    seen.append([domain.data_sha256(), domain.version, domain.splits()["base"], len(domain.package.database.orders)])
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(json.dumps({"seen": seen, "writes": writes, "read": reads}))
"""


def test_B90_many_workers_read_the_same_data_at_once_and_nothing_is_copied(clone: Path) -> None:
    """2 processes of 4 threads each on one read-only folder, then one that is killed while it reads, then another."""
    folder = clone / DOMAINS / "retail"
    before = {file.name: (file.stat().st_mtime_ns, file.stat().st_size) for file in folder.iterdir()}
    for file in (*folder.iterdir(), folder):
        file.chmod(0o555 if file.is_dir() else 0o444)
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, (str(SOURCE), os.environ.get("PYTHONPATH")))),
        "PYTHONDONTWRITEBYTECODE": "1",
        door.DATA_VARIABLE: str(clone),
    }

    def start(*arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-P", "-c", WORKER, *arguments]
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    try:
        workers = [start(), start(), start("--die")]
        outputs = [worker.communicate(timeout=120) for worker in workers]
        assert [worker.returncode for worker in workers] == [0, 0, -9], outputs
        again = start()
        outputs = [*outputs[:2], again.communicate(timeout=120)]
    finally:
        folder.chmod(0o755)
    reports = [json.loads(output) for output, _ in outputs]
    assert all(len(report["seen"]) == 4 and report["writes"] == [] for report in reports), reports
    # Once to parse it and once to hash it, whatever the number of threads.
    assert [report["read"].count(str(folder / "db.json")) for report in reports] == [2, 2, 2]
    assert {json.dumps(seen) for report in reports for seen in report["seen"]} == {
        json.dumps(
            [
                door.hash_files([folder / file for file in door.FILES]),
                f"{door.version()} with the data that SINKFLEX_TAU2_DATA names",
                114,
                1000,
            ]
        )
    }
    assert {file.name: (file.stat().st_mtime_ns, file.stat().st_size) for file in folder.iterdir()} == before
