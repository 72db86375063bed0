"""Tools for a person: what they are in words, a call as it is typed, and a result that can be read.

A call is `NAME`, `NAME field=value other=value` or `NAME {"field": "value"}`. A value reaches to the next ` field=`, so
blanks need no quotes; a list is JSON or has commas between its items. What fits no schema is a `BadLine`: it is
explained to the person, who types again, and never reaches the environment.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sinkflex.envs.arguments import check_arguments
from sinkflex.envs.conversation import ToolCall
from sinkflex.envs.domain import ToolSpec
from sinkflex.envs.problems import BadArguments

_FIELD = re.compile(r"(?:^|\s+)(?=\w+=)")
_INLINE = 60
"""Objects and lists of at most this many characters stay on one line."""


class BadLine(Exception):
    """A line that cannot be obeyed; the message says why and what would be right."""


def read_call(typed: str, tools: Sequence[ToolSpec], others: Sequence[ToolSpec] = ()) -> ToolCall:
    """The call that `typed` means, its arguments fitted to the tool's schema. BadLine: no such tool (`others` are the
    tools of the other side), or arguments that do not fit."""
    name, _, rest = typed.strip().partition(" ")
    spec = next((tool for tool in tools if tool.name == name), None)
    if spec is None:
        raise BadLine(_no_tool(name, tools, others))
    rest = rest.strip()
    try:
        arguments, _ = check_arguments(spec, rest if rest.startswith("{") else _fields(rest, spec))
    except BadArguments as bad:
        raise BadLine(f"{str(bad).removeprefix('Error: ')}\n{signature(spec)}") from bad
    return ToolCall(spec.name, arguments)


def _no_tool(name: str, tools: Sequence[ToolSpec], others: Sequence[ToolSpec]) -> str:
    if not name:
        return "Name a tool. /tools lists them."
    if any(tool.name == name for tool in others):
        return f"{name} belongs to the other side: only they can run it. Ask them to."
    return f"There is no tool {name}.{suggestion(name, [tool.name for tool in tools])} /tools lists them."


def suggestion(word: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, list(known), n=1)
    return f" Did you mean {near[0]}?" if near else ""


def _fields(text: str, spec: ToolSpec) -> dict[str, Any]:
    """The `field=value` pairs of a line, as text; lists as their items."""
    first, *pairs = _FIELD.split(text)
    if first.strip():
        raise BadLine(f"Arguments are field=value pairs or one JSON object, not {first.strip()!r}.\n{signature(spec)}")
    fields: dict[str, Any] = {}
    for pair in pairs:
        field, _, value = pair.partition("=")
        value = value.strip()
        schema = spec.parameters.get("properties", {}).get(field, {})
        if schema.get("type") == "array" and not value.startswith("["):
            fields[field] = [item.strip() for item in value.split(",") if item.strip()]
        else:
            fields[field] = _unquoted(value)
    return fields


def _unquoted(value: str) -> str:
    for quote in "\"'":
        if len(value) >= 2 and value.startswith(quote) and value.endswith(quote):
            return value[1:-1]
    return value


def signature(spec: ToolSpec) -> str:
    """`name field=type [field=type]`: how the tool is called; brackets mean that an argument may be left out."""
    schema = spec.parameters
    required = schema.get("required", ())
    words = [
        f"{field}={kind(part, schema)}" if field in required else f"[{field}={kind(part, schema)}]"
        for field, part in schema.get("properties", {}).items()
    ]
    return " ".join([spec.name, *words])


def kind(schema: Mapping[str, Any], root: Mapping[str, Any]) -> str:
    """A type in a word or two: `text`, `integer`, `on|off`, `list of text`."""
    if isinstance(ref := schema.get("$ref"), str):
        schema = root.get("$defs", {}).get(ref.rpartition("/")[2], {})
    if "enum" in schema:
        return "|".join(map(str, schema["enum"]))
    if options := schema.get("anyOf") or schema.get("oneOf"):
        return "|".join(dict.fromkeys(kind(option, root) for option in options))
    match schema.get("type"):
        case "string":
            return "text"
        case "array":
            return f"list of {kind(schema.get('items', {}), root)}"
        case "object":
            fields = ", ".join(schema.get("properties", {}))
            return f"{{{fields}}}" if fields else "object"
        case other:
            return str(other or "any")


def overview(tools: Sequence[ToolSpec]) -> str:
    """One block a tool: how it is called and the first sentence of what it does."""
    return "\n".join(f"{signature(tool)}\n  {_first_sentence(tool.description)}" for tool in tools)


def manual(spec: ToolSpec) -> str:
    """All that is known of one tool."""
    lines = [signature(spec), *(f"  {line}" for line in spec.description.splitlines() if line.strip())]
    for field, part in spec.parameters.get("properties", {}).items():
        if part.get("description"):
            lines.append(f"  {field}: {' '.join(part['description'].split())}")
    return "\n".join(lines)


def _first_sentence(text: str) -> str:
    line = text.strip().partition("\n")[0]
    return re.split(r"(?<=[.!?]) (?=[A-Z])", line, maxsplit=1)[0]


def readable(text: str) -> str:
    """A tool's result for eyes: JSON objects and lists over several lines, anything else as it is."""
    if not text.lstrip().startswith(("{", "[")):
        return text
    try:
        return _layout(json.loads(text), "")
    except (ValueError, RecursionError):
        return text


def _layout(value: Any, indent: str) -> str:
    flat = json.dumps(value, ensure_ascii=False)
    if len(flat) <= _INLINE or not isinstance(value, dict | list):
        return flat
    deeper = indent + "  "
    if isinstance(value, list):
        rows = [f"{deeper}{_layout(item, deeper)}" for item in value]
        return "[\n" + ",\n".join(rows) + f"\n{indent}]"
    rows = [f"{deeper}{json.dumps(key, ensure_ascii=False)}: {_layout(item, deeper)}" for key, item in value.items()]
    return "{\n" + ",\n".join(rows) + f"\n{indent}}}"
