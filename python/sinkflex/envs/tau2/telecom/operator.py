"""The scripted user of telecom: somebody with a phone that does not work, who does what the agent asks.

It knows what the task's scenario tells the user (name, number, where, what is wrong, what would be paid for) and
nothing of the task's gold or faults. Whatever it says of the phone it has read from one of the user's tools just
before. It checks after every change whether the problem is gone, and hangs up when it is; when the agent hands over to
a human; when nothing useful has come for PATIENCE turns; or after MAX_REFUSALS refusals. It never hangs up in the turn
in which it agreed to something that the agent has yet to do.
"""

from __future__ import annotations

import random
import re
from dataclasses import asdict, dataclass
from typing import Any

from ...conversation import ToolCall
from ...domain import ToolError, UserTools, UserTurn
from . import speech
from .instructions import QUOTES, SWITCHES, Step, steps

PATIENCE = 4
MAX_REFUSALS = 3

_TRANSFER = re.compile(r"you are being transferred|(?:transferr|connect)(?:ed|ing) you to a human")
_REFUSAL = re.compile(
    r"\b(?:cannot|can't|can not|unable to|not able to|not possible) (?:\w+ )?(?:help|assist|resolve|fix|solve|lift)"
)
_IDENTITY = re.compile(
    r"phone number|your (?:full )?name\b|verify (?:your|you)|your identity|your account|who am i|your number"
)
_OTHER_IDENTITY = re.compile(r"date of birth|birth ?date|customer id|\be-?mail|account number")
_PLACE = re.compile(r"abroad|travel|your (?:current )?location|where (?:are you|you are)|country|home network|overseas")
_REFUEL = re.compile(r"refuel|(?:more|extra|additional) (?:mobile )?data|top[ -]up|how much data|\d ?gb\b|data package")
_PLAN = re.compile(
    r"(?:chang|switch|upgrad|choos|select|pick)\w* .{0,30}\bplan|(?:different|bigger|larger|new|another) plan"
)
_OFFER = re.compile(
    r"would you like|shall i|should i|do you want|may i|can i |is (?:that|this) (?:ok|okay|fine|all right)|do you "
    r"(?:agree|confirm|accept)|please confirm|\(yes/no\)|are you (?:ok|okay|willing|happy)|want me to|do i have your|"
    r"proceed\?|how much"
)
_SENT = re.compile(r"\b(?:sent|sending|issued) .{0,30}payment request|payment request .{0,30}\bsent\b")
_DONE = re.compile(
    r"\b(?:i|we)(?:'ve| have)? (?:now |just |also |successfully )*(?:added|enabled|refuel\w*|resumed|lifted|restored|"
    r"applied|activated|reactivated|completed|fixed|done)|has been (?:\w+ )?(?:added|enabled|refuel|resumed|lifted)"
)
_WORKS = re.compile(
    r"does it work|is it working|whether it works|try (?:again|it|now)|test it|(?:issue|problem) (?:\w+ )?(?:resolved|"
    r"fixed|solved|gone)|anything else|how is it now|still (?:have|see|happen)|working now"
)
_POSITIONS = {
    "airplane": ("check_network_status", r"Airplane Mode: (ON|OFF)"),
    "data": ("check_network_status", r"Mobile Data Enabled: (Yes|No)"),
    "roaming": ("check_network_status", r"Data Roaming Enabled: (Yes|No)"),
    "saver": ("check_data_restriction_status", r"Data Saver mode is (ON|OFF)"),
    "wifi": ("check_wifi_status", r"Wi-Fi is (?:turned )?(ON|OFF)"),
    "wifi_calling": ("check_wifi_calling_status", r"turned (ON|OFF)"),
}
_TOGGLES = {
    "airplane": "toggle_airplane_mode",
    "data": "toggle_data",
    "roaming": "toggle_roaming",
    "saver": "toggle_data_saver_mode",
    "wifi": "toggle_wifi",
    "wifi_calling": "toggle_wifi_calling",
}
_LOOKS = {topic: tool for topic, (tool, _) in _POSITIONS.items()} | {
    "vpn": "check_vpn_status",
    "sim": "check_sim_status",
    "apn": "check_apn_settings",
    "mode": "check_network_mode_preference",
    "bar": "check_status_bar",
    "network": "check_network_status",
    "speed": "run_speed_test",
    "mms": "can_send_mms",
    "apps": "check_installed_apps",
    "request": "check_payment_request",
}
_CHANGES = {"sim": "reseat_sim_card", "apn": "reset_apn_settings", "reboot": "reboot_device"}
_GOALS = {
    "service": ("check_status_bar", re.compile(r"\N{ANTENNA WITH BARS}(?!.*No Signal)")),
    "data": ("run_speed_test", re.compile(r"\(Excellent\)")),
    "mms": ("can_send_mms", re.compile(r"can send MMS")),
}


