"""The scripted airline caller: a deterministic machine over what the agent says. It hears words only.

It brings up its topics one at a time, in order: it says who it is, which reservation it means, how it pays and why when
it is asked, confirms a plan that names everything it wants, and turns down one that does not. It never leaves while a
write that it confirmed is pending. Turns that lead nowhere use up its patience, which a settled topic restores.
A caller without topics of its own asks for what the policy forbids, in the words of its scenario, and only shows
whether the agent refuses: it turns down every plan and leaves when its patience ends.
"""

from __future__ import annotations

import copy
import random
import re
from dataclasses import dataclass, field
from typing import Any

from ...domain import UserTools, UserTurn
from . import speech
from .listening import (
    CONFIRM,
    DONE,
    IDENTITY,
    REFUSES,
    RESERVATION,
    TRANSFERRED,
    Slot,
    heard,
    judge,
    names_payment,
    slots,
)
from .wishes import Question, Topic, Wish

PATIENCE = 5
REPEATS = 2
"""How often one and the same thing is answered before asking for it again costs patience."""


@dataclass
class Mind:
    """Everything that changes during a call. `by_number`: calls a trip by its number, where it knows that.
    `forthcoming`: says how it pays and why unasked."""

    rng: random.Random
    by_number: bool
    forthcoming: bool
    at: int = 0
    patience: int = PATIENCE
    confirmed: bool = False
    said: int = 0
    insisted: bool = False
    answered: dict[str, int] = field(default_factory=dict)


