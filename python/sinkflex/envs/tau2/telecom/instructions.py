"""What a user understands of an agent's words: which things to do on the phone, in order.

Idea: the text is cut into clauses; a clause has a topic (a switch, a setting, a test), a verb (look or change) and, for
switches, the position that is wanted. What a clause leaves out ("then turn it off", "and data saver") comes from the
one before. Names of tools are read as the words they consist of. Conditions ("if it is on"), prohibitions and what the
agent says of itself are no instructions. Pure functions over text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do. `change` False: only look. `on`: the position wanted of a switch, None where none is named."""

    topic: str
    change: bool = False
    on: bool | None = None
    mode: str | None = None
    app: str = "messaging"
    permission: str | None = None


QUOTES = str.maketrans(
    "\N{LEFT SINGLE QUOTATION MARK}\N{RIGHT SINGLE QUOTATION MARK}\N{NON-BREAKING HYPHEN}\N{HYPHEN}", "''--"
)
SWITCHES = ("airplane", "data", "roaming", "saver", "wifi", "wifi_calling", "vpn")

_TOPICS: Mapping[str, str] = {
    "wifi_calling": r"wi-?fi[ -]call",
    "wifi": r"wi-?fi(?![ -]call)",
    "airplane": r"air ?plane|flight mode|aeroplane",
    "saver": r"data[ -]?saver|data[ -](?:restriction|limiting)",
    "roaming": r"roaming",
    "mode": r"network[ -](?:mode|preference|type)|preferred[ -](?:network|mode)|[2-5]g[ /-](?:only|[45]g|preferr)|lte",
    "vpn": r"\bvpn\b|virtual private",
    "sim": r"\bsim\b",
    "apn": r"\bapn\b|access point|mmsc",
    "permission": r"permission|\bstorage\b|\bsms\b",
    "apps": r"installed apps|apps? (?:that )?(?:are|is|you have) installed|which apps|list of (?:the )?apps",
    "app_status": r"app(?:lication)?[ -]status|status of the \S+ app",
    "speed": r"speed[ -]?test|(?:test|check|measure|how) .{0,20}\bspeed",
    "mms": r"\bmms\b|picture message|photo message|multimedia",
    "bar": r"status[ -]?bar|signal|\bbars\b|service on your phone",
    "network": r"network[ -](?:status|connection|settings)|connection status|cellular",
    "reboot": r"re-?boot|re-?start|power[ -]cycle",
    "request": r"payment[ -]request|request for (?:the )?payment",
    "pay": r"make (?:a|the|that|this|your)? ?payment|\bpay (?!by|with)",
    "data": r"(?:mobile|cellular)[ -]data(?! roam)|\bdata (?:connection|switch|on|off)\b|toggle data(?! roam| saver)",
}
_PATTERNS = {topic: re.compile(pattern) for topic, pattern in _TOPICS.items()}
_CLAUSES = re.compile(r"[.;!?:](?=\s|$)|\n+|,|\s-\s|\b(?:then|and|afterwards|please)\b", re.IGNORECASE)
_LOOK = re.compile(
    r"\b(?:check|look|see|tell|show|verify|confirm|read|report|let me know|what|is|are|does|do you|can you send|try|"
    r"sending|send|run|running|test|perform|measure|checking)\b"
)
_TOGGLE = re.compile(
    r"\b(?:(?:toggl|enabl|disabl|activat|deactivat)(?:e|ing)|(?:switch|turn|flipp?|sett?)(?:ing)?|make sure|ensure|"
    r"keep|(?:needs?|has|have|should|must) (?:to )?be)\b"
)
_CHANGE = {
    "sim": r"re-?seat|re-?insert|remov|take|taking|eject|pop|put",
    "apn": r"reset|restor",
    "mode": r"\b(?:set|chang|switch|select|choos|prefer|put|updat)(?:e|t?ing)?\b",
    "permission": r"\b(?:grant|allow|giv|enabl|turn on|add)(?:e|ing)?\b",
    "vpn": r"\b(?:disconnect|connect|turn|switch|disabl|enabl|deactivat|toggl)(?:e|ing)?\b",
}
_CHANGES = {topic: re.compile(pattern) for topic, pattern in _CHANGE.items()}
_VERBS = (_LOOK, _TOGGLE, *_CHANGES.values(), _PATTERNS["reboot"], _PATTERNS["pay"])
_CONDITION = re.compile(r"^\W*(?:if|when|once|after|in case|unless|as soon as|since|because|while)\b")
_NEGATION = re.compile(r"\b(?:don'?t|do not|never|no need|without|avoid|instead of|rather than)\b")
_AGENT = re.compile(
    r"\b(?:i|we)(?:'ll|'ve|'m|'d| )|\bon (?:our|my) (?:side|end)\b|\blet me (?!know)|\b(?:your|the) line\b"
)
_ASKING = re.compile(
    r"\b(?:i|we)(?:'d| would| will|'ll)? ?(?:need|want|like|ask|have|suggest|recommend)\b.{0,12}\byou\b"
)
_WHOSE = re.compile(r"\b(?:would you like|shall|should|do you want|may|can) (?:me|i|we|us)\b")
_ADJACENT = re.compile(r"\b(?:turn|switch|toggle|flip)\w* (?:it |them |that |this )?(?:back )?(on|off)\b")
_PLACED = re.compile(r"\b(?:is|are|it|to|be|stays?) (?:\w+ )?(on|off|enabled|disabled)\b")
_LAST = re.compile(r"\b(on|off|enabled|disabled)\W*$")
_BACK = re.compile(r"(?:(?:turn|switch) )?(?:it )?(?:back )?(on|off)(?: again)?")
_SHOUTED = re.compile(r"\b(ON|OFF)\b")
_MODE = (
    ("4g_5g_preferred", r"4g\W*(?:/|_|and|or|-)?\W*5g|5g\W*(?:/|_|and|or|-)?\W*4g|5g|lte|highest|fastest"),
    ("4g_only", r"4g"),
    ("3g_only", r"3g"),
    ("2g_only", r"2g"),
)


