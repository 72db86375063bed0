"""A model behind an OpenAI-compatible server as the agent.

The policy text is the system message, the tools travel as the API's own tools. Calls come back as the API's tool calls,
or, from servers that do not parse them, in the text: `<tool_call>{"name": .., "arguments": ..}</tool_call>` (plain) or
`<|channel|>commentary to=functions.NAME ... <|message|>{..}<|call|>` (harmony). Arguments are handed on as they were
written; the environment judges them. An answer that says nothing is an action that says nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from sinkflex.endpoint import Answer, Call, ChatServer, ContextFull, Unanswered
from sinkflex.envs.conversation import AgentAction, Message, Observation, ToolCall

from .play import AgentFault, ContextOverflow, Usage
from .request import Prices

INSTRUCTIONS = (
    "You are a customer service agent. In each turn either write to the customer or call tools, never both. "
    "Follow the policy below."
)
_PLAIN = re.compile(r"<tool_call>\s*(.*?)\s*(?:</tool_call>|\Z)", re.DOTALL)
_HARMONY = re.compile(
    r"<\|channel\|>\s*commentary\s+to=functions\.([\w.-]+)[^<]*(?:<\|constrain\|>[^<]*)?<\|message\|>(.*?)(?:<\|call\|>|\Z)",
    re.DOTALL,
)
_HARMONY_FINAL = re.compile(r"<\|channel\|>\s*final[^<]*<\|message\|>(.*?)(?:<\|(?:end|return)\|>|\Z)", re.DOTALL)


class EndpointPlayer:
    """One trial's conversation with the server."""

    def __init__(
        self,
        server: ChatServer,
        info: dict[str, Any],
        *,
        temperature: float,
        max_tokens: int,
        seed: int,
        prices: Prices,
    ) -> None:
        self.server, self.prices = server, prices
        self.temperature, self.max_tokens, self.seed = temperature, max_tokens, seed
        self.tools = info["tools"]
        self.messages: list[dict[str, Any]] = [
            {"role": "system", "content": f"{INSTRUCTIONS}\n\n<policy>\n{info['policy_text']}\n</policy>"},
            *_as_turns(info["examples"]),
        ]
        self.usage = Usage(cost=0.0)

    async def act(self, observation: Observation) -> AgentAction:
        self.messages += [_as_api(message) for message in observation]
        try:
            answer = await self.server.chat(
                self.messages,
                tools=self.tools,
                temperature=self.temperature,
                max_tokens=self.max_tokens,
                seed=self.seed % 2**31,
            )
        except ContextFull as full:
            raise ContextOverflow(str(full)) from full
        except Unanswered as unanswered:
            raise AgentFault("engine", str(unanswered)) from unanswered
        count(self.usage, answer, self.prices)
        text, calls = calls_in(answer)
        self.messages.append(_own(text, calls))
        return AgentAction(text=text, tool_calls=tuple(_call(call) for call in calls), thinking=answer.thinking)


def count(usage: Usage, answer: Answer, prices: Prices, who: str = "") -> None:
    """Adds an answer's tokens and cost; the cost is unknown (None) once a price or a count is."""
    for name, value in (("prompt", answer.prompt_tokens), ("completion", answer.completion_tokens)):
        usage.tokens[who + name] = usage.tokens.get(who + name, 0) + (value or 0)
    usage.length_finishes += answer.finish == "length"
    parts = ((answer.prompt_tokens, prices.prompt), (answer.completion_tokens, prices.completion))
    if usage.cost is None or any(tokens is None or price is None for tokens, price in parts):
        usage.cost = None
        return
    usage.cost += sum((tokens or 0) * (price or 0.0) / 1e6 for tokens, price in parts)


def calls_in(answer: Answer) -> tuple[str, tuple[Call, ...]]:
    """(words, calls) of an answer, whichever way the server writes calls."""
    if answer.calls:
        return answer.text, answer.calls
    text = answer.text
    if "<|channel|>" in text:
        calls = tuple(Call(f"call_{i}", m[1], m[2].strip()) for i, m in enumerate(_HARMONY.finditer(text)))
        final = _HARMONY_FINAL.search(text)
        return (final[1].strip() if final else ""), calls
    if "<tool_call>" in text:
        calls = tuple(_plain(m[1], i) for i, m in enumerate(_PLAIN.finditer(text)))
        return _PLAIN.sub("", text).strip(), calls
    return text, ()


def _plain(body: str, place: int) -> Call:
    """A call written as JSON in the text; what is no such call becomes one that the environment refuses by name."""
    try:
        read = json.loads(body)
        name, arguments = read["name"], read.get("arguments", {})
    except (ValueError, KeyError, TypeError, AttributeError):
        return Call(f"call_{place}", "unreadable", body)
    return Call(f"call_{place}", str(name), arguments if isinstance(arguments, str) else json.dumps(arguments))


def _call(call: Call) -> ToolCall:
    try:
        return ToolCall(call.name, json.loads(call.arguments) if call.arguments.strip() else {}, call.id)
    except (ValueError, RecursionError):
        return ToolCall(call.name, call.arguments, call.id)


def _own(text: str, calls: tuple[Call, ...]) -> dict[str, Any]:
    entry: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        entry["tool_calls"] = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}} for c in calls
        ]
    return entry


def _as_turns(examples: Sequence[Message]) -> list[dict[str, Any]]:
    """Example conversations as the API has them: a call without a result gets one, which servers insist on."""
    turns: list[dict[str, Any]] = []
    for place, message in enumerate(examples):
        ids = [call.id or f"example_{place}_{i}" for i, call in enumerate(message.tool_calls)]
        calls = (Call(i, c.name, json.dumps(c.arguments)) for i, c in zip(ids, message.tool_calls, strict=True))
        turns.append(_own(message.content, tuple(calls)) if message.tool_calls else _as_api(message))
        answered = {m.tool_call_id for m in examples}
        turns += [{"role": "tool", "tool_call_id": i, "content": "ok"} for i in ids if i not in answered]
    return turns


def _as_api(message: Message) -> dict[str, Any]:
    """A message of an observation as the API has it. An error that belongs to no call is told as the user's side."""
    if message.role == "tool":
        return {"role": "tool", "tool_call_id": message.tool_call_id, "content": message.content}
    if message.role == "assistant":
        return {"role": "assistant", "content": message.content}
    return {"role": "user", "content": message.content}
