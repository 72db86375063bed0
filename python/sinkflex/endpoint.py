"""An OpenAI-compatible server behind a URL: one chat call, with time limits, retries and an honest account.

What is retried: 429 (after the time the server names, or a growing pause), 408, 409, 5xx, broken connections, calls
that take too long, and answers that are no answers. What is not: any other 4xx. What no retry can mend (a wrong
address, key or model name, a server of another kind) is a `Refusal`, so that an evaluation ends before it burns its
budget. Keys come from environment variables and are never written anywhere.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sinkflex.refusal import Refusal

MAX_PAUSE_S = 30.0
_RETRIED = frozenset({408, 409, 425, 429})
_PERMANENT = {401: "the key was not accepted", 403: "the key may not use it", 404: "there is no such model or address"}
_TOO_LONG = ("context length", "context_length", "maximum context", "too many tokens", "prompt is too long")


class Unanswered(Exception):
    """No answer after all attempts: a fault of the server or of the network, not of what was asked."""


class ContextFull(Exception):
    """What was asked does not fit the model's context."""


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call as the model wrote it: `arguments` is the text it sent, usually JSON."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Answer:
    """`finish` is the server's reason to stop ("stop", "length", "tool_calls"). Tokens are None where it says none."""

    text: str
    calls: tuple[Call, ...] = ()
    thinking: str = ""
    finish: str = "stop"
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


@dataclass(slots=True)
class ChatServer:
    """`model` at `url`. `key_names`: environment variables that may hold the key, the first that does is used.

    One call may take `timeout_s` in all, streaming for ever included; at most `attempts` calls are made for one answer,
    with a pause of `pause_s`, doubled each time and spread, between them. `on_retry(text)` is told each time.
    """

    url: str
    model: str
    key_names: tuple[str, ...] = ("OPENAI_API_KEY",)
    timeout_s: float = 120.0
    attempts: int = 6
    pause_s: float = 0.5
    on_retry: Callable[[str], None] = lambda text: print(text, file=sys.stderr)
    retries: int = 0
    _reached: bool = False
    _client: Any = None
    _dice: random.Random = field(default_factory=lambda: random.Random(0))

    async def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        temperature: float,
        max_tokens: int,
        seed: int | None = None,
    ) -> Answer:
        """One answer. Raises Unanswered, ContextFull, or Refusal for what no retry can mend."""
        asked: dict[str, Any] = {"model": self.model, "messages": list(messages), "temperature": temperature}
        asked["max_tokens"] = max_tokens
        if tools:
            asked["tools"] = list(tools)
        if seed is not None:
            asked["seed"] = seed
        why = ""
        for attempt in range(self.attempts):
            try:
                async with asyncio.timeout(self.timeout_s):
                    answer = self._read(await self._connected().chat.completions.create(**asked))
                self._reached = True
                return answer
            except TimeoutError:
                why, pause = f"no answer within {self.timeout_s:g} s", None
            except _Garbled as garbled:
                why, pause = str(garbled), None
            except Exception as error:
                why, pause = self._explain(error)
            if attempt + 1 < self.attempts:
                await self._wait(attempt, pause, why)
        raise Unanswered(f"{self.model} at {self.url}: {why} ({self.attempts} attempts)")

    def _connected(self) -> Any:
        if self._client is None:
            import openai

            key = next((value for name in self.key_names if (value := os.environ.get(name))), "none")
            self._client = openai.AsyncOpenAI(base_url=self.url, api_key=key, max_retries=0, timeout=self.timeout_s)
        return self._client

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()

    async def _wait(self, attempt: int, pause: float | None, why: str) -> None:
        """At least the pause that the server asked for; otherwise doubled each time, spread by half."""
        grown = min(self.pause_s * 2**attempt, MAX_PAUSE_S)
        seconds = max(pause or 0.0, grown * self._dice.uniform(0.5, 1.0))
        self.retries += 1
        self.on_retry(f"{self.model}: {why}; attempt {attempt + 2} of {self.attempts} in {seconds:.1f} s")
        await asyncio.sleep(seconds)

    def _explain(self, error: Exception) -> tuple[str, float | None]:
        """(what happened, the pause the server asks for) of something to be retried; raises for everything else."""
        import openai

        if isinstance(error, openai.APIStatusError):
            status, text = error.status_code, _message(error)
            if status == 400 and any(sign in text.lower() for sign in _TOO_LONG):
                raise ContextFull(text) from error
            if status in _PERMANENT:
                raise self._refusal(f"HTTP {status}: {_PERMANENT[status]}", text) from error
            if status not in _RETRIED and status < 500:
                raise Unanswered(f"{self.model} at {self.url}: HTTP {status}: {text}") from error
            return f"HTTP {status}", _retry_after(error.response.headers)
        if isinstance(error, openai.APITimeoutError):
            return f"no answer within {self.timeout_s:g} s", None
        if isinstance(error, openai.APIConnectionError):
            cause = error.__cause__ or error
            if not self._reached and type(cause).__name__ == "ConnectError":
                raise self._refusal("nothing answers there", str(cause)) from error
            return f"the connection broke ({type(cause).__name__})", None
        if isinstance(error, openai.OpenAIError | ValueError):
            return f"an answer that cannot be read ({type(error).__name__})", None
        raise error

    def _read(self, response: Any) -> Answer:
        """The answer in a response. Raises _Garbled for one that is none, Refusal for a page in place of an answer."""
        if isinstance(response, str):
            if "<html" in response[:500].lower() or "<!doctype" in response[:500].lower():
                raise self._refusal("it answers with a web page", response[:80])
            raise _Garbled("an answer that is no chat completion")
        choices = getattr(response, "choices", None)
        if not choices or getattr(choices[0], "message", None) is None:
            raise _Garbled("an answer without choices")
        message, usage = choices[0].message, getattr(response, "usage", None)
        calls = []
        for place, call in enumerate(message.tool_calls or ()):
            function = getattr(call, "function", None)
            name = getattr(function, "name", None)
            if not isinstance(name, str):
                raise _Garbled("a tool call without a name")
            arguments = function.arguments if function is not None else ""
            text = arguments if isinstance(arguments, str) else json.dumps(arguments)
            calls.append(Call(getattr(call, "id", None) or f"call_{place}", name, text))
        thinking = getattr(message, "reasoning_content", None) or getattr(message, "reasoning", None) or ""
        return Answer(
            text=message.content if isinstance(message.content, str) else "",
            calls=tuple(calls),
            thinking=thinking if isinstance(thinking, str) else "",
            finish=choices[0].finish_reason or "stop",
            prompt_tokens=getattr(usage, "prompt_tokens", None),
            completion_tokens=getattr(usage, "completion_tokens", None),
        )

    def _refusal(self, what: str, detail: str) -> Refusal:
        return Refusal(
            "SF-ENDPOINT",
            f"The server at {self.url} cannot be used for {self.model}: {what}.",
            why=detail.strip().splitlines()[0][:200] if detail.strip() else "It gave no reason.",
            fix="Check the address (it usually ends in /v1), the model's name, and the key in "
            f"{' or '.join(self.key_names)}.",
            owner="engine",
            exit_code=3,
        )


class _Garbled(Exception):
    """A response that is no answer."""


def _message(error: Any) -> str:
    body = error.body if isinstance(error.body, dict) else {}
    return str(body.get("message") or error.message)


def _retry_after(headers: Mapping[str, str]) -> float | None:
    try:
        return min(float(headers["retry-after"]), 10 * MAX_PAUSE_S)
    except (KeyError, ValueError):
        return None
