"""The same conversation in whole sentences, for a policy that knows English: what customer, tools and agents say.

Only the wording differs: every sentence holds the words by which customer and agents understand each other, so the
customer hears a sentence as it hears `speech`, and an agent made for those words plays through `InSentences`.
"""

from __future__ import annotations

import re
from dataclasses import replace

from ..conversation import AgentAction, Message, Observation, ToolCall
from ..domain import Agent
from .tasks import Wish
from .words import COLOURS, ITEMS, ORDERS, PRODUCTS, STATUSES, WRITES

GREETINGS: tuple[str, ...] = ("Hi!", "Hello!")
FOLLOW_UPS: tuple[str, ...] = ("Okay, now something else.", "Thanks. I also have another wish.")
AGREEMENTS: tuple[str, ...] = ("Yes.", "Yes, please.")
FAREWELLS: tuple[str, ...] = ("Thanks, bye!", "Okay, bye!")
BYE = "Bye."
WHICH = "Which one do you mean?"


def _reference(wish: Wish) -> str:
    return {"id": f"order {wish.order}", "product": f"my {wish.product}", "none": "an order"}[wish.ref]


def requests(wish: Wish) -> tuple[str, ...]:
    ref = _reference(wish)
    match wish.kind:
        case "swap":
            target = wish.target if wish.target in COLOURS else f"a {wish.target}"
            what = ref if wish.shy else f"{ref} to {target}"
            return f"Please swap {what}.", f"Can you swap {what}?"
        case "money":
            return f"I want my money back for {ref}.", f"Please give me the money back for {ref}."
        case "status":
            return f"Where is {ref}?", f"How is {ref} doing?"
        case "item":
            return f"What item is {ref}?", f"Which item is {ref}, please?"
        case "order":
            return f"Which order has {ref}?", f"What order is {ref} in?"
        case "app":
            return f"My app does not show order {wish.order}.", f"The app is wrong about order {wish.order}."
        case kind:
            return f"Please {kind} {ref}.", f"I want to {kind} {ref}.", f"Can you {kind} {ref}?"


def insistence(wish: Wish) -> str:
    return f"No. {requests(wish)[0]}"


def changes(wish: Wish) -> tuple[str, ...]:
    return f"Wait, rather {wish.kind} order {wish.order}.", f"Sorry, no, {wish.kind} order {wish.order}."


def arrival(name: str, zip: str) -> str:
    return f"Hi, this is {name.title()}, zip {zip}."


def identities(name: str, zip: str) -> tuple[str, ...]:
    return f"{name.title()}, {zip}.", f"My name is {name.title()} and my zip is {zip}."


def targets(target: str) -> tuple[str, ...]:
    return f"{target.capitalize()}.", f"The {target} one."


def asks_for_order(said: frozenset[str]) -> bool:
    """A sentence that names an order asks for none; else a customer would answer it for ever."""
    return "order" in said and said.isdisjoint(ORDERS)


def answer(wish: Wish) -> str:
    return f"My {wish.product}." if wish.ref == "product" else f"Order {wish.order}."


def sight(report: str) -> str:
    if report.startswith("app shows"):
        return f"The app shows that it is {report.split()[-1]}."
    return {
        "airplane is on": "Airplane mode is on.",
        "permission is off": "The permission of the app is off.",
        "app is old": "What the app shows is old.",
    }[report]


def result(tool: str, words: str) -> str:
    """What a tool of the agent answers; the last order and item in `words` say what was done."""
    first, *rest = words.split()
    match tool:
        case "find_user":
            return f"Customer found, with the orders {', '.join(rest)}."
        case "get_order":
            return f"Order {first}: {rest[0]}, {rest[1]}, item {rest[2]}."
        case "get_product":
            return f"In {first} it is item {rest[0]}, {'sold out' if len(rest) > 1 else 'available'}."
        case "hand_off":
            return "Handed off."
        case "swap_item":
            return f"Order {rest[0]} has item {rest[1]} now."
        case _:
            return f"Order {rest[0]} is {rest[1]} now."


def refusal(words: str) -> str:
    """A tool's refusal, "error unknown order" or "error identify first"."""
    what = words.removeprefix("error ")
    return "Error: identify the customer first." if what == "identify first" else f"Error: {what}."


_FIXED = {
    "name zip ?": "What are your name and your zip?",
    "which order ?": "Which order is it about?",
    "which colour ?": "Which colour would you like?",
    "read status": "Please open the app and read the status to me.",
    "airplane off": "Please turn airplane mode off.",
    "permission on": "Please turn the permission of the app on.",
    "restart app": "Please restart the app.",
    "done": "It is done.",
}


def spoken(text: str) -> str:
    """What a scripted agent says in `text`, as a sentence."""
    if text in _FIXED:
        return _FIXED[text]
    first, *rest = text.split()
    if first in WRITES:
        order, *detail = (word for word in rest if word != "?")
        colour = f" to {detail.pop(0)}" if detail and detail[0] in COLOURS else ""
        return f"Shall I {first} order {order}{colour}{f', item {detail[0]}' if detail else ''}?"
    if first in ORDERS:
        return f"Order {first} is {' '.join(rest)}."
    if first in PRODUCTS:
        return f"The {first} is item {' '.join(rest)}."
    return f"It is {text}."


_WORD = re.compile(r"\w+")
_KEPT: dict[str, frozenset[str]] = {
    "find_user": frozenset(ORDERS),
    "get_order": frozenset((*ORDERS, *STATUSES, *PRODUCTS, *ITEMS)),
    "get_product": frozenset((*COLOURS, *ITEMS, "sold")),
}
_ARTICLES = frozenset(("a", "the", "my"))


def plain(message: Message, tool: str) -> Message:
    """A sentence of the customer, or of a `tool`'s result, in the words that scripted agents read."""
    words = [word if word in ORDERS else word.lower() for word in _WORD.findall(message.content)]
    if message.role == "tool" and not message.is_error and tool in _KEPT:
        words = [word for word in words if word in _KEPT[tool]]
        words = ["ok", *words] if tool == "find_user" else words
    return replace(message, content=" ".join(word for word in words if word not in _ARTICLES))


class InSentences:
    """A scripted agent of the closed vocabulary, where sentences are spoken."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._called = ""

    def act(self, observation: Observation) -> AgentAction:
        action = self._agent.act(tuple(plain(message, self._called) for message in observation))
        self._called = action.tool_calls[0].name if action.tool_calls else ""
        text = spoken(action.text) if action.text else ""
        return replace(action, text=text, tool_calls=tuple(map(_as_heard, action.tool_calls)))


def _as_heard(call: ToolCall) -> ToolCall:
    """With the customer's name as the customer writes it; the shop does not mind either way."""
    if call.name != "find_user":
        return call
    return replace(call, arguments=call.arguments | {"name": call.arguments["name"].title()})
