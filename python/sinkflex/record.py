"""A JSON object as a frozen dataclass, read strictly: nothing is defaulted, coerced or guessed. Standard library only.

Every key must be a field and every field a key, but for fields with the metadata MAY_BE_ABSENT. All problems are
collected, each with its path, so that one message names them all.
"""

from __future__ import annotations

import dataclasses
import json
import types
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

_T = TypeVar("_T")

MAY_BE_ABSENT: dict[str, Any] = {"may_be_absent": True}


def read_record(cls: type[_T], value: Any, where: str, problems: list[str]) -> _T | None:
    """`value` as the dataclass `cls`: every key known, none missing. Problems are appended, then the result is None."""
    if not isinstance(value, dict):
        problems.append(f"`{where}` is {_kind(value)}, not an object")
        return None
    before = len(problems)
    hints = get_type_hints(cls)
    fields = {f.name: f for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    problems.extend(f"unknown key `{_join(where, key)}`" for key in value if key not in fields)
    known: dict[str, Any] = {}
    for name, entry in fields.items():
        if name in value:
            known[name] = _value(hints[name], value[name], _join(where, name), problems)
        elif not entry.metadata.get("may_be_absent"):
            problems.append(f"missing key `{_join(where, name)}`")
    return cls(**known) if len(problems) == before else None


def _value(hint: Any, value: Any, where: str, problems: list[str]) -> Any:
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _either(args, value, where, problems)
    if origin is Literal:
        if value in args and not isinstance(value, bool):
            return value
        problems.append(f"`{where}` is {json.dumps(value)}, not one of {', '.join(map(str, args))}")
    elif origin is tuple:
        if isinstance(value, list) and (args[-1] is Ellipsis or len(value) == len(args)):
            return tuple(_value(args[0], item, f"{where}[{i}]", problems) for i, item in enumerate(value))
        length = "" if args[-1] is Ellipsis else f" of {len(args)}"
        problems.append(f"`{where}` is {_kind(value)}, not a list{length}")
    elif dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return read_record(hint, value, where, problems)
    elif hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    elif hint is Path and isinstance(value, str):
        return Path(value)
    elif hint in (int, bool, str) and type(value) is hint:
        return value
    else:
        problems.append(f"`{where}` is {_kind(value)}, not {getattr(hint, '__name__', hint)}")
    return None


def _either(options: tuple[Any, ...], value: Any, where: str, problems: list[str]) -> Any:
    if value is None and type(None) in options:
        return None
    attempts: list[list[str]] = []
    for option in options:
        if option is type(None):
            continue
        found: list[str] = []
        result = _value(option, value, where, found)
        if not found:
            return result
        attempts.append(found)
    # The option that got furthest explains best: a deep path beats "is text, not an object".
    problems.extend(max(attempts, key=lambda found: max(len(p.split("`")[1]) for p in found)))
    return None


def _join(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key


def _kind(value: Any) -> str:
    names = {
        dict: "an object",
        list: "a list",
        str: "text",
        bool: "true or false",
        int: "a whole number",
        float: "a number",
    }
    return "null" if value is None else names.get(type(value), type(value).__name__)
