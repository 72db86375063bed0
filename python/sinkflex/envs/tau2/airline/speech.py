"""The scenario of an airline task in the caller's own words, sentence by sentence.

The data addresses whoever plays the customer ("You want to cancel your flights"). Turned into the first person, the
sentences can be said as they are; those that direct the play ("You are terse", "If the agent says ...") are not said.
"""

from __future__ import annotations

import re

_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_DIRECTION = re.compile(
    r"^(if|unless|only after|before|ask\b|be\b|do not|don't|tell\b|insist|mention|say\b|try\b|use\b|under no|"
    r"you are (very|reactive|emotional|upset|extremely|impatient|a bit|not good|persistent|calling|contacting|busy)|"
    r"absolutely|this is (incorrect|not)|you (don't|do not) (want the agent|remember|volunteer)|in the middle|"
    r"first,|halfway)",
    re.IGNORECASE,
)
_WORDS = (
    (r"\byou are\b", "I am"),
    (r"\byou're\b", "I'm"),
    (r"\byou were\b", "I was"),
    (r"\byou've\b", "I've"),
    (r"\byou'd\b", "I'd"),
    (r"\byou'll\b", "I'll"),
    (r"\byourself\b", "myself"),
    (r"\byours\b", "mine"),
    (r"\byour\b", "my"),
    (
        r"\b(for|to|with|by|of|from|upgrade|told|tell|gives|give|that) you\b"
        r"(?! (want|are|have|can|will|were|did|do|need))",
        r"\1 me",
    ),
    (r"\byou\b", "I"),
)


def first_person(text: str) -> str:
    """`text` as the person it addresses would say it."""
    for pattern, word in _WORDS:
        text = re.sub(pattern, word, text, flags=re.IGNORECASE)
    return text[:1].upper() + text[1:]


def statements(text: str | None) -> tuple[str, ...]:
    """What of a scenario's text the caller can say, in order."""
    sentences = (" ".join(part.split()) for part in _SENTENCE.split(text or ""))
    said = (sentence.lstrip("- ") for sentence in sentences if sentence.strip("- ") and not _DIRECTION.match(sentence))
    return tuple(first_person(sentence) for sentence in said)