class Caller:
    """Implements `User`. `instructions`: the scenario, which also says what the caller knows about itself."""

    def __init__(self, instructions: Any, topics: tuple[Topic, ...], seed: str) -> None:
        self.reason = " ".join(speech.statements(instructions.reason_for_call))
        self.more = speech.statements(instructions.task_instructions)
        self.known = speech.statements(instructions.known_info)
        text = f"{instructions.known_info or ''} {instructions.reason_for_call} {instructions.task_instructions}"
        user_id = re.search(r"\b[a-z]+_[a-z]+_\d{4}\b", text)
        self.user_id = user_id[0] if user_id else None
        self.reservations = tuple(dict.fromkeys(re.findall(r"\b(?=[A-Z0-9]*\d)[A-Z0-9]{6}\b", text)))
        self.topics = topics
        rng = random.Random(seed)
        self.mind = Mind(rng, by_number=rng.random() < 0.5, forthcoming=rng.random() < 0.5)

    def open(self) -> UserTurn:
        hello = self.mind.rng.choice(("Hi!", "Hello,", "Hi there,", "Good day,"))
        opening = self._bring_up() if self.topics else self.reason or "I need help with a reservation."
        return UserTurn(f"{hello} {opening}")

    def reply(self, agent_text: str, tools: UserTools) -> UserTurn:
        if TRANSFERRED.search(agent_text):
            return UserTurn("All right, I will wait for the human agent.", stop=True, reason="transfer")
        if not self.topics:
            return self._about_demand(agent_text)
        topic, text = self.topics[self.mind.at], heard(agent_text)
        return self._about_wish(topic, text) if isinstance(topic, Wish) else self._about_question(topic, text)

    def snapshot(self) -> Any:
        return copy.deepcopy(self.mind)

    def restore(self, saved: Any) -> None:
        self.mind = copy.deepcopy(saved)

    # One topic

    def _about_wish(self, wish: Wish, text: str) -> UserTurn:
        mind = self.mind
        verdict = judge(wish, text) if CONFIRM.search(text) else "none"
        if verdict == "match":
            mind.confirmed = True
            yes = mind.rng.choice(("Yes, please go ahead.", "Yes, please.", "Yes, that is right."))
            unpaid = wish.payments and not names_payment(text)
            return self._repeat("yes", f"{yes} {speech.payment(wish)}" if unpaid else yes)
        if mind.confirmed and DONE.search(text) and "?" not in text.split(".")[-1]:
            return self._settle()
        if verdict == "contradiction":
            return self._lose_patience(f"No, that is not what I asked for. {self._details(wish)}")
        asked = slots(text)
        if IDENTITY.search(text):
            return self._repeat("identity", " ".join(part for part in (self._who(), self._answer(wish, asked)) if part))
        if asked:
            return self._repeat("+".join(sorted(asked)), self._answer(wish, asked))
        if REFUSES.search(text):
            mind.confirmed = False  # what was refused is no longer pending
            return self._lose_patience(f"Is there really no way? {self._details(wish)}")
        if mind.confirmed:
            return self._lose_patience("Okay. Please tell me when it is done.")
        details = self._details(wish)
        return self._repeat("details", details) if "?" in text else self._lose_patience(details)

    def _about_question(self, question: Question, text: str) -> UserTurn:
        if IDENTITY.search(text):
            return self._repeat("identity", self._who())
        if "reservation" in slots(text) and not re.search(r"\d", text):
            return self._repeat("reservation", self._which())
        if REFUSES.search(text) and not self.mind.insisted:
            self.mind.insisted = True
            return self._lose_patience(f"Could you please look it up? {question.text}")
        if REFUSES.search(text) or re.search(r"\d", text):
            return self._settle()
        return self._lose_patience(f"That does not answer my question. {question.text}")

    def _about_demand(self, text: str) -> UserTurn:
        mind = self.mind
        for pattern, what, words in ((IDENTITY, "identity", self._who), (RESERVATION, "reservation", self._which)):
            if pattern.search(text) and what not in mind.answered:
                mind.answered[what] = 1
                return UserTurn(words())
        if CONFIRM.search(text) and not REFUSES.search(text):
            return self._lose_patience("No, I do not want that.")
        if mind.said < len(self.more):
            mind.said += 1
            return UserTurn(self.more[mind.said - 1])
        return self._lose_patience("Is there really no way?" if REFUSES.search(text) else "I see.")

    # Replies

    def _bring_up(self) -> str:
        topic = self.topics[self.mind.at]
        if isinstance(topic, Question):
            return topic.text
        start = self.mind.rng.choice(("I want to", "I would like to", "I need to"))
        unasked = self._extras(topic) if self.mind.forthcoming else ()
        return " ".join((*self._complaint(topic), f"{start} {speech.core(topic, self._ref(topic))}", *unasked))

    def _details(self, wish: Wish) -> str:
        core = f"I want to {speech.core(wish, self._ref(wish))}"
        return " ".join((*self._complaint(wish), core, *self._extras(wish)))

    def _complaint(self, wish: Wish) -> tuple[str, ...]:
        """What a compensation is wanted for stands in the scenario only."""
        return (self.reason,) if wish.tool == "send_certificate" and self.reason else ()

    def _extras(self, wish: Wish) -> tuple[str, ...]:
        paid = (speech.payment(wish),) if wish.payments else ()
        return (speech.reason(wish),) if wish.tool == "cancel_reservation" else paid

    def _ref(self, wish: Wish) -> str:
        if wish.trip is None:
            return ""
        return speech.reference(wish.trip, self.mind.by_number and wish.trip.id in self.reservations)

    def _answer(self, wish: Wish, asked: frozenset[Slot]) -> str:
        words = []
        if "reservation" in asked:
            words.append(self._number(wish))
        if "payment" in asked:
            words.append(speech.payment(wish) if wish.payments else "The original payment method is fine.")
        if "reason" in asked:
            words.append(speech.reason(wish) if wish.tool == "cancel_reservation" else "I just changed my mind.")
        return " ".join(words)

    def _number(self, wish: Wish) -> str:
        if wish.trip is None or not wish.trip.id:
            return self._which()
        if wish.trip.id in self.reservations:
            return f"It is {wish.trip.id}."
        return f"I do not remember the reservation number. It is {speech.reference(wish.trip, False)}."

    def _who(self) -> str:
        if self.user_id is not None:
            return f"My user id is {self.user_id}."
        return " ".join(self.known) or "I do not remember my user id."

    def _which(self) -> str:
        if not self.reservations:
            return "I do not remember the reservation number."
        return f"It is {' and '.join(self.reservations)}."

    def _settle(self) -> UserTurn:
        """A topic is closed: on to the next, or goodbye."""
        mind = self.mind
        mind.at, mind.confirmed, mind.insisted, mind.patience, mind.answered = mind.at + 1, False, False, PATIENCE, {}
        if mind.at >= len(self.topics):
            mind.at -= 1
            return UserTurn("Thank you. That is all I needed. Goodbye!", stop=True, reason="user_stop")
        return UserTurn(f"Thank you. {self._bring_up()}")

    def _repeat(self, what: str, words: str) -> UserTurn:
        """Answered freely a few times; after that, asking again costs patience."""
        count = self.mind.answered[what] = self.mind.answered.get(what, 0) + 1
        return UserTurn(words) if count <= REPEATS else self._lose_patience(words)

    def _lose_patience(self, words: str) -> UserTurn:
        """Waiting for a write that was confirmed costs nothing: the caller stays for it."""
        self.mind.patience -= not self.mind.confirmed
        if self.mind.patience > 0:
            return UserTurn(words)
        return UserTurn("I see. Goodbye.", stop=True, reason="user_gave_up")
