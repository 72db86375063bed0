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
        "The weather is lovely this morning.",
        "I slept badly last night.",
        "My phone is almost out of power.",
        "{person} cooked dinner for us.",
        "I met {person} at the market.",
        "On {date} we moved into a new flat.",
        "My train leaves at {time}.",
        "I got up at {time} this morning.",
        "The {item} in our hall needs cleaning.",
        "My cat is asleep on the keyboard.",
        "I will be on holiday from {date}.",
        "We had a good laugh at the {event}.",
        "I still remember the number {order}.",
        "{person} has the same name as my uncle.",
        "It is my birthday today.",
        "The coffee here is excellent.",
        "I printed {file} this morning.",
        "I am writing this with one hand.",
        "My glasses are broken.",
        "{person} just walked in.",
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
        "Wait, I mean {right}, not {wrong}.",
        "Not {wrong}, {right}.",
        "Make that {right} rather than {wrong}.",
        "I got it wrong: it is {right} and not {wrong}.",
        "Forget {wrong}, I was thinking of {right}.",
        "That should be {right}, {wrong} is wrong.",
        "Instead of {wrong} I want {right}.",
        "My mistake, change {wrong} to {right}.",
        "Please read {right} where I said {wrong}.",
        "Did I say {wrong}? It is {right}, of course.",
        "Excuse me, {right} is right, {wrong} was an error.",
        "Actually {right}, forget about {wrong}.",
        "I mixed up {wrong} and {right}: the second is right.",
        "Please use {right}, I wrote {wrong} by mistake.",
        "Pardon, {wrong} is not correct, {right} is.",
        "Better {right} than {wrong}, I think.",
    ),
    "tune": ("Ah, take {right} in place of {wrong}.",),
    "report": (
        "Oops, {wrong} was a slip, it has to be {right}.",
        "Scratch {wrong}, use {right}.",
        "Hold on, replace {wrong} with {right}.",
    ),
}
"""They name both values, so that it is clear which of two of the same kind is meant."""
