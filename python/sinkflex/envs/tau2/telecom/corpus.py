"""Text typical of telecom, for training a tokenizer: a deterministic sample of what an episode can contain."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from ...conversation import ToolCall
from ...domain import ToolError, ToolSpec
from ..tools import run
from . import speech
from .operator import Operator, caller
from .package import TelecomPackage
from .phone import SENTENCES, request, sentence
from .solo import Ticket
from .state import fresh

SAMPLE = 60


def corpus(package: TelecomPackage, policy: str, tools: Sequence[ToolSpec], tasks: Sequence[Any]) -> Iterator[str]:
    """Policy, tool schemas, and what is said and returned in `tasks` (generated ones: nothing of a test task)."""
    yield policy
    for tool in tools:
        yield json.dumps(tool.as_function())
    phrases = [value for name, value in vars(speech).items() if name.isupper() and not name.startswith("_")]
    for phrase in phrases:
        texts = phrase.values() if isinstance(phrase, dict) else (phrase,) if isinstance(phrase, str) else phrase
        for text in texts:
            yield from (text,) if isinstance(text, str) else text
    for task in tasks[:: max(1, len(tasks) // SAMPLE)]:
        state = fresh(package, task)
        yield Operator(caller(task), task.id).open().text
        yield Ticket(task).text
        phone = state.environment.user_tools.db.surroundings.phone_number
        customer = state.environment.tools.get_customer_by_phone(phone)
        reads = [ToolCall("get_customer_by_phone", {"phone_number": phone})]
        reads += [ToolCall("get_details_by_id", {"id": line_id}) for line_id in customer.line_ids]
        reads += [ToolCall("get_bills_for_customer", {"customer_id": customer.customer_id})]
        yield from (run(state, "agent", call) for call in reads)
        for name in SENTENCES:
            if name.startswith(("check_", "run_", "can_")):
                arguments = {"app_name": "messaging"} if "app_" in name else {}
                yield request([sentence(name, arguments)])
                yield speech.retold(run(state, "user", ToolCall(name, arguments)))
        for action in task.evaluation_criteria.actions:
            yield json.dumps({"name": action.name, "arguments": action.arguments})
            try:
                yield run(
                    state, "user" if action.requestor == "user" else "agent", ToolCall(action.name, action.arguments)
                )
            except ToolError as refused:
                yield str(refused)
