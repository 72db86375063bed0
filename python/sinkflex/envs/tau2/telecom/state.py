"""The shared state of one telecom episode: the package's Environment over private copies of two small databases.

Idea: the databases hold some 150 objects, of which plans and devices never change. Copying the others field by field,
without pydantic's machinery, costs a fraction of what reading or validating them costs, so a fresh episode copies them
and applies the task's initial actions.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from .package import TelecomPackage, load_package

FIXED = ("plans", "devices")
"""Tables that no tool of the package changes: shared by all episodes."""
_ATOMS = frozenset((str, int, float, bool, type(None)))

Entities = dict[tuple[str, str], str]
"""(table, place) to canonical JSON: one entry for each entity of an account and each field of the phone."""


@dataclass
class TelecomState:
    """One episode's state. `environment` is the package's Environment."""

    package: TelecomPackage
    environment: Any

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as its databases; the package is loaded where it is unpickled."""
        return _reload, (_parts(self.environment), self.environment.solo_mode)


def fresh(package: TelecomPackage, task: Any, solo: bool = False) -> TelecomState:
    """The state in which `task` begins: its initial data and initial actions applied."""
    parts = duplicate_parts((package.database, package.user_database, package.vpn_details))
    environment = package.environment(*parts, solo=solo)
    initial = task.initial_state
    if initial is not None:
        if initial.message_history:
            raise ValueError(f"task {task.id} begins in the middle of a conversation, which telecom tasks never did")
        environment.set_state(initial.initialization_data, initial.initialization_actions, [])
    return TelecomState(package, environment)


def duplicate(state: TelecomState) -> TelecomState:
    """An independent copy: neither can see what the other does afterwards."""
    parts = duplicate_parts(_parts(state.environment))
    return TelecomState(state.package, state.package.environment(*parts, solo=state.environment.solo_mode))


def entities(environment: Any) -> Entities:
    """Both databases, cut into entities. Two states are equal here exactly when both hashes of the package are equal:
    list order, 1 against 1.0 and None all count."""
    out: Entities = {}
    for table, rows in environment.tools.db.model_dump().items():
        if table not in FIXED:
            out |= {(table, str(place)): _canonical(row) for place, row in enumerate(rows)}
    for part, fields in environment.user_tools.db.model_dump().items():
        out |= {(part, name): _canonical(value) for name, value in fields.items()}
    return out


def duplicate_parts(parts: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
    # One memo for all three: a connected phone's VPN details may be the environment's default object itself.
    memo: dict[int, Any] = {}
    database, user_database, vpn_details = parts
    for table in FIXED:
        rows = getattr(database, table)
        memo[id(rows)] = rows
    return _copy(database, memo), _copy(user_database, memo), _copy(vpn_details, memo)


def _parts(environment: Any) -> tuple[Any, Any, Any]:
    return environment.tools.db, environment.user_tools.db, environment.user_tools.default_vpn_details


def _copy(value: Any, memo: dict[int, Any]) -> Any:
    """A deep copy of models, lists and dicts; everything else (text, numbers, enums, dates) cannot change."""
    kind = type(value)
    if kind in _ATOMS:
        return value
    if id(value) in memo:
        return memo[id(value)]
    if kind is list:
        return [_copy(item, memo) for item in value]
    if kind is dict:
        return {key: _copy(item, memo) for key, item in value.items()}
    if not hasattr(kind, "model_fields"):
        return value
    new = memo[id(value)] = object.__new__(kind)
    object.__setattr__(new, "__dict__", {name: _copy(item, memo) for name, item in value.__dict__.items()})
    object.__setattr__(new, "__pydantic_fields_set__", set(value.__pydantic_fields_set__))
    object.__setattr__(new, "__pydantic_extra__", None)
    object.__setattr__(new, "__pydantic_private__", None)
    return new


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def _reload(parts: tuple[Any, Any, Any], solo: bool) -> TelecomState:
    package = load_package()
    return TelecomState(package, package.environment(*parts, solo=solo))
