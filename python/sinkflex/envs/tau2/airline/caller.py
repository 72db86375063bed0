"""The scripted airline caller: a deterministic machine over what the agent says.

It opens with the reason for the call, answers who it is and which reservation it means, says the rest of its scenario
when it is asked, confirms a plan that names everything it wants and turns down one that does not. It never leaves while
a write that it confirmed is pending. Wishes that were refused, and calls without any, end when its patience does.
Derivable are the 26 tasks with writes; the others only show whether an agent refuses. It hears words only.
"""

from __future__ import annotations

import copy
import random
import re
from dataclasses import dataclass, field
from typing import Any

from ...domain import UserTools, UserTurn
from .speech import statements
from .wishes import Wish, contradicts, named

PATIENCE = 5
_TRANSFERRED = re.compile(
    r"you are being transferred|i(?:'m| am) transferring you|transferred to a human", re.IGNORECASE
)
_CONFIRM = re.compile(
    r"\bconfirm|\bproceed\b|\bgo ahead\b|\(yes/no\)|\bshall i\b|\bwould you like me to\b", re.IGNORECASE
)
_IDENTITY = re.compile(r"\buser id\b|\byour (full )?name\b|\bwho (am i|are you)\b|\bidentif|\bverify\b", re.IGNORECASE)
_RESERVATION = re.compile(
    r"\b(reservation|confirmation|booking) (id|number|code)\b|\bwhich reservation\b", re.IGNORECASE
)
_REFUSES = re.compile(
    r"\b(cannot|can't|unable|not able|not possible|not allowed|unfortunately|not eligible|not permitted)\b",
    re.IGNORECASE,
)
_DONE = re.compile(
    r"\b(has|have) been\b|\bsuccessfully\b|\b(is|are) now\b|\bi(?:'ve| have) (now )?\w+ed\b", re.IGNORECASE
)


@dataclass
class Mind:
    """Everything that changes during a call."""

    rng: random.Random
    at: int = 0
    patience: int = PATIENCE
    confirmed: bool = False
    said: int = 0
    told: set[str] = field(default_factory=set)


class Caller:
    """Implements `User`. `reservations` are those the scenario lets the caller know."""

    def __init__(self, instructions: Any, wishes: tuple[Wish, ...], seed: str) -> None:
        reason = statements(instructions.reason_for_call)
        self.opening = " ".join(reason) or "I need help with a reservation."
        self.more = statements(instructions.task_instructions)
        self.known = statements(instructions.known_info)
        text = f"{instructions.known_info or ''} {instructions.reason_for_call} {instructions.task_instructions}"
        user_id = re.search(r"\b[a-z]+_[a-z]+_\d{4}\b", text)
        self.user_id = user_id[0] if user_id else None
        self.reservations = tuple(dict.fromkeys(re.findall(r"\b(?=[A-Z0-9]*\d)[A-Z0-9]{6}\b", text)))
        self.wishes = wishes
        self.mind = Mind(random.Random(seed))

    def open(self) -> UserTurn:
        hello = self.mind.rng.choice(("Hi!", "Hello,", "Hi there,", "Good day,"))
        return UserTurn(f"{hello} {self.opening}")

    def reply(self, agent_text: str, tools: UserTools) -> UserTurn:
        if _TRANSFERRED.search(agent_text):
            return UserTurn("All right, I will wait for the human agent.", stop=True, reason="transfer")
        wish = self.wishes[self.mind.at] if self.mind.at < len(self.wishes) else None
        if wish is not None and _CONFIRM.search(agent_text) and named(wish, agent_text):
            self.mind.confirmed = True
            return UserTurn(self.mind.rng.choice(("Yes, please go ahead.", "Yes, please.", "Yes, that is right.")))
        if self.mind.confirmed and _DONE.search(agent_text) and "?" not in agent_text.split(".")[-1]:
            return self._settle()
        if wish is not None and contradicts(wish, agent_text) and _CONFIRM.search(agent_text):
            return self._lose_patience("No, that is not what I asked for.")
        if _IDENTITY.search(agent_text) and "identity" not in self.mind.told:
            self.mind.told.add("identity")
            return UserTurn(self._who())
        if _RESERVATION.search(agent_text) and "reservation" not in self.mind.told:
            self.mind.told.add("reservation")
            return UserTurn(self._which())
        if wish is None and not self.wishes and _CONFIRM.search(agent_text) and not _REFUSES.search(agent_text):
            return self._lose_patience("No, I do not want that.")
        if self.mind.said < len(self.more):
            self.mind.said += 1
            return UserTurn(self.more[self.mind.said - 1])
        if wish is None and _REFUSES.search(agent_text):
            return self._lose_patience("Is there really no way?")
        return self._lose_patience("That is all I can tell you. Please do what I asked for." if wish else "I see.")

    def snapshot(self) -> Any:
        return copy.deepcopy(self.mind)

    def restore(self, saved: Any) -> None:
        self.mind = copy.deepcopy(saved)

    def _who(self) -> str:
        if self.user_id is not None:
            return f"My user id is {self.user_id}."
        return " ".join(self.known) or "I do not remember my user id."

    def _which(self) -> str:
        if not self.reservations:
            return "I do not remember the reservation number."
        return f"It is {' and '.join(self.reservations)}."

    def _settle(self) -> UserTurn:
        """A wish is done: on to the next, or goodbye."""
        mind = self.mind
        mind.at, mind.confirmed, mind.patience = mind.at + 1, False, PATIENCE
        if mind.at >= len(self.wishes):
            return UserTurn("Thank you. That is all I needed. Goodbye!", stop=True, reason="user_stop")
        return UserTurn("Thank you. And the rest of what I asked for?")

    def _lose_patience(self, words: str) -> UserTurn:
        self.mind.patience -= 1
        if self.mind.patience > 0 or self.mind.confirmed:
            return UserTurn(words)
        return UserTurn("I see. Goodbye.", stop=True, reason="user_gave_up")
