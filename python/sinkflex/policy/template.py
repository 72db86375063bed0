"""TemplateFormat: any transformers tokenizer with a chat template.

The template is rendered for the opening, and after that only for what is new: a fixed two-message base conversation is
rendered with and without the new messages, and the difference behind the base's last end token is the continuation
(its newline included, B29). A template that rewrites history breaks that, and is refused by name (B33, B46), once,
at start-up. Tool calls are read in the form that the template writes: between `<tool_call>` and `</tool_call>`
(Qwen, SmolLM and others), or between `<|tool_call|>` and `<|call|>` (our own JSON_TEMPLATE).
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from sinkflex.envs.conversation import AgentAction, Message, ToolCall
from sinkflex.refusal import Refusal

from .chat import Piece, Reading, message_dict, parse_call_json

_BASE = (Message("user", "a question"), Message("assistant", "an answer"))
_PROBE = AgentAction(tool_calls=(ToolCall("probe_tool", {"key": "value"}),))


class TemplateFormat:
    """See the module. `tokenizer` is a transformers tokenizer whose chat_template is set."""

    def __init__(self, tokenizer: Any, source: str) -> None:
        self._tokenizer = tokenizer
        self._source = source
        template = tokenizer.chat_template
        if not template:
            raise self._refuse("it has no chat template", "add chat_template.jinja to the model folder")
        own = "<|tool_call|>" in template
        self._open, self._close = ("<|tool_call|>", "<|call|>") if own else ("<tool_call>", "</tool_call>")
        self._has_env_role = own
        self._base = self._render(_BASE)
        # Some templates open the reasoning in the generation header, so the sampled ids only close it.
        self._opens_thinking = self._render(_BASE[:1], header=True).rstrip().endswith("<think>")
        self._end_id, self.stop_ids = self._find_end(own)
        self._end_text: str = tokenizer.convert_ids_to_tokens(self._end_id)
        cut = self._base.rfind(self._end_text)
        self._base_to_end = self._base[: cut + len(self._end_text)]
        self._check()

    def _refuse(self, why: str, fix: str) -> Refusal:
        return Refusal(
            code="SF-CHAT-TEMPLATE",
            owner="policy",
            what=f"the chat template of {self._source} cannot be used",
            why=why,
            fix=fix,
            exit_code=2,
        )

    def _find_end(self, own: bool) -> tuple[int, frozenset[int]]:
        """The token that ends an assistant turn: the last special token of a rendered answer."""
        ids = self._encode(self._base)
        special = set(self._tokenizer.all_special_ids)
        end = next((i for i in reversed(ids) if i in special), None)
        if end is None:
            raise self._refuse("an assistant turn does not end with a special token", "use a template that ends turns")
        stops = {end}
        if own:
            stops.add(self._tokenizer.convert_tokens_to_ids("<|call|>"))
        return end, frozenset(stops)

    def _check(self) -> None:
        """Once, at start: history is not rewritten, a follow-up arrives whole, a call survives a round trip."""
        follow_up = Message("user", "now cancel the second one")
        if "now cancel the second one" not in self.text(
            [i for p in self.following(self._end_id, (follow_up,)) for i in p.ids]
        ):
            raise self._refuse("a follow-up message does not appear in what it renders", "use another template")
        written = self.write(_PROBE)
        if "probe_tool" not in self.text(written):
            raise self._refuse(
                "it has no tool support: a tool call leaves no trace in what it renders",
                "use a model whose template writes tool calls, or put a chat_template.jinja that does into its folder",
            )
        call = self.read(written).action
        if [(c.name, c.arguments) for c in call.tool_calls] != [(c.name, c.arguments) for c in _PROBE.tool_calls]:
            raise self._refuse(
                f"a tool call does not survive rendering and reading (read back: {call})",
                "use a model whose template writes tool calls between <tool_call> and </tool_call>",
            )

    def _render(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None = None, header: bool = False
    ) -> str:
        entries = [message_dict(self._known(m)) for m in messages]
        rendered: str = self._tokenizer.apply_chat_template(
            entries, tools=list(tools) if tools else None, add_generation_prompt=header, tokenize=False
        )
        return rendered

    def _known(self, message: Message) -> Message:
        """Templates know no `env` role: an error observation is shown as a user turn, except in our own template."""
        return Message("user", message.content) if message.role == "env" and not self._has_env_role else message

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False)
        return ids

    def opening(
        self, policy_text: str | None, tools: Sequence[Mapping[str, Any]], messages: Sequence[Message]
    ) -> list[Piece]:
        system = [Message("system", policy_text)] if policy_text is not None else []
        shown = self._render([*system, *messages], tools if policy_text is not None else None)
        full = self._render([*system, *messages], tools if policy_text is not None else None, header=True)
        if policy_text is not None and tools:
            missing = [t["function"]["name"] for t in tools if t["function"]["name"] not in full]
            if missing:
                raise self._refuse(
                    f"it leaves out the tools it is given ({', '.join(missing[:3])} ...)",
                    "use a model whose template has tool support",
                )
        if not full.startswith(shown):
            raise self._refuse("the generation header rewrites the conversation", "use another template")
        kind = "system" if system else "user"
        return [Piece(kind, tuple(self._encode(shown))), Piece("header", tuple(self._encode(full[len(shown) :])))]

    def following(self, last_id: int, messages: Sequence[Message]) -> list[Piece]:
        pieces = list(self._following(tuple(messages)))
        return pieces if last_id in self.stop_ids else [Piece("control", (self._end_id,)), *pieces]

    @lru_cache(maxsize=4096)  # noqa: B019  one format lives as long as its process
    def _following(self, messages: tuple[Message, ...]) -> tuple[Piece, ...]:
        shown = self._render([*_BASE, *messages])
        full = self._render([*_BASE, *messages], header=True)
        if not shown.startswith(self._base_to_end) or not full.startswith(shown):
            raise self._refuse("it rewrites earlier turns when new ones arrive", "use a template that only appends")
        delta, header = shown[len(self._base_to_end) :], full[len(shown) :]
        if not delta.strip():
            raise self._refuse(f"it renders nothing for a {messages[-1].role} message", "use another template")
        return Piece(messages[0].role, tuple(self._encode(delta))), Piece("header", tuple(self._encode(header)))

    def write(self, action: AgentAction) -> list[int]:
        reply = Message("assistant", action.text, tool_calls=action.tool_calls)
        head = self._render(_BASE[:1], header=True)
        full = self._render([*_BASE[:1], reply])
        if not full.startswith(head):
            raise self._refuse("an assistant turn does not start with the generation header", "use another template")
        ids = self._encode(full[len(head) :])
        last = max((i for i, t in enumerate(ids) if t in self.stop_ids), default=len(ids) - 1)
        return ids[: last + 1]

    def read(self, ids: Sequence[int]) -> Reading:
        n = len(ids)
        if n == 0 or ids[-1] not in self.stop_ids:
            return Reading(AgentAction(error="the turn was cut before its end token"), (("text", 0, n),) if n else ())
        text = self.text(ids[:-1])
        control = ("control", n - 1, n)
        thinking, at = "", 0
        opened = "<think>" in text or self._opens_thinking
        if opened and "</think>" not in text:
            spans: tuple[tuple[str, int, int], ...] = (("think", 0, n - 1), control) if n > 1 else (control,)
            return Reading(AgentAction(error="the reasoning was not finished", thinking=text), spans)
        if opened:
            at = text.index("</think>") + len("</think>")
            thinking = text[: at - len("</think>")].replace("<think>", "").strip()
        marks: list[tuple[str, int]] = [("think", at)] if at else []
        body, calls, problem = text[at:], [], None
        spoken, found, rest = body.partition(self._open)
        marks.append(("text", at + len(spoken)))
        while found:
            raw, found_close, after = rest.partition(self._close if self._close != "<|call|>" else self._open)
            parsed = parse_call_json(raw)
            if self._close != "<|call|>" and not found_close:
                problem = problem or f"a tool call does not end with {self._close}"
            elif isinstance(parsed, str):
                problem = problem or parsed
            else:
                calls.append(parsed)
            marks.append(("tool_args", len(text) - len(after)))
            if self._close == "<|call|>":
                found, rest = found_close, after
            else:
                _, found, rest = after.partition(self._open)
        marks.append(("text", len(text)))
        spans = (*self._token_spans(ids[:-1], marks), control)
        if problem:
            return Reading(AgentAction(error=problem, thinking=thinking), spans)
        if calls:
            return Reading(AgentAction(spoken.strip(), tuple(calls), thinking=thinking), spans)
        if not body.strip():
            return Reading(AgentAction(error="the turn is empty", thinking=thinking), spans)
        return Reading(AgentAction(text=body.strip(), thinking=thinking), spans)

    def _token_spans(self, ids: Sequence[int], marks: Sequence[tuple[str, int]]) -> tuple[tuple[str, int, int], ...]:
        """Character boundaries to token boundaries: the first token prefix whose text is at least that long."""
        spans, start = [], 0
        for kind, char in marks:
            stop = bisect.bisect_left(range(len(ids) + 1), char, key=lambda i: len(self.text(ids[:i])))
            stop = min(stop, len(ids))
            if stop > start:
                spans.append((kind, start, stop))
                start = stop
        return tuple(spans)

    def text(self, ids: Sequence[int]) -> str:
        decoded: str = self._tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return decoded
