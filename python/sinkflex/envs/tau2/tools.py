"""The package's tools: their schemas, and running one on a state.

A call runs the package's code on the package's Environment and is rendered by the package's `to_json_str`, so what
the agent reads is byte for byte what tau2-bench shows. One thing is refused before it runs: a calculation whose
powers could occupy the process for hours.
"""

from __future__ import annotations

import ast
import contextlib
import operator
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol

from ..conversation import ToolCall
from ..domain import ToolError, ToolSpec

MAX_EXPRESSION = 1000
MAX_RESULT_BITS = 2048
"""The package turns the result into a float, which ends at 2**1024: a larger power could not succeed there either, and
twice that leaves room for a power that is divided again."""

KINDS: Mapping[str, Literal["read", "write", "generic"]] = {"read": "read", "write": "write"}


class HasEnvironment(Protocol):
    """A state over the package's own Environment."""

    environment: Any


def tool_specs(environment: Any, owner: Literal["agent", "user"] = "agent") -> tuple[ToolSpec, ...]:
    """The owner's tools in the package's order, with the package's schemas."""
    toolkit = environment.tools if owner == "agent" else environment.user_tools
    specs = []
    for tool in toolkit.get_tools().values():
        function = tool.openai_schema["function"]
        kind = KINDS.get(toolkit.tool_type(tool.name).value, "generic")
        specs.append(ToolSpec(function["name"], function["description"], function["parameters"], kind))
    return tuple(specs)


def run(state: HasEnvironment, requestor: Literal["agent", "user"], call: ToolCall) -> str:
    """The tool's result as the package renders it. Raises ToolError with the package's own words (`Error: ...`)."""
    environment = state.environment
    who = "assistant" if requestor == "agent" else "user"
    with warnings.catch_warnings() if call.name == "calculate" else contextlib.nullcontext():
        if call.name == "calculate":
            guard(str(call.arguments.get("expression", "")))
            # It evaluates the agent's text: Python warns about odd expressions such as `1(2)` on stderr.
            warnings.simplefilter("ignore", SyntaxWarning)
        try:
            result = environment.make_tool_call(call.name, requestor=who, **call.arguments)
            environment.sync_tools()
        except Exception as error:
            raise ToolError(f"Error: {error}") from error
    return str(environment.to_json_str(result))


def guard(expression: str) -> None:
    """Refuses what could hang or exhaust the process: very long expressions, and powers of integers beyond what the
    result (a float) can hold. Everything else is left to the package, whose words the agent then reads.
    """
    if len(expression) > MAX_EXPRESSION:
        raise ToolError(f"Error: Expression too long ({len(expression)} characters, at most {MAX_EXPRESSION})")
    if "**" not in expression:
        return
    try:
        _value(ast.parse(expression.strip(), mode="eval").body)
    except (_Refused, RecursionError, MemoryError) as error:
        raise ToolError("Error: Power too large") from error
    except (SyntaxError, ArithmeticError, TypeError):
        # The package meets the same error at the same place, before anything slow: it words the refusal.
        return


class _Refused(Exception):
    pass


def _value(node: ast.expr) -> Any:
    """The value of a calculation, in Python's own order of evaluation. Raises _Refused at a power of integers that is
    too large, and at anything that is not a calculation (its size is unknown)."""
    match node:
        case ast.Constant(value=int() | float() as number):
            return number
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _value(operand)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            base, exponent = _value(left), _value(right)
            whole = isinstance(base, int) and isinstance(exponent, int)
            if whole and base not in (0, 1, -1) and exponent * base.bit_length() > MAX_RESULT_BITS:
                raise _Refused
            return base**exponent
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_value(left), _value(right))
        case _:
            raise _Refused


_OPERATORS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}
