"""What the scripted caller understands of an agent's words: plain patterns, the same answer every time."""

from __future__ import annotations

import re
from typing import Literal

from .wishes import Wish

Verdict = Literal["match", "contradiction", "none"]
Slot = Literal["reservation", "payment", "reason"]

TRANSFERRED = re.compile(
    r"you are being transferred|i(?:'m| am) transferring you|transferred to a human", re.IGNORECASE
)
CONFIRM = re.compile(
    r"\bconfirm|\bproceed\b|\bgo ahead\b|\(yes/no\)|\bshall i\b|\bwould you like me to\b", re.IGNORECASE
)
IDENTITY = re.compile(r"\buser id\b|\byour (full )?name\b|\bwho (am i|are you)\b|\bidentif|\bverify\b", re.IGNORECASE)
RESERVATION = re.compile(
    r"\b(reservation|confirmation|booking) (id|number|code)\b|\bwhich reservation\b", re.IGNORECASE
)
REFUSES = re.compile(
    r"\b(cannot|can't|unable|not able|not possible|not allowed|unfortunately|not eligible|not permitted)\b",
    re.IGNORECASE,
)
DONE = re.compile(
    r"\b(has|have) been\b|\bsuccessfully\b|\b(is|are) now\b|\bi(?:'ve| have) (now )?\w+ed\b", re.IGNORECASE
)
_MORE = re.compile(r"[^.!?]*\b(anything|something) else\b[^.!?]*[.!?]*", re.IGNORECASE)
_SLOTS: tuple[tuple[Slot, re.Pattern[str]], ...] = (
    ("reservation", RESERVATION),
    (
        "payment",
        re.compile(r"\bpayment method\b|\bhow would you like to pay\b|\bwhich (card|payment)\b", re.IGNORECASE),
    ),
    ("reason", re.compile(r"\breason\b|\bwhy\b", re.IGNORECASE)),
)
_VERBS = {
    "book_reservation": r"\bbook",
    "cancel_reservation": r"\bcancel",
    "send_certificate": r"\b(certificate|voucher|compensat)",
    "update_reservation_baggages": r"\b(bag|bags|baggage|baggages|suitcases?|luggage)\b",
    "update_reservation_flights": r"\b(change|update|upgrade|downgrade|modif|switch|move)",
    "update_reservation_passengers": r"\b(passenger|name)",
}
_ID = re.compile(r"\b(?=[A-Z0-9]*\d)(?!HAT\d{3}\b)[A-Z0-9]{6}\b")
_BAGS = re.compile(r"\b(\d+) (?:checked )?(?:bag|suitcase)", re.IGNORECASE)
_CABINS = ("basic economy", "economy", "business")
_SOURCES = {
    "credit_card": re.compile(r"\bcredit[ _]cards?|\b(visa|mastercard|amex)\b", re.IGNORECASE),
    "gift_card": re.compile(r"\bgift[ _]cards?", re.IGNORECASE),
    "certificate": re.compile(r"\bcertificates?", re.IGNORECASE),
}
_LAST_FOUR = re.compile(r"\bending (?:in|with)\W{0,4}(\d{4})\b", re.IGNORECASE)


def heard(agent_text: str) -> str:
    """The words without offers of further help."""
    return _MORE.sub(" ", agent_text.replace("\u2019", "'")).strip()


def slots(text: str) -> frozenset[Slot]:
    """What the text asks for."""
    asks = "?" in text or "please" in text.lower()
    return frozenset(slot for slot, pattern in _SLOTS if asks and pattern.search(text))


def judge(wish: Wish, text: str) -> Verdict:
    """`match`: the text names every fact of the wish and nothing against it. `contradiction`: it is about this kind of
    write and names another reservation, cabin, number of bags or payment than the wished one."""
    if not re.search(_VERBS[wish.tool], text, re.IGNORECASE):
        return "none"
    if _contradicts(wish, text):
        return "contradiction"
    words = text.lower().replace(",", "").replace("_", " ")
    return "match" if all(any(form.lower() in words for form in fact) for fact in wish.facts) else "none"


def names_payment(text: str) -> bool:
    return any(pattern.search(text) for pattern in _SOURCES.values())


def _contradicts(wish: Wish, text: str) -> bool:
    ids = set(_ID.findall(text))
    if wish.trip is not None and wish.trip.id and ids and wish.trip.id not in ids:
        return True
    wanted = next((cabin for (cabin, *_) in wish.facts if cabin in _CABINS), None)
    if wanted is not None and (named := _cabins(text)) and wanted not in named:
        return True
    bags = {int(count) for count in _BAGS.findall(text)}
    if wish.bags is not None and bags and wish.bags not in bags:
        return True
    return bool(wish.payments) and _other_payment(wish, text)


def _cabins(text: str) -> set[str]:
    words = text.lower().replace("_", " ")
    named = {"basic economy"} if "basic economy" in words else set()
    rest = words.replace("basic economy", "")
    return named | {cabin for cabin in ("economy", "business") if cabin in rest}


def _other_payment(wish: Wish, text: str) -> bool:
    """Whether the text pays with what the wish does not name at all."""
    ends = set(_LAST_FOUR.findall(text))
    if ends - {payment.last_four for payment in wish.payments}:
        return True
    sources = {source for source, pattern in _SOURCES.items() if pattern.search(text)}
    return bool(sources - {payment.source for payment in wish.payments})
