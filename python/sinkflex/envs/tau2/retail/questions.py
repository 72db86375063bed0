"""What the scripted customer asks, where no write says what they want.

Retail scores 38 tasks on strings that the agent has to tell the customer, and six tasks write nothing and end in a
refusal. Their wording is written here, task by task; an entry holds only while the task's required strings are the
ones it was written for (another version of the data falls back to the task's own text). A question must not contain
its answer: a policy that repeats the customer's words would be rewarded. A test compares all of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Asked:
    """`before` is asked ahead of the first wish, `after` when the last is done."""

    strings: tuple[str, ...]
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


_SHIRTS = ("How many different T-Shirt options are available in your online store right now?",)
_TABLET = ("What is the tracking number of the order with my Tablet?",)
_DEAREST = ("Which item in the order I just placed is the most expensive one, and what does it cost?",)
_OFFICE = ("How much would I get back if only the three home office items in my Seattle order were cancelled?",)
_SPEAKER = ("What did the Bluetooth Speaker that I ordered cost, and how long does its battery last?",)
_NEWEST = ("How much did I pay in total for the order that I placed most recently?",)
_CANCELLED = ("What is the tracking number of my cancelled order?",)
_BACK = ("How much money will I get back in total?",)
_REST = "And how much did I pay in total for the remaining items of that order?"

MONEY_BACK = _BACK
MONEY_BACK_TOLD = "You also want to know how much money you get back in total."
"""How the text of a generated task says that the customer asks MONEY_BACK in the end."""

QUESTIONS: Mapping[str, Asked] = {
    "2": Asked(("10",), before=_SHIRTS),
    "3": Asked(("10",), before=_SHIRTS),
    "4": Asked(("10",), before=_SHIRTS),
    "16": Asked(("8276.23",), after=_BACK),
    "19": Asked(
        ("54.04", "41.64"),
        before=(
            "How much would I get back for returning the Water Bottle, and how much would I save by exchanging the "
            "Pet Bed and the Office Chair for the cheapest available ones?",
        ),
    ),
    "21": Asked(("44.08",), after=("What is the balance of my gift card after this change?",)),
    "24": Asked(
        ("polyester", "cotton"),
        before=("In another order I bought two T-Shirts. Which two are they, and what are they made of?",),
    ),
    "28": Asked(("918.43",), after=_BACK),
    "29": Asked(
        ("180.1", "189.57", "208.6"),
        before=("Which shorter Skateboards with a bamboo deck are available, and what does each of them cost?",),
    ),
    "30": Asked(("746342064230",), before=_TABLET),
    "31": Asked(("746342064230",), before=_TABLET),
    "32": Asked(("746342064230",), before=_TABLET),
    "33": Asked(("1093.34",), before=_OFFICE),
    "34": Asked(("1093.34",), before=_OFFICE),
    "36": Asked(("camera", "481.5"), before=_DEAREST),
    "37": Asked(("camera", "481.50"), before=_DEAREST),
    "38": Asked(("camera", "481.50"), before=_DEAREST),
    "39": Asked(("46.66",), after=("What does the cheapest T-Shirt that is available right now cost?",)),
    "40": Asked(
        ("60", "mastercard"),
        before=("What is the balance of my gift card, and which of my cards did I use for my recent order?",),
    ),
    "43": Asked(
        ("840887978435", "943 Maple Drive", "Suite 356", "Chicago", "IL", "60621", "64GB"),
        before=(
            "Which address did you send the order for my daughter to, what is its tracking number, and is it still "
            "on its way?",
            "What storage does the Tablet that I ordered have?",
        ),
    ),
    "44": Asked(("17.99",), after=_BACK),
    "45": Asked(("9.89",), after=("What is the price difference that I get back?",)),
    "46": Asked(("1126.04", "1497.65"), after=("What is the total refund that I can expect?", _REST)),
    "47": Asked(("1095.55", "1528.14"), after=("What is the total refund that I can expect?", _REST)),
    "54": Asked(("3646.68",), after=_BACK),
    "59": Asked(
        ("164.28", "625.60"),
        after=(
            "What is the total refund for the order I cancelled, and what is the total price of my other order now?",
        ),
    ),
    "60": Asked(("242.92",), after=("What is the price of the new Wireless Earbuds?",)),
    "62": Asked(("302.67", "20 hours"), before=_SPEAKER),
    "63": Asked(
        ("302.67", "20 hours", "1288.65"),
        before=_SPEAKER,
        after=("What is the total price of the order with the speaker now?",),
    ),
    "67": Asked(("829.43",), before=_NEWEST),
    "68": Asked(("829.43",), before=_NEWEST),
    "70": Asked(("22.55",), after=("How much do I need to pay today?",)),
    "76": Asked(
        ("1939.05",), after=("What is the total price of all the Grills that I bought in my previous orders?",)
    ),
    "89": Asked(
        ("226.11", "tactile", "white", "full"),
        before=("What is the cheapest Mechanical Keyboard available right now, and what are its options?",),
    ),
    "95": Asked(
        ("167.87", "60.78", "107.09"),
        after=("How much do I need to pay today for each exchange, and in total?",),
    ),
    "103": Asked(("286422338955",), after=_CANCELLED),
    "104": Asked(("286422338955",), after=_CANCELLED),
    "108": Asked(("346.93",), after=_BACK),
}

DEMANDS: Mapping[str, str] = {
    "10": "I want to return everything I ordered, with each order refunded to the payment method of the other order.",
    "25": "I want to return everything except the Pet Bed from the order that went to Texas, refunded to my amex card.",
    "50": "I cancelled an order and want that undone, so that everything in it is sent to me as soon as possible.",
    "57": "I want to cancel just the Air Purifier in my pending order, or the whole order if the refund can go to my "
    "gift card. If neither works, leave the order as it is.",
    "62": "I want to cancel only the Bluetooth Speaker in my pending order and keep everything else in it.",
    "65": "I want to exchange the Bookshelf from my most recent order for a camera that costs about the same.",
}


def asked(task: Any) -> Asked | None:
    """What the customer asks in this task; None where its wording is not known."""
    strings = tuple(task.evaluation_criteria.communicate_info or ())
    instructions = task.user_scenario.instructions
    if not isinstance(instructions, str) and instructions.reason_for_call.endswith(MONEY_BACK_TOLD):
        return Asked(strings, after=MONEY_BACK)
    known = QUESTIONS.get(task.id)
    return known if known is not None and known.strings == strings else None


_PERSON = (
    (r"\byou are\b", "I am"),
    (r"\byou're\b", "I am"),
    (r"\byou were\b", "I was"),
    (r"\byours\b", "mine"),
    (r"\byourself\b", "myself"),
    (r"\byour\b", "my"),
    (r"\byou\b", "I"),
)
_IDS = re.compile(r"#?\bW?\d{7,}\b|\b(?:credit_card|gift_card|paypal)_\d+\b|\b[a-z]+_[a-z]+_\d+\b")


def fallback(task: Any) -> str:
    """The reason for the call in the first person, without numbers that a customer does not speak."""
    instructions = task.user_scenario.instructions
    text = instructions if isinstance(instructions, str) else instructions.reason_for_call
    for pattern, words in _PERSON:
        text = re.sub(pattern, words, text, flags=re.IGNORECASE)
    return " ".join(_IDS.sub("that one", text).split()).lstrip(". ")