@dataclass(frozen=True, slots=True)
class Caller:
    """What the scenario tells the user. `problem`: service, data or mms. `place` None: it does not say."""

    name: str
    phone: str
    problem: str
    place: str | None = None


@dataclass
class Mood:
    idle: int = 0
    refusals: int = 0
    failures: int = 0
    agreed: bool = False


class Operator:
    def __init__(self, caller: Caller, seed: str) -> None:
        self.caller = caller
        self.rng = random.Random(seed)
        self.mood = Mood()

    def open(self) -> UserTurn:
        return UserTurn(speech.pick(self.rng, speech.OPENINGS, problem=speech.PROBLEMS[self.caller.problem]))

    def reply(self, agent_text: str, tools: UserTools) -> UserTurn:
        lower = agent_text.lower().translate(QUOTES)
        if _TRANSFER.search(lower):
            return UserTurn(speech.HANDED_OVER, stop=True, reason="transfer")
        was_agreed, self.mood.agreed = self.mood.agreed, False
        hands = Hands(tools)
        answers = self._answers(lower)
        wanted = steps(agent_text)
        for step in wanted:
            hands.do(step)
        if _SENT.search(lower) and not any(step.topic == "pay" for step in wanted):
            hands.pay()
        said = [*answers, *hands.reports]
        if hands.changed or _DONE.search(lower) or _WORKS.search(lower):
            solved = self._check(hands, said)
            if solved and not self.mood.agreed:
                words = speech.pick(self.rng, speech.SOLVED[self.caller.problem])
                return UserTurn(" ".join([*said, words]), stop=True, reason="solved")
        if _REFUSAL.search(lower) and not wanted:
            self.mood.refusals += 1
            if self.mood.refusals >= MAX_REFUSALS:
                return UserTurn(speech.GAVE_UP, stop=True, reason="gave_up")
            said = said or [speech.pick(self.rng, speech.UNHAPPY)]
        if said:
            self.mood.idle = 0
            return UserTurn(" ".join(said))
        self.mood.idle += not was_agreed
        if self.mood.idle >= PATIENCE:
            return UserTurn(speech.GAVE_UP, stop=True, reason="gave_up")
        return UserTurn(speech.pick(self.rng, speech.CONFUSED))

    def snapshot(self) -> Any:
        return asdict(self.mood), self.rng.getstate()

    def restore(self, saved: Any) -> None:
        mood, state = saved
        self.mood = Mood(**mood)
        self.rng.setstate(state)

    def _answers(self, lower: str) -> list[str]:
        """What the agent asked about the caller, or offered to do."""
        caller, said = self.caller, []
        asked = "?" in lower or re.search(r"\b(?:provide|give|tell|confirm|share|need|know)\b", lower) is not None
        if asked and _IDENTITY.search(lower):
            said.append(speech.pick(self.rng, speech.GREETINGS, name=caller.name, phone=caller.phone))
        elif asked and _OTHER_IDENTITY.search(lower):
            said.append(speech.ONLY_PHONE.format(phone=caller.phone))
        if asked and _PLACE.search(lower):
            place = caller.place
            said.append(speech.NO_PLACE if place is None else speech.pick(self.rng, speech.PLACES, place=place))
        offered = _OFFER.search(lower) is not None
        if offered and _PLAN.search(lower):
            said.append(speech.NO_PLAN)
        if offered and _REFUEL.search(lower):
            said.append(speech.pick(self.rng, speech.REFUEL))
            self.mood.agreed = True
        elif offered and not said and "anything else" not in lower:
            said.append(speech.pick(self.rng, speech.YES))
            self.mood.agreed = True
        return said

    def _check(self, hands: Hands, said: list[str]) -> bool:
        tool, works = _GOALS[self.caller.problem]
        fresh = hands.last == tool
        result = hands.result if fresh else hands.run(tool)
        if works.search(result):
            return True
        self.mood.failures += 1
        if not fresh:
            said.append(speech.retold(result))
        said.append(speech.pick(self.rng, speech.STILL[self.caller.problem]))
        if self.mood.failures > 1 and self.rng.random() < 0.5:
            said.append(speech.pick(self.rng, speech.FRUSTRATION))
        return False


