"""The shared state of one episode: the package's own tools over a copy-on-write view of the base database.

Idea: an entity (one user, one order, one product) is copied the first time a tool looks it up by its key, and only
the copies can change. A fresh episode therefore costs three empty tables, and what it changed is found by comparing
its copies with the base instead of dumping 1500 entities. That the two are equal is tested against the package's
own hash on every gold run.
"""

from __future__ import annotations

import copy
import json
from collections.abc import ItemsView, Iterator, Mapping, MutableMapping, ValuesView
from dataclasses import dataclass
from typing import Any

from .package import Package, load_package

Changes = dict[tuple[str, str], str]
"""(table, key) to the entity's canonical JSON after the change."""


class Overlay(MutableMapping[str, Any]):
    """A table: the base's entities, each replaced by a private copy once it is looked up.

    `items()` and `values()` do not copy (a search over 500 users would copy all): a tool may read through them and
    must look an entity up by key to change it. All tools of the package do.
    """

    __slots__ = ("base", "own")

    def __init__(self, base: Mapping[str, Any], own: dict[str, Any] | None = None) -> None:
        self.base = base
        self.own: dict[str, Any] = {} if own is None else own

    def __getitem__(self, key: str) -> Any:
        if key not in self.own:
            self.own[key] = copy.deepcopy(self.base[key])
        return self.own[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self.own[key] = value

    def __delitem__(self, key: str) -> None:
        raise TypeError("an entity of the database cannot be deleted: no tool of the package does")

    def __contains__(self, key: object) -> bool:
        return key in self.own or key in self.base

    def __iter__(self) -> Iterator[str]:
        yield from self.base
        yield from (key for key in self.own if key not in self.base)

    def __len__(self) -> int:
        return len(self.base) + sum(key not in self.base for key in self.own)

    def peek(self, key: str) -> Any:
        """The entity for reading only."""
        return self.own[key] if key in self.own else self.base[key]

    def items(self) -> ItemsView[str, Any]:
        return {key: self.peek(key) for key in self}.items() if self.own else self.base.items()

    def values(self) -> ValuesView[Any]:
        return {key: self.peek(key) for key in self}.values() if self.own else self.base.values()

    def __deepcopy__(self, memo: dict[int, Any]) -> Overlay:
        """The base stays shared."""
        return Overlay(self.base, copy.deepcopy(self.own, memo))


@dataclass
class TableState:
    """One episode's state. `environment` is the package's Environment; its database consists of `tables`."""

    package: Package
    tables: dict[str, Overlay]
    environment: Any

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as what it changed; the base is loaded where it is unpickled."""
        return _reload, (self.package.name, {name: table.own for name, table in self.tables.items()})


def fresh(package: Package) -> TableState:
    return _over(package, {name: Overlay(table) for name, table in _tables(package)})


def duplicate(state: TableState) -> TableState:
    """An independent copy: neither can see what the other does afterwards."""
    # One deep copy for all tables keeps objects that two entities share (a variant's options) shared.
    return _over(state.package, copy.deepcopy(state.tables))


def changes(state: TableState) -> Changes:
    """What differs from the base, as canonical JSON: sorted keys, and list order, 1 against 1.0 and None all count,
    exactly as in the package's hash."""
    out: Changes = {}
    for name, table in state.tables.items():
        for key, entity in table.own.items():
            now = canonical(entity)
            if key not in table.base or now != canonical(table.base[key]):
                out[name, key] = now
    return out


def canonical(entity: Any) -> str:
    return json.dumps(entity.model_dump(), sort_keys=True, default=str)


def full_database(state: TableState) -> Any:
    """The whole database as the package's own type (slow; for tests and exports). Its entities are shared with the
    base: for reading only."""
    tables = {name: {key: table.peek(key) for key in table} for name, table in state.tables.items()}
    return type(state.package.database).model_construct(**tables)


def _tables(package: Package) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, table in package.database:
        if not isinstance(table, dict):
            raise TypeError(f"table {name!r} of the {package.name} database is a {type(table).__name__}, not a dict")
        yield name, table


def _reload(domain: str, own: dict[str, dict[str, Any]]) -> TableState:
    package = load_package(domain)
    return _over(package, {name: Overlay(table, own[name]) for name, table in _tables(package)})


def _over(package: Package, tables: dict[str, Overlay]) -> TableState:
    database = type(package.database).model_construct(**tables)
    return TableState(package, tables, package.environment(database))
