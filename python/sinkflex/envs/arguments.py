"""Checks a call's arguments against the tool's JSON schema, and repairs only what has one meaning.

Convention: a value of the wrong type is coerced where the schema makes its meaning certain ("100" or 100.0 for an
integer, "2.5" for a number, "true" for a boolean, a JSON text for an object or array) and counted; anything else is
a `Problem` that the agent sees. Arguments given as a text may be JSON or, as models write it, a Python dictionary in
single quotes; that is counted too. A number where a string is wanted is not repaired: a zip code 01234 would lose its
zero. Understood keywords: type, enum, const, properties, required, items, anyOf, oneOf, $ref into $defs.
Unknown arguments are refused whether or not the schema says so.
"""

from __future__ import annotations

import ast
import json
import math
import re
import warnings
from collections.abc import Mapping
from typing import Any

from .domain import ToolSpec
from .problems import BadArguments, Problem, preview

_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,18})?([eE][+-]?[0-9]{1,3})?")
_MISFIT: Any = object()
MAX_LITERAL = 10_000


def check_arguments(spec: ToolSpec, arguments: Any, strict: bool = False) -> tuple[dict[str, Any], int]:
    """The arguments as the tool may receive them and how many values were coerced. Raises BadArguments, with `strict`
    for whatever would have to be coerced."""
    coerced = 0
    if isinstance(arguments, str):
        parsed = _MISFIT if strict else _parse(arguments)
        if parsed is _MISFIT and not strict:
            parsed = _literal(arguments)
        if not isinstance(parsed, dict):
            raise BadArguments(Problem("bad_json", tool=spec.name, got=preview(arguments)))
        arguments, coerced = parsed, 1
    if not isinstance(arguments, Mapping):
        raise BadArguments(Problem("bad_json", tool=spec.name, got=preview(arguments)))
    schema = spec.parameters
    properties: Mapping[str, Any] = schema.get("properties", {})
    for key in arguments:
        if key not in properties:
            names = ", ".join(properties) or "no arguments"
            raise BadArguments(Problem("unexpected", tool=spec.name, field=preview(key, 80), wanted=names))
    for key in schema.get("required", ()):
        if key not in arguments:
            raise BadArguments(Problem("missing", tool=spec.name, field=key, wanted=_wanted(properties.get(key, {}))))
    clean: dict[str, Any] = {}
    for key, value in arguments.items():
        fitted, n = _fit(value, properties[key], schema)
        if fitted is _MISFIT or (strict and n):
            wanted = _wanted(properties[key])
            raise BadArguments(Problem("mistyped", tool=spec.name, field=key, wanted=wanted, got=preview(value)))
        clean[key] = fitted
        coerced += n
    return clean, coerced


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return _MISFIT


def _literal(text: str) -> Any:
    """The Python dictionary that `text` spells, as JSON would hold it."""
    if len(text) > MAX_LITERAL or not text.lstrip().startswith("{"):
        return _MISFIT
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return json.loads(json.dumps(ast.literal_eval(text.strip()), allow_nan=False))
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return _MISFIT


def _resolve(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    ref = schema.get("$ref")
    if isinstance(ref, str):
        node: Any = root
        for part in ref.lstrip("#/").split("/"):
            node = node[part]
        return node  # type: ignore[no-any-return]
    return schema


def _fit(value: Any, schema: Mapping[str, Any], root: Mapping[str, Any]) -> tuple[Any, int]:
    """(value that satisfies `schema`, values coerced), or (_MISFIT, 0)."""
    schema = _resolve(schema, root)
    options = schema.get("anyOf") or schema.get("oneOf")
    if options is None and isinstance(schema.get("type"), list):
        options = [{**schema, "type": t} for t in schema["type"]]
    if options:
        fits = [fit for fit in (_fit(value, option, root) for option in options) if fit[0] is not _MISFIT]
        exact = [fit for fit in fits if fit[1] == 0]
        # Two different repairs are possible: the meaning is not certain.
        return exact[0] if exact else fits[0] if len(fits) == 1 else (_MISFIT, 0)
    fitted, n = _fit_type(value, schema, root)
    if fitted is _MISFIT or ("enum" in schema and fitted not in schema["enum"]):
        return _MISFIT, 0
    if "const" in schema and fitted != schema["const"]:
        return _MISFIT, 0
    return fitted, n


def _fit_type(value: Any, schema: Mapping[str, Any], root: Mapping[str, Any]) -> tuple[Any, int]:
    match schema.get("type"):
        case "string":
            return (value, 0) if isinstance(value, str) else (_MISFIT, 0)
        case "integer":
            return _integer(value)
        case "number":
            return _number(value)
        case "boolean":
            if isinstance(value, bool):
                return value, 0
            return (value == "true", 1) if value in ("true", "false") else (_MISFIT, 0)
        case "null":
            return (None, 0) if value is None else (_MISFIT, 0)
        case "array":
            return _array(value, schema, root)
        case "object":
            return _object(value, schema, root)
        case _:
            return value, 0


def _integer(value: Any) -> tuple[Any, int]:
    if isinstance(value, int) and not isinstance(value, bool):
        return value, 0
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value), 1
    if isinstance(value, str) and _INTEGER.fullmatch(value.strip()):
        return int(value), 1
    return _MISFIT, 0


def _number(value: Any) -> tuple[Any, int]:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return (value, 0) if isinstance(value, int) or math.isfinite(value) else (_MISFIT, 0)
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        number = float(value)
        if math.isfinite(number):
            return (int(value) if _INTEGER.fullmatch(value.strip()) else number), 1
    return _MISFIT, 0


def _array(value: Any, schema: Mapping[str, Any], root: Mapping[str, Any]) -> tuple[Any, int]:
    coerced = 0
    if isinstance(value, str):
        value, coerced = _parse(value), 1
    if not isinstance(value, (list, tuple)):
        return _MISFIT, 0
    items = schema.get("items", {})
    out: list[Any] = []
    for item in value:
        fitted, n = _fit(item, items, root)
        if fitted is _MISFIT:
            return _MISFIT, 0
        out.append(fitted)
        coerced += n
    return out, coerced


def _object(value: Any, schema: Mapping[str, Any], root: Mapping[str, Any]) -> tuple[Any, int]:
    coerced = 0
    if isinstance(value, str):
        value, coerced = _parse(value), 1
    if not isinstance(value, Mapping) or any(key not in value for key in schema.get("required", ())):
        return _MISFIT, 0
    properties = schema.get("properties")
    out: dict[str, Any] = {}
    for key, item in value.items():
        if properties is not None and key not in properties:
            return _MISFIT, 0
        fitted, n = _fit(item, properties[key] if properties is not None else {}, root)
        if fitted is _MISFIT:
            return _MISFIT, 0
        out[key] = fitted
        coerced += n
    return out, coerced


def _wanted(schema: Mapping[str, Any]) -> str:
    """The schema in a few words for an error message."""
    if "enum" in schema:
        return "one of " + preview(", ".join(map(str, schema["enum"])))
    options = schema.get("anyOf") or schema.get("oneOf")
    if options:
        return " or ".join(_wanted(option) for option in options)
    kind = schema.get("type", "object" if "$ref" in schema else "any value")
    return " or ".join(kind) if isinstance(kind, list) else str(kind)
