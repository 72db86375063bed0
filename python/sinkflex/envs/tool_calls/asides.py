"""What people say around a request: details that do not matter, and corrections of one value; by split."""

from __future__ import annotations

from collections.abc import Mapping

DETAILS: Mapping[str, tuple[str, ...]] = {
    "train": (
        "It has been raining here all day.",
        "My colleague {person} told me about you.",
        "I wanted to do this on {date} already.",
        "I am on the bus right now.",
        "Yesterday {person} helped me with something else.",
        "I had to wait until {time} to ask.",
        "My dog says hello.",
        "By the way, my membership number is {order}.",
        "I left the {item} at home.",
        "I was thinking of my {event} just now.",
    ),
    "tune": (
        "{person} sends greetings.",
        "The last time I asked was {date}.",
        "It is terribly hot in here.",
    ),
    "report": (
        "{person} is sitting next to me.",
        "Our office closes at {time} today.",
        "My old ticket {order} has been settled.",
        "The neighbours are painting their fence.",
        "Somebody gave me a {item} for free.",
    ),
}
"""The slots are kinds of values: each detail may hold one that could be taken for an argument."""

CORRECTIONS: Mapping[str, tuple[str, ...]] = {
    "train": (
        "No, wait, not {wrong} but {right}.",
        "Sorry, I meant {right}, not {wrong}.",
        "Correction: {right} instead of {wrong}.",
        "I said {wrong}, but it is {right}.",
    ),
    "tune": ("Ah, take {right} in place of {wrong}.",),
    "report": (
        "Oops, {wrong} was a slip, it has to be {right}.",
        "Scratch {wrong}, use {right}.",
        "Hold on, replace {wrong} with {right}.",
    ),
}
"""They name both values, so that it is clear which of two of the same kind is meant."""
