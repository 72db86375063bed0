"""What the scripted customer understands of an agent's words: plain patterns, the same answer every time.

Idea: of a text the customer needs to know what it asks for, whether it states a plan to be confirmed, claims something
is done, refuses, or hands over to a human; and which facts it names (order numbers, ids, zip codes, card ends).
`judge` compares a stated plan with the wish that is pending. A customer who knows the shop's ids only from the agent's
words cannot check them, so where a plan names ids they are compared here on the customer's behalf.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from .wishes import Item, Wish

Verdict = Literal["match", "contradiction", "none"]
Slot = Literal["identity", "order", "items", "payment", "reason", "address"]

_TRANSFER = re.compile(
    r"\byou(('re| are) (now )?being| have been| will be) transferred to (a |our )?human|"
    r"\bi('m| am) (now )?transferring you|\bi('ve| have) transferred you"
)
_MORE = re.compile(
    r"[^.!?]*\b(anything|something) else\b[^.!?]*[.!?]*|[^.!?]*\b(further|more) (help|assistance)\b[^.!?]*[.!?]*"
)
_YES_NO = re.compile(r"\(yes/no\)|\byes or no\b|\bplease confirm\b|\bconfirm to proceed\b")
_CONFIRM = re.compile(
    r"\(yes/no\)|\byes or no\b|\bconfirm|\bproceed\b|\bgo ahead\b|\bshall i\b|\bshould i\b|\bwould you like me to\b|"
    r"\bdo you want me to\b|\bis (this|that) (correct|right|ok|okay)\b|\bdo you agree\b"
)
_CONFIRM_DETAIL = re.compile(r"\bconfirm (your|the) (e-?mail|name|zip|identity|order (number|id))")
_DONE = re.compile(
    r"\b(has|have|had) (now |just |already )?been\b|\bsuccessful(ly)?\b|\b(is|are|all) (now )?(done|complete[d]?)\b|"
    r"\bi('ve| have) (now |just )?\w+ed\b|\bi('ve| have) (now |just )?(put|set)\b|\b(is|are) now\b|^done\b|"
    r"\b(was|were) (cancell?ed|returned|exchanged|modified|changed|updated|submitted|processed)\b"
)
_DONE_OF = {
    "cancel": re.compile(r"\bcancell?(ed|ation)"),
    "return": re.compile(r"\breturn"),
    "exchange": re.compile(r"\bexchang"),
    "modify_items": re.compile(r"\b(modif|chang|updat|swap|switch|exchang)"),
    "modify_payment": re.compile(r"\bpayment"),
    "modify_address": re.compile(r"\b(address|ship)"),
    "user_address": re.compile(r"\baddress"),
}
_VERB = {
    **{
        kind: pattern
        for kind, pattern in _DONE_OF.items()
        if kind in ("modify_payment", "modify_address", "user_address")
    },
    "cancel": re.compile(r"\bcancel"),
    "return": re.compile(r"\b(return|refund)"),
    "exchange": re.compile(r"\b(exchang|replac|swap|switch|modif|chang|updat)"),
    "modify_items": re.compile(r"\b(exchang|replac|swap|switch|modif|chang|updat)"),
}
_REFUSES = re.compile(
    r"\b(cannot|can not|can't|unable|not able|not possible|impossible|isn't possible|not allowed|unfortunately|"
    r"won't|not available|no longer available|deny|denied|rejected|against (our|the|my) policy|not eligible|"
    r"not permitted|error|failed)\b"
)
_NOT_FOUND = re.compile(
    r"\b(could not|couldn't|cannot|can't|unable to|did not|didn't|not able to) (find|locate|verify|identify)\b|"
    r"\b(no|not) (account|user|customer)\b|\bnot found\b"
)
_ASKS = re.compile(
    r"\?|\bplease (provide|tell|share|give|specify|let me know|send|state|enter|verify|confirm (your|the))|"
    r"\b(may|can|could) i (have|get|ask)\b|\bi('ll| will)? (also )?need\b|\bprovide (me )?(with )?your\b"
)
_SLOTS: tuple[tuple[Slot, re.Pattern[str]], ...] = (
    (
        "identity",
        re.compile(
            r"\b(your|an?|the) (registered )?e-?mail( address)?\b(?! (regarding|with|about|on how|shortly|soon))|"
            r"\bzip|\bpostal code|\b(full|first|last) name\b|\byour name\b|\bidentity\b|\bauthenticat|"
            r"\bverify (you|who)"
        ),
    ),
    ("order", re.compile(r"\border (id|number|#)|\bwhich order\b|\bwhat order\b|\bthe order (id|number)")),
    (
        "payment",
        re.compile(
            r"\bpayment method|\bwhich (payment|card)|\bhow would you like (to pay|the refund)|\brefund(ed)? to\b|"
            r"\bpay (for )?(the|any) (price )?difference|\bmethod of payment|\bwhich (of your )?(gift )?cards?\b"
        ),
    ),
    ("reason", re.compile(r"\breason\b|\bwhy\b")),
    (
        "address",
        re.compile(
            r"\b(new|full|shipping|which|what|correct|complete|exact|the) (shipping |default )?address\b(?! is\b)"
        ),
    ),
    (
        "items",
        re.compile(
            r"\b(which|what) (item|product|one|option|variant|color|size|version|kind)|\bwhich of (the|these|them)|"
            r"\bspecif(y|ic)|\bdetails\b|\bwhat would you like\b|\bhow (can|may) i (help|assist)"
        ),
    ),
)
_ORDER = re.compile(r"#?\bw\d{7}\b")
_TEN_DIGITS = re.compile(r"(?<![\d.])\d{10}(?!\d)")
_PAYMENT_ID = re.compile(r"\b(?:credit_card|gift_card|paypal)_\d+\b")
_LAST_FOUR = re.compile(r"\bending (?:in|with)\W{0,4}(\d{4})\b")
_ZIP = re.compile(r"(?<!\d)\d{5}(?!\d)")
_SOURCES = {
    "credit_card": re.compile(r"\bcredit[ _]cards?|\b(visa|mastercard|amex)\b"),
    "paypal": re.compile(r"\bpaypal"),
    "gift_card": re.compile(r"\bgift[ _]cards?"),
}
_LIMITS = re.compile(r"\b(cannot|can't|can not|not be able|unable|won't|will not|no longer (be|possible)|only be)\b")
_EXCEPT = re.compile(r"\b(except|excluding|other than|besides|keep|keeping|remain\w*|not including|stays?|unchanged)\b")
_SIZES = {"s": "(s|small)", "m": "(m|medium)", "l": "(l|large)", "xl": "(xl|x-large|extra[ -]large)"}
_FILLER = re.compile(
    r"\b(thanks?|sure|happy|glad|pleased|help|assist|sorry|verified|located|found your|"
    r"i can(?! confirm| see| tell)|one moment|please wait|hello|hi)\b"
)
_FUTURE = re.compile(r"\b(i will|i'll|let me)\b")
_SENTENCE = re.compile(r"(?<=[.!?:])\s+|\n+")


@dataclass(frozen=True, slots=True)
class Heard:
    """`text` is lower case, without closing phrases about further help (`more` says there was one). `affirmed` is what
    remains without the sentences that refuse something; what is asked for is looked for in asking sentences only.
    `informs`: some sentence states a thing."""

    text: str
    affirmed: str
    more: bool
    transferred: bool
    confirms: bool
    done: bool
    refuses: bool
    not_found: bool
    informs: bool
    slots: frozenset[Slot]
    asks: bool


def hear(agent_text: str) -> Heard:
    lower = agent_text.lower().replace("\u2019", "'")
    text = _MORE.sub(" ", lower).strip()
    sentences = _SENTENCE.split(text)
    asking = " ".join(sentence for sentence in sentences if _ASKS.search(sentence) or _YES_NO.search(sentence))
    affirmed = " ".join(sentence for sentence in sentences if not _REFUSES.search(sentence))
    return Heard(
        text=text,
        affirmed=affirmed,
        more=text != lower.strip(),
        transferred=any(_TRANSFER.search(sentence) for sentence in sentences if not sentence.endswith("?")),
        confirms=bool(_CONFIRM.search(_CONFIRM_DETAIL.sub(" ", asking))),
        done=bool(_DONE.search(affirmed)),
        refuses=affirmed != " ".join(sentences),
        not_found=bool(_NOT_FOUND.search(text)),
        informs=any(map(_informs, sentences)),
        slots=frozenset(name for name, pattern in _SLOTS if pattern.search(asking)),
        asks=bool(asking),
    )


def _informs(sentence: str) -> bool:
    """A statement with something in it: neither a question nor a refusal nor mere politeness."""
    if any(pattern.search(sentence) for pattern in (_ASKS, _YES_NO, _REFUSES, _FUTURE)):
        return False
    return bool(re.search(r"\d", sentence)) or (len(sentence.split()) >= 4 and not _FILLER.search(sentence))


def claims_done(wish: Wish, heard: Heard) -> bool:
    """The agent says that this very kind of thing has happened."""
    return heard.done and bool(_DONE_OF[wish.kind].search(heard.affirmed))


def judge(wish: Wish, heard: Heard, known_orders: frozenset[str]) -> Verdict:
    """Whether the plan in the agent's words is the wish. `none`: no plan for anything is stated. A plan matches when
    it names the right action and, for items, each of them and what replaces it, and nothing in it contradicts the wish.
    `known_orders`: orders of earlier wishes, which a recapitulation may name."""
    planned = " ".join(sentence for sentence in _SENTENCE.split(heard.text) if not _LIMITS.search(sentence))
    if not any(pattern.search(planned) for pattern in _VERB.values()):
        return "none"
    if not _VERB[wish.kind].search(planned):
        return "contradiction"
    if wish.kind != "cancel" and _VERB["cancel"].search(planned):
        return "contradiction"
    agrees = (
        _orders_agree(wish, heard.text, known_orders)
        and _items_agree(wish, planned)
        and _payment_agrees(wish, planned)
        and _reason_agrees(wish, planned)
        and _address_agrees(wish, heard.text)
    )
    return "match" if agrees else "contradiction"


def _orders_agree(wish: Wish, text: str, known: frozenset[str]) -> bool:
    named = {"#" + match.lstrip("#").upper() for match in _ORDER.findall(text)}
    if wish.order_id is None or wish.kind == "modify_address":
        # The address may be one that another order carries.
        return wish.order_id is None or wish.order_id in named or (not named and _order_described(wish, text))
    if wish.order_id in named:
        return named <= known | {wish.order_id}
    return not named and (bool(wish.items) or _order_described(wish, text))


def _order_described(wish: Wish, text: str) -> bool:
    return any(name.lower() in text for name in wish.contents)


def _items_agree(wish: Wish, text: str) -> bool:
    if not wish.items:
        return True
    ids = set(_TEN_DIGITS.findall(text))
    expected = {i for thing in wish.items for i in (thing.item_id, thing.new_item_id, thing.product_id) if i}
    if not ids <= expected or not all(_item_named(thing, text, ids) for thing in wish.items):
        return False
    return bool(_EXCEPT.search(text)) or not any(name.lower() in text for name in wish.others)


def _item_named(thing: Item, text: str, ids: set[str]) -> bool:
    by_name = thing.name.lower() in text or thing.name.lower().split()[-1] in text
    old = thing.item_id in ids or (by_name and (thing.unique or _options_named(thing.options, text)))
    return old and (not thing.changes or thing.new_item_id in ids or _options_named(thing.changes, text))


def _options_named(options: Mapping[str, str], text: str) -> bool:
    return all(_option_named(name.lower(), value.lower(), text) for name, value in options.items())


def _option_named(name: str, value: str, text: str) -> bool:
    """Whether the text says that option `name` is `value`, in one of the ways people do."""
    option = re.escape(name)
    absent = re.search(rf"\b(no|not|non|without)[\s-]+(an? |any )?{option}|\b{option}\W+(no|none)\b", text)
    if value in ("none", "no", "not resistant"):
        return bool(absent) or (len(value) > 2 and value in text)
    if value == "yes":
        return name in text and not absent
    words = _SIZES.get(value, re.escape(value).replace(r"\ ", "[\\s-]*").replace(r"\-", "[\\s-]*"))
    return bool(re.search(rf"(?<![a-z0-9'.]){words}(?![a-z0-9])", text))


def _payment_agrees(wish: Wish, text: str) -> bool:
    if wish.payment is None:
        return True
    ids, ends = set(_PAYMENT_ID.findall(text)), set(_LAST_FOUR.findall(text))
    if ids:
        return wish.payment.id in ids
    sources = {name for name, pattern in _SOURCES.items() if pattern.search(text)}
    if sources and wish.payment.source not in sources:
        return False
    return not ends or wish.payment.last_four is None or wish.payment.last_four in ends


def names_payment(text: str) -> bool:
    return any(pattern.search(text) for pattern in _SOURCES.values())


def _reason_agrees(wish: Wish, text: str) -> bool:
    if wish.kind != "cancel":
        return True
    other = "mistake" if wish.reason == "no longer needed" else "no longer need"
    return other not in text


def _address_agrees(wish: Wish, text: str) -> bool:
    if wish.address is None:
        return True
    named = set(_ZIP.findall(text))
    if named and wish.address.zip not in named:
        return False
    street = wish.address.text.split(",")[0].lower()
    return street in text or wish.address.zip in named