def steps(text: str) -> list[Step]:
    """Everything that `text` asks the user to do on the phone, in order, nothing twice in a row."""
    found: list[Step] = []
    for step in _read(text.replace("_", " ").replace("*", "").replace("`", "").translate(QUOTES)):
        if step not in found[-1:]:
            found.append(step)
    # An app without a permission, in a clause of its own, only introduces the ones that follow.
    named = any(step.permission is not None for step in found)
    return [
        step for step in found if not (named and step.change and step.topic == "permission" and not step.permission)
    ]


def _read(text: str) -> Iterator[Step]:
    app = "browser" if "browser" in text.lower() and "messag" not in text.lower() else "messaging"
    last: Step | None = None
    topics: list[str] = []
    about_agent = False
    for clause in _CLAUSES.split(text):
        lower = clause.lower().strip()
        if not lower:
            continue
        named = _topics(lower)
        if _CONDITION.search(lower):
            topics = named or topics
            continue
        if (_WHOSE.search(lower) or _AGENT.search(lower)) and not _ASKING.search(lower):
            about_agent, last, topics = True, None, named or topics
            continue
        verb = any(pattern.search(lower) for pattern in _VERBS)
        if about_agent and not verb:
            continue
        about_agent = False
        if not named and last is not None and last.topic in SWITCHES and (m := _BACK.fullmatch(lower)):
            last = replace(last, on=m[1] == "on")
            yield last
        if not named and verb and re.search(r"\b(?:it|them|that|this)\b", lower):
            named = topics
        for topic in named:
            step = _step(topic, clause, app)
            if step is None and not verb and last is not None:
                step = _inherit(last, topic, lower)
            if step is None or (_NEGATION.search(lower) and step.change):
                continue
            yield from _permissions(step, lower) if topic == "permission" else (step,)
            last = step
        topics = named or topics


def _topics(lower: str) -> list[str]:
    """In the order of the words. A wider topic inside a narrower one (data in data roaming) does not count."""
    found = [(m.start(), m.end(), topic) for topic, pattern in _PATTERNS.items() for m in [pattern.search(lower)] if m]
    found.sort()
    names = [topic for _, _, topic in found]
    if "mms" in names and ("permission" in names or "apn" in names):
        names.remove("mms")
    if "network" in names and len(names) > 1:
        names.remove("network")
    if "pay" in names and "request" in names:
        names = ["request", "pay"]
    if "permission" in names and "app_status" in names:
        names.remove("app_status")
    return names


def _step(topic: str, clause: str, app: str) -> Step | None:
    lower = clause.lower()
    looks = _LOOK.search(lower) is not None
    if topic == "apn" and re.search(r"\b(?:set|change|edit|enter|configure|update)\b", lower):
        return Step("apn_by_hand", change=True)
    if topic in _CHANGES and _CHANGES[topic].search(lower):
        if topic == "mode":
            return Step(topic, change=True, mode=_mode(lower))
        if topic == "vpn":
            off = re.search(r"\bdisconnect|\boff\b|\bdisable|\bdeactivate", lower)
            return Step(topic, change=True, on=off is None)
        return Step(topic, change=True, app=app)
    if topic in SWITCHES and _TOGGLE.search(lower):
        return Step(topic, change=True, on=_position(clause))
    if topic in ("reboot", "pay"):
        return Step(topic, change=True)
    if topic in ("request", "speed") or looks:
        return Step(topic, app=app)
    return None


def _inherit(last: Step, topic: str, lower: str) -> Step | None:
    """The verb of the clause before, for one that has none: "turn off airplane mode and data saver"."""
    if last.change and not (topic in SWITCHES and last.topic in SWITCHES) and topic != last.topic:
        return None
    return replace(last, topic=topic)


def _position(clause: str) -> bool | None:
    lower = clause.lower()
    if m := _ADJACENT.search(lower):
        return m[1] == "on"
    if re.search(r"\b(?:disable|deactivate)", lower):
        return False
    if re.search(r"\b(?:enable|activate)(?!d)", lower):
        return True
    for pattern, text in ((_PLACED, lower), (_SHOUTED, clause), (_LAST, lower)):
        if m := pattern.search(text):
            return m[1].lower() in ("on", "enabled")
    return None


def _mode(lower: str) -> str | None:
    wanted = lower.rpartition(" to ")[2] if " to " in lower else lower
    for source in (wanted, lower):
        for mode, pattern in _MODE:
            if re.search(pattern, source):
                return mode
    return None


def _permissions(step: Step, lower: str) -> Iterator[Step]:
    if not step.change:
        yield step
        return
    named = [name for name in ("storage", "sms") if re.search(rf"\b{name}\b", lower)]
    # The words of these two are too common to stand for the permission by themselves.
    rare = ("phone", "network")
    named += [name for name in rare if re.search(rf"\b{name} permission|permissions? (?:for )?{name}", lower)]
    for name in named or (None,):
        yield replace(step, permission=name)
