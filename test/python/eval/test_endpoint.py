"""The client of an OpenAI-compatible server: what it retries, what it refuses, what it reads."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from typing import Any

import pytest
from sinkflex.endpoint import Answer, Call, ChatServer, ContextFull, Unanswered
from sinkflex.eval.endpoint_player import calls_in
from sinkflex.refusal import Refusal
from stub_server import Reply, calls, failure, says, serve


def ask(url: str, **settings: Any) -> tuple[Answer, ChatServer, list[str]]:
    retried: list[str] = []
    server = ChatServer(url, "stub", on_retry=retried.append, pause_s=0.01, **settings)

    async def once() -> Answer:
        try:
            return await server.chat([{"role": "user", "content": "hi"}], temperature=0.0, max_tokens=7)
        finally:
            await server.close()

    return asyncio.run(once()), server, retried


def test_B136_a_429_waits_as_long_as_the_server_asks() -> None:
    replies = [failure(429, retry_after="1"), says("done")]
    with serve(lambda asked, n: replies[n]) as stub:
        answer, server, retried = ask(stub.url)
    assert answer.text == "done" and server.retries == 1
    assert stub.times[1] - stub.times[0] >= 1.0
    assert "HTTP 429; attempt 2 of 6" in retried[0]


def test_B136_server_errors_and_broken_connections_are_retried_and_then_given_up() -> None:
    replies = [failure(500), failure(503), Reply(cut=True), says("done")]
    with serve(lambda asked, n: replies[n]) as stub:
        answer, server, _ = ask(stub.url)
        assert (answer.text, server.retries) == ("done", 3)
    with serve(lambda asked, n: failure(500)) as stub:
        with pytest.raises(Unanswered, match=r"HTTP 500 \(3 attempts\)"):
            ask(stub.url, attempts=3)
        assert len(stub.requests) == 3


def test_B136_a_bad_request_is_not_retried() -> None:
    with serve(lambda asked, n: failure(400, "temperature is odd")) as stub:
        with pytest.raises(Unanswered, match="HTTP 400: temperature is odd"):
            ask(stub.url)
        assert len(stub.requests) == 1


def test_B136_pauses_grow_and_are_capped() -> None:
    server = ChatServer("http://nowhere", "stub", on_retry=lambda text: None, pause_s=1.0)
    slept: list[float] = []

    async def note(seconds: float) -> None:
        slept.append(seconds)

    async def pauses() -> None:
        for attempt in range(12):
            await server._wait(attempt, None, "HTTP 500")

    original, asyncio.sleep = asyncio.sleep, note  # type: ignore[assignment]
    try:
        asyncio.run(pauses())
    finally:
        asyncio.sleep = original
    assert all(0.5 * min(2**i, 30) <= s <= min(2**i, 30) for i, s in enumerate(slept))
    assert len({round(s / min(2**i, 30), 6) for i, s in enumerate(slept)}) == 12, (
        "without spread all clients return at once"
    )


def test_B140_an_answer_has_a_limit_in_tokens_and_in_time() -> None:
    with serve(lambda asked, n: says("x", finish="length")) as stub:
        answer, *_ = ask(stub.url)
        assert stub.requests[0]["max_tokens"] == 7 and answer.finish == "length"
    began = time.monotonic()
    with serve(lambda asked, n: Reply(drip=True)) as stub, pytest.raises(Unanswered, match=r"no answer within 0\.3 s"):
        ask(stub.url, timeout_s=0.3, attempts=2)
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    ("reply", "what"),
    [
        (failure(401, "bad key"), "the key was not accepted"),
        (failure(404, "The model `stub` does not exist"), "no such model or address"),
        (Reply("<!DOCTYPE html><html>welcome</html>"), "web page"),
    ],
)
def test_what_no_retry_can_mend_is_refused_with_the_address(reply: Reply, what: str) -> None:
    with serve(lambda asked, n: reply) as stub, pytest.raises(Refusal, match=what) as refused:
        ask(stub.url)
    assert refused.value.exit_code == 3 and stub.url in str(refused.value) and len(stub.requests) == 1


def test_a_server_that_is_not_there_is_refused_at_once() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(Refusal, match="nothing answers there"):
        ask(f"http://127.0.0.1:{port}/v1")


def test_a_prompt_that_does_not_fit_is_known_as_such() -> None:
    full = failure(400, "This model's maximum context length is 4096 tokens")
    with serve(lambda asked, n: full) as stub, pytest.raises(ContextFull, match="4096"):
        ask(stub.url)


@pytest.mark.parametrize("body", [{}, {"choices": []}, {"choices": [{"index": 0}]}, [1, 2]])
def test_answers_that_are_no_answers_are_retried(body: Any) -> None:
    replies = [Reply(body), says("done")]
    with serve(lambda asked, n: replies[n]) as stub:
        answer, server, _ = ask(stub.url)
    assert answer.text == "done" and server.retries == 1


def test_parallel_calls_and_arguments_of_any_kind_arrive_as_written() -> None:
    with serve(lambda asked, n: calls(("a", {"x": 1}), ("b", '"{\\"y\\": 2}"'), ("c", "{'z': 3}"))) as stub:
        answer, *_ = ask(stub.url)
    assert [(c.name, c.arguments) for c in answer.calls] == [
        ("a", '{"x": 1}'),
        ("b", '"{\\"y\\": 2}"'),
        ("c", "{'z': 3}"),
    ]


def test_the_key_comes_from_the_environment_and_is_told_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-value")
    with serve(lambda asked, n: failure(401, "no")) as stub, pytest.raises(Refusal) as refused:
        ask(stub.url)
    assert "sk-secret-value" not in str(refused.value) + json.dumps(refused.value.as_error())


@pytest.mark.parametrize(
    ("text", "words", "found"),
    [
        ("Hello.", "Hello.", []),
        ("", "", []),
        ('<tool_call>\n{"name": "a", "arguments": {"x": 1}}\n</tool_call>', "", [("a", '{"x": 1}')]),
        (
            'So. <tool_call>{"name": "a", "arguments": "{}"}</tool_call><tool_call>{"name": "b"}</tool_call>',
            "So.",
            [("a", "{}"), ("b", "{}")],
        ),
        ("<tool_call>{broken", "", [("unreadable", "{broken")]),
        (
            "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary to=functions.get_order"
            ' <|constrain|>json<|message|>{"id": "#W1"}<|call|>',
            "",
            [("get_order", '{"id": "#W1"}')],
        ),
        (
            "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Hello.<|return|>",
            "Hello.",
            [],
        ),
    ],
)
def test_calls_in_the_text_of_servers_that_do_not_parse_them(text: str, words: str, found: list[Any]) -> None:
    got, made = calls_in(Answer(text))
    assert got == words and [(c.name, c.arguments) for c in made] == found


def test_calls_of_the_api_win_over_marks_in_the_text() -> None:
    api = (Call("1", "a", "{}"),)
    assert calls_in(Answer("<tool_call>{}</tool_call>", api)) == ("<tool_call>{}</tool_call>", api)
