"""A language model as the simulated user, over an OpenAI-compatible server.

It gets the task's scenario and nothing of the task's gold, and plays the customer by the rules below. Where the domain
gives the user tools (telecom's phone), they travel as the API's tools; the model sees their results and the agent does
not. It ends the conversation with a marker of hearing.py. The hash of prompt and model name is part of every report.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Sequence
from typing import Any

from sinkflex.endpoint import ChatServer, ContextFull, Unanswered
from sinkflex.envs.conversation import ToolCall
from sinkflex.envs.domain import ToolError, UserFault, UserTools, UserTurn

from .endpoint_player import count
from .play import Usage
from .request import Prices

PROMPT = """You are a customer who talks to a customer service agent. Play the person described in the scenario.

Rules:
- Write only what the customer would say, one short message at a time, in your own words.
- Give information only when it is asked for or needed. Never invent what the scenario does not say: if you are asked
  for it, say that you do not know or do not remember.
- Do not repeat internal identifiers that a customer would not know.
- When the agent asks you to confirm an action, wait for its result before you end the conversation.
- When everything in the scenario is done, answer ###STOP###. When you have been transferred to a human, answer
  ###TRANSFER###. When the scenario does not say how to go on, answer ###OUT-OF-SCOPE###.

<scenario>
{scenario}
</scenario>"""
MAX_TOOL_ROUNDS = 20
MAX_TOKENS = 512


def prompt_sha256(model: str) -> str:
    return hashlib.sha256(f"{model}\n{PROMPT}".encode()).hexdigest()


class LlmUser:
    """Implements `User`, asynchronously. `usage` counts its tokens under names that begin with user_."""

    def __init__(
        self,
        server: ChatServer,
        scenario: str,
        greeting: str | None,
        tools: Sequence[Any],
        *,
        seed: int,
        temperature: float,
        prices: Prices,
    ) -> None:
        self.server, self.usage, self.prices = server, Usage(cost=0.0), prices
        self.seed, self.temperature = seed, temperature
        self.tools = [tool.as_function() for tool in tools]
        self.messages: list[dict[str, Any]] = [{"role": "system", "content": PROMPT.format(scenario=scenario)}]
        self.greeting = greeting or "Hello, how can I help you?"

    async def open(self) -> UserTurn:
        return await self._speak(self.greeting, None)

    async def reply(self, agent_text: str, tools: UserTools) -> UserTurn:
        return await self._speak(agent_text, tools)

    def snapshot(self) -> Any:
        return copy.deepcopy(self.messages)

    def restore(self, saved: Any) -> None:
        self.messages = copy.deepcopy(saved)

    async def _speak(self, heard: str, tools: UserTools | None) -> UserTurn:
        # For the model the roles are exchanged: it writes as the assistant, and hears the agent as its user.
        self.messages.append({"role": "user", "content": heard})
        for _ in range(MAX_TOOL_ROUNDS):
            try:
                answer = await self.server.chat(
                    self.messages,
                    tools=self.tools if tools is not None else (),
                    temperature=self.temperature,
                    max_tokens=MAX_TOKENS,
                    seed=self.seed % 2**31,
                )
            except (Unanswered, ContextFull) as error:
                raise UserFault(str(error)) from error
            count(self.usage, answer, self.prices, "user_")
            if not answer.calls or tools is None:
                self.messages.append({"role": "assistant", "content": answer.text})
                return UserTurn(answer.text)
            self.messages.append(
                {
                    "role": "assistant",
                    "content": answer.text,
                    "tool_calls": [
                        {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
                        for c in answer.calls
                    ],
                }
            )
            for call in answer.calls:
                self.messages.append({"role": "tool", "tool_call_id": call.id, "content": _run(tools, call)})
        raise UserFault(f"the simulated user called tools {MAX_TOOL_ROUNDS} times in a row without a word")


def _run(tools: UserTools, call: Any) -> str:
    try:
        arguments = json.loads(call.arguments) if call.arguments.strip() else {}
    except ValueError:
        arguments = call.arguments
    try:
        return tools(ToolCall(call.name, arguments, call.id))
    except ToolError as refused:
        return f"Error: {refused}"