class Hands:
    """The phone in one turn: what was done and what is to be said of it. `last`: the tool used last."""

    def __init__(self, tools: UserTools) -> None:
        self.tools = tools
        self.reports: list[str] = []
        self.changed = False
        self.last, self.result = "", ""

    def run(self, tool: str, **arguments: str) -> str:
        self.last = tool
        try:
            self.result = self.tools(ToolCall(tool, arguments))
        except ToolError as refused:
            self.result = speech.FAILED.format(what=str(refused).removeprefix("Error: "))
        return self.result

    def say(self, result: str) -> None:
        words = speech.retold(result)
        if words not in self.reports:
            self.reports.append(words)

    def change(self, tool: str, **arguments: str) -> None:
        self.say(self.run(tool, **arguments))
        self.changed = True

    def do(self, step: Step) -> None:
        match step.topic:
            case "pay":
                self.pay()
            case "apn_by_hand":
                self.reports.append(speech.BY_HAND)
            case "vpn" if step.change:
                self.change("connect_vpn" if step.on else "disconnect_vpn")
            case "mode" if step.change:
                if step.mode is None:
                    self.reports.append(speech.WHICH_MODE)
                else:
                    self.change("set_network_mode_preference", mode=step.mode)
            case "permission" if step.change:
                if step.permission is None:
                    self.reports.append(speech.WHICH_PERMISSION)
                else:
                    self.change("grant_app_permission", app_name=step.app, permission=step.permission)
            case "permission" | "app_status":
                tool = "check_app_permissions" if step.topic == "permission" else "check_app_status"
                self.say(self.run(tool, app_name=step.app))
            case topic if topic in SWITCHES and step.change:
                self.switch(topic, step.on)
            case topic if step.change and topic in _CHANGES:
                self.change(_CHANGES[topic])
            case topic:
                self.say(self.run(_LOOKS[topic]))

    def switch(self, topic: str, on: bool | None) -> None:
        if on is not None:
            tool, pattern = _POSITIONS[topic]
            found = re.search(pattern, self.run(tool))
            if found is not None and (found[1] in ("ON", "Yes")) == on:
                position = "on" if on else "off"
                self.reports.append(speech.ALREADY.format(thing=speech.NAMES[topic], position=position))
                return
        self.change(_TOGGLES[topic])

    def pay(self) -> None:
        """A bill is paid only after the request for it has been read."""
        if self.last != "check_payment_request":
            self.say(self.run("check_payment_request"))
        if "No payment request" not in self.result:
            self.change("make_payment")


def caller(task: Any) -> Caller:
    """From the scenario's words to the user."""
    instructions = task.user_scenario.instructions
    known = re.search(r"You are (?P<name>.+?) with phone number (?P<phone>[\d-]+)\.", instructions.known_info)
    if known is None:
        raise ValueError(f"the scenario of {task.id} does not say who the user is: {instructions.known_info!r}")
    place = re.search(r"You are currently (.+?)\.?$", instructions.known_info)
    reason = instructions.reason_for_call
    problem = "mms" if "MMS" in reason else "data" if "mobile data" in reason else "service"
    return Caller(known["name"], known["phone"], problem, place[1] if place else None)
