"""The scripted retail customer: a deterministic machine over what the agent says.

It brings up its topics one at a time, in order. For a wish: it answers what is asked (identity, order number, items,
payment, reason, address), confirms a plan that is the wish, turns down one that is not and says everything again, and
waits until it is told that the write is done: it never leaves while a write that it confirmed is pending. A wish that
the shop must refuse is dropped at the first refusal. Turns that lead nowhere use up its patience, which is restored
when a topic is settled; without patience it gives up and the conversation ends.

It hears words only: it knows nothing of the calls that the agent makes.
"""

from __future__ import annotations

import copy
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from ...domain import UserTools, UserTurn
from . import speech
from .identity import Credential
from .listening import Heard, Slot, claims_done, hear, judge, names_payment
from .speech import Manner
from .wishes import Demand, Question, Topic, Wish

PATIENCE = 4
REPEATS = 2
"""How often one and the same thing is answered before asking for it again costs patience."""


@dataclass
class Mind:
    """Everything that changes during a conversation."""

    rng: random.Random
    manner: Manner
    at: int = 0
    patience: int = PATIENCE
    confirmed: bool = False
    wants_human: bool = False
    credentials_given: int = 0
    answered: Counter[str] = field(default_factory=Counter)


class Customer:
    """Implements `User`. `topics` and `credentials` come from the task; equal seeds give equal conversations."""

    def __init__(self, topics: tuple[Topic, ...], credentials: tuple[Credential, ...], seed: str) -> None:
        self.topics = topics
        self.credentials = credentials
        rng = random.Random(seed)
        self.mind = Mind(rng, Manner(forthcoming=rng.random() < 0.5, forgetful=rng.random() < 0.5))

    def open(self) -> UserTurn:
        hello = self.mind.rng.choice(("Hi!", "Hello,", "Hi there,", "Good day,"))
        return UserTurn(f"{hello} {self._bring_up()}")

    def reply(self, agent_text: str, tools: UserTools) -> UserTurn:
        heard = hear(agent_text)
        if heard.transferred:
            return UserTurn("All right, I will wait for the human agent.", stop=True, reason="transfer")
        topic = self.topics[self.mind.at]
        if isinstance(topic, Wish):
            return self._about_wish(topic, heard)
        return self._about_question(topic, heard) if isinstance(topic, Question) else self._about_demand(topic, heard)

    def snapshot(self) -> Any:
        return copy.deepcopy(self.mind)

    def restore(self, saved: Any) -> None:
        self.mind = copy.deepcopy(saved)

    # One topic

    def _about_wish(self, wish: Wish, heard: Heard) -> UserTurn:
        mind = self.mind
        if mind.wants_human:
            return self._insist_on_human()
        verdict = judge(wish, heard, self._known_orders()) if heard.confirms else "none"
        if verdict == "match":
            return self._confirm(wish, heard)
        if self._asks_who(heard):
            return self._identify(heard)
        if mind.confirmed and heard.done and verdict == "none" and not heard.slots:
            return self._settle()
        if claims_done(wish, heard) and verdict == "none" and not heard.asks:
            return self._settle()
        if wish.refused and heard.refuses:
            return self._accept_refusal(wish.afterwards)
        if verdict == "contradiction":
            return self._lose_patience(f"No, that is not what I asked for. {speech.details(wish)}")
        if heard.slots:
            return self._answer(wish, heard.slots)
        if heard.refuses:
            mind.confirmed = False  # what was refused is no longer pending
            return self._lose_patience(f"Please try again. {speech.details(wish)}")
        if mind.confirmed:
            return self._lose_patience("Okay. Please tell me when it is done.")
        return self._lose_patience(speech.details(wish))

    def _about_question(self, question: Question, heard: Heard) -> UserTurn:
        if self._asks_who(heard):
            return self._identify(heard)
        if heard.informs:
            return self._settle()
        if heard.slots:
            return self._repeat("question", f"I don't know more than that. {question.text}")
        if not heard.refuses:
            return self._lose_patience(f"That does not answer my question. {question.text}")
        if self.mind.answered["insisted"]:
            return self._settle()
        self.mind.answered["insisted"] += 1
        return self._lose_patience(f"Could you please look it up? {question.text}")

    def _about_demand(self, demand: Demand, heard: Heard) -> UserTurn:
        if self.mind.wants_human:
            return self._insist_on_human()
        if self._asks_who(heard):
            return self._identify(heard)
        if heard.refuses:
            return self._accept_refusal(demand.afterwards)
        if heard.confirms:
            return self._lose_patience(f"No, please do not do that. {demand.text}")
        if heard.done and not heard.asks:
            return self._settle()
        return self._repeat("demand", f"That is all I know. {demand.text}")

    # Replies

    def _bring_up(self) -> str:
        topic = self.topics[self.mind.at]
        return speech.request(topic, self.mind.manner, self.mind.rng) if isinstance(topic, Wish) else topic.text

    def _settle(self) -> UserTurn:
        """The topic is closed: on to the next, or goodbye."""
        rng = self.mind.rng
        thanks = rng.choice(("Thank you.", "Thanks!", "Great, thank you."))
        if not self._advance():
            return UserTurn(f"{thanks} That is all I needed. Goodbye!", stop=True, reason="user_stop")
        return UserTurn(f"{thanks} {rng.choice(('Next,', 'Also,', 'One more thing:'))} {self._bring_up()}")

    def _advance(self) -> bool:
        """To the next topic with new patience; False after the last."""
        mind = self.mind
        mind.patience, mind.confirmed, mind.answered = PATIENCE, False, Counter()
        if mind.at + 1 == len(self.topics):
            return False
        mind.at += 1
        return True

    def _confirm(self, wish: Wish, heard: Heard) -> UserTurn:
        mind = self.mind
        mind.confirmed = True
        yes = mind.rng.choice(("Yes, please go ahead.", "Yes, please.", "Yes, that is right."))
        if wish.payment is not None and not names_payment(heard.text):
            yes = f"{yes} {speech.payment(wish)}"
        return self._repeat("confirm", yes)

    def _accept_refusal(self, afterwards: str) -> UserTurn:
        if afterwards == "transfer":
            self.mind.wants_human = True
            return UserTurn("That is not acceptable. I want to talk to a human agent.")
        if not self._advance():
            return UserTurn("I see, that is a pity. Goodbye!", stop=True, reason="user_stop")
        topic = self.topics[self.mind.at]
        # What follows may be the same wish in another way: the difference has to be said.
        instead = speech.details(topic) if isinstance(topic, Wish) else topic.text
        return UserTurn(f"I see, that is a pity. {instead}")

    def _insist_on_human(self) -> UserTurn:
        return self._lose_patience("No. Please transfer me to a human agent.")

    def _asks_who(self, heard: Heard) -> bool:
        lost = heard.not_found and self.mind.credentials_given > 0 and "order" not in heard.text
        return "identity" in heard.slots or lost

    def _identify(self, heard: Heard) -> UserTurn:
        """The next credential of the kind that is asked for; after the last, the last again."""
        mind = self.mind
        left = self.credentials[mind.credentials_given :] or self.credentials[-1:]
        mind.credentials_given = min(mind.credentials_given + 1, len(self.credentials))
        who = left[0]
        words = speech.credential(who)
        if not who.email and "mail" in heard.text and "zip" not in heard.text:
            words = f"I do not remember my email address. {words}"
        tries = len(self.credentials) + REPEATS
        mind.answered["identity"] += 1
        return UserTurn(words) if mind.answered["identity"] <= tries else self._lose_patience(words)

    def _answer(self, wish: Wish, slots: frozenset[Slot]) -> UserTurn:
        """What was asked for, in a fixed order; things the customer already said are said again."""
        words = []
        if "order" in slots:
            words.append(self._order_number(wish))
        if "items" in slots:
            words.append(f"I want to {speech.core(wish, self.mind.manner)}.")
        if "payment" in slots:
            words.append(speech.payment(wish) if wish.payment else "The original payment method is fine.")
        if "reason" in slots:
            words.append(speech.reason(wish) if wish.kind == "cancel" else "I just changed my mind.")
        if "address" in slots and wish.address is not None:
            words.append(f"The address is {wish.address.text}.")
        return self._repeat("+".join(sorted(slots)), " ".join(words) or speech.details(wish))

    def _order_number(self, wish: Wish) -> str:
        first = not self.mind.answered["order number"]
        self.mind.answered["order number"] += 1
        if first and self.mind.manner.forgetful and wish.order_id is not None:
            return f"I do not remember the order number. It is the {speech.order(wish)}."
        return speech.order_number(wish)

    def _repeat(self, what: str, words: str) -> UserTurn:
        """Answered freely a few times; after that, asking again costs patience."""
        self.mind.answered[what] += 1
        return UserTurn(words) if self.mind.answered[what] <= REPEATS else self._lose_patience(words)

    def _lose_patience(self, words: str) -> UserTurn:
        """Nothing is lost while a write that was confirmed is pending: the customer stays for it."""
        self.mind.patience -= not self.mind.confirmed
        if self.mind.patience > 0:
            return UserTurn(words)
        return UserTurn("This is not getting me anywhere. Goodbye.", stop=True, reason="user_gave_up")

    def _known_orders(self) -> frozenset[str]:
        seen = (topic for topic in self.topics[: self.mind.at] if isinstance(topic, Wish))
        return frozenset(wish.order_id for wish in seen if wish.order_id is not None)
