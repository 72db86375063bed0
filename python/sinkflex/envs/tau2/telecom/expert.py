"""A scripted agent that solves telecom tasks from what an agent sees: the manual's knowledge, the user's words (or the
ticket) and its tools' results. It never reads the task's gold.

Idea: one procedure, written as a generator that yields actions and receives observations. It identifies the line, asks
for everything that the manual says to check for the problem, deals with what is wrong on the account, asks for all
repairs on the phone in one message, and looks again; what is left after ROUNDS goes to a human. Solo, the same
procedure makes the user's calls itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from ...conversation import AgentAction, Observation, ToolCall
from .agents import FINISH, HAND_OVER, TRANSFER, TRY
from .phone import request, sentence
from .speech import retold

ROUNDS = 3
REFUEL_GB = 2.0
TODAY = "2025-02-25"
"""The date that the policy gives."""

Script = Generator[AgentAction, Observation, str]
"""Yields actions, receives observations, returns the text that the last one brought."""

CHECKS: dict[str, tuple[str, ...]] = {
    "service": ("check_network_status", "check_sim_status", "check_apn_settings"),
    "data": (
        "check_network_status",
        "check_data_restriction_status",
        "check_network_mode_preference",
        "check_vpn_status",
    ),
    "mms": (
        "check_network_status",
        "check_sim_status",
        "check_apn_settings",
        "check_network_mode_preference",
        "check_wifi_calling_status",
        "check_app_permissions",
    ),
}
GOALS = {"service": "check_status_bar", "data": "run_speed_test", "mms": "can_send_mms"}
MESSAGING = {"app_name": "messaging"}
BEST_MODE = {"mode": "4g_5g_preferred"}


@dataclass(frozen=True, slots=True)
class Repair:
    """A change on the phone: the user's tool, and the words that ask for it where toggling would be ambiguous."""

    tool: str
    arguments: tuple[tuple[str, str], ...] = ()
    words: str = ""

    def sentence(self) -> str:
        return self.words or sentence(self.tool, dict(self.arguments))


class ExpertAgent:
    def __init__(self, solo: bool) -> None:
        self.solo = solo
        self.script: Generator[AgentAction, Observation, None] | None = None

    def act(self, observation: Observation) -> AgentAction:
        if self.script is None:
            self.script = self._play(_text(observation))
            return next(self.script)
        try:
            return self.script.send(observation)
        except StopIteration:
            return FINISH if self.solo else AgentAction(text=TRY)

    # The procedure

    def _play(self, opening: str) -> Generator[AgentAction, Observation, None]:
        problem = "mms" if "MMS" in opening else "data" if "mobile data" in opening else "service"
        who = opening
        if not self.solo:
            who = yield from self._say("Could you give me your name and phone number? Are you abroad at the moment?")
        phone = re.search(r"\d{3}-\d{3}-\d{4}", who)
        if phone is None:
            who = yield from self._say("I need your phone number to find your account. Could you give me that, please?")
            phone = re.search(r"\d{3}-\d{3}-\d{4}", who)
        customer, line = yield from self._find(phone[0] if phone else "")
        if not line:
            yield from self._hand_over("The customer could not be identified.")
            return
        for _ in range(ROUNDS):
            report = yield from self._phone([(tool, MESSAGING if "app" in tool else {}) for tool in CHECKS[problem]])
            if "locked" in report:
                yield from self._hand_over("The SIM card is locked.")
                return
            lifted = yield from self._account(problem, customer, line, "abroad" in who)
            if lifted is None:
                yield from self._hand_over("The line is suspended and its contract has ended.")
                return
            repairs = _repairs(report, problem, "abroad" in who, lifted)
            result = yield from self._repair(repairs, problem)
            if self.solo and _works(problem, result):
                yield FINISH
        yield from self._hand_over("Everything in the manual was tried.")

    def _find(self, phone: str) -> Generator[AgentAction, Observation, tuple[dict[str, Any], dict[str, Any]]]:
        customer = _json((yield from self._call("get_customer_by_phone", phone_number=phone)))
        for line_id in customer.get("line_ids", ()):
            line = _json((yield from self._call("get_details_by_id", id=line_id)))
            if line.get("phone_number") == phone:
                return customer, line
        return customer, {}

    def _account(
        self, problem: str, customer: dict[str, Any], line: dict[str, Any], abroad: bool
    ) -> Generator[AgentAction, Observation, bool | None]:
        """Mend what is wrong with the line. Whether a suspension was lifted; None where the policy forbids it."""
        ids = {"customer_id": customer["customer_id"], "line_id": line["line_id"]}
        now = _json((yield from self._call("get_details_by_id", id=line["line_id"])))
        lifted = False
        if now["status"] == "Suspended":
            if (now["contract_end_date"] or TODAY) < TODAY:
                return None
            yield from self._collect(customer["customer_id"])
            yield from self._call("resume_line", **ids)
            lifted = True
        if problem == "service":
            return lifted
        if abroad and not now["roaming_enabled"]:
            yield from self._call("enable_roaming", **ids)
        usage = _json((yield from self._call("get_data_usage", **ids)))
        numbers = {key: float(usage[key]) for key in ("data_used_gb", "data_limit_gb", "data_refueling_gb")}
        if numbers["data_used_gb"] >= numbers["data_limit_gb"] + numbers["data_refueling_gb"]:
            plan = _json((yield from self._call("get_details_by_id", id=now["plan_id"])))
            price = float(plan["data_refueling_price_per_gb"])
            if not self.solo:
                yield from self._say(
                    f"The data of your plan is used up. I can add at most {REFUEL_GB} GB, at {price:.2f} dollars per "
                    f"GB, which makes {price * REFUEL_GB:.2f} dollars. Would you like me to refuel {REFUEL_GB} GB?"
                )
            yield from self._call("refuel_data", **ids, gb_amount=REFUEL_GB)
        return lifted

    def _collect(self, customer_id: str) -> Script:
        bills = json.loads((yield from self._call("get_bills_for_customer", customer_id=customer_id)))
        for bill in bills:
            if bill["status"] != "Overdue":
                continue
            yield from self._call("send_payment_request", customer_id=customer_id, bill_id=bill["bill_id"])
            if self.solo:
                yield from self._phone([("check_payment_request", {}), ("make_payment", {})])
            else:
                yield from self._say(
                    f"Your line is suspended for an overdue bill of {bill['total_due']} dollars. I have sent you a "
                    "payment request. Please check the payment request and pay it."
                )
            yield from self._call("get_details_by_id", id=bill["bill_id"])
        return ""

    def _repair(self, repairs: list[Repair], problem: str) -> Script:
        """Asks for the repairs; the test comes last, so that the user sees whether they were enough."""
        steps = [*repairs, Repair(GOALS[problem])]
        if self.solo:
            return (yield from self._phone([(step.tool, dict(step.arguments)) for step in steps]))
        return (yield from self._say(request([step.sentence() for step in steps])))

    # How it acts

    def _say(self, words: str) -> Script:
        return _text((yield AgentAction(text=words)))

    def _call(self, name: str, **arguments: Any) -> Script:
        return _text((yield AgentAction(tool_calls=(ToolCall(name, arguments),))))

    def _phone(self, calls: list[tuple[str, dict[str, str]]]) -> Script:
        """Have these done on the phone, and hear what it says."""
        if not self.solo:
            return (yield from self._say(request([sentence(tool, arguments) for tool, arguments in calls])))
        heard = []
        for tool, arguments in calls:
            heard.append(retold((yield from self._call(tool, **arguments))))
        return " ".join(heard)

    def _hand_over(self, summary: str) -> Script:
        yield from self._call(TRANSFER, summary=summary)
        if self.solo:
            yield FINISH
        return (yield from self._say(HAND_OVER))


def _repairs(report: str, problem: str, abroad: bool, lifted: bool) -> list[Repair]:
    """What the manual says to do about each thing that the report shows."""
    found: list[Repair] = []

    def when(pattern: str, *repairs: Repair) -> None:
        if re.search(pattern, report):
            found.extend(repairs)

    when(r"Airplane Mode: ON", Repair("toggle_airplane_mode", words="turn airplane mode off"))
    when(r"No SIM card", Repair("reseat_sim_card"))
    if problem != "service":
        when(r"Mobile Data Enabled: No", Repair("toggle_data", words="turn mobile data on"))
        if abroad:
            when(r"Data Roaming Enabled: No", Repair("toggle_roaming", words="turn data roaming on"))
        when(r"Data Saver mode is ON", Repair("toggle_data_saver_mode", words="turn the data saver off"))
        when(r"[Pp]reference: (?:2G|3G)", Repair("set_network_mode_preference", tuple(BEST_MODE.items())))
        when(r"VPN is ON", Repair("disconnect_vpn"))
    if problem == "mms":
        when(r"Wi-Fi Calling is currently turned ON", Repair("toggle_wifi_calling", words="turn Wi-Fi calling off"))
        granted = re.search(r"has permission for: ([a-z, ]+)\.", report)
        for permission in ("storage", "sms"):
            if "App 'messaging'" in report and permission not in (granted[1] if granted else ""):
                found.append(Repair("grant_app_permission", (*MESSAGING.items(), ("permission", permission))))
    apn = re.search(r"APN Name: (?!internet)|picture messages\): Not Set", report)
    found += [Repair("reset_apn_settings")] if apn else []
    found += [Repair("reboot_device")] if apn or lifted else []
    return found


def _works(problem: str, result: str) -> bool:
    """Whether the test that ended a repair says that the problem is gone. (A user says so by leaving.)"""
    if problem == "service":
        return "No Signal" not in result.rpartition("Status Bar")[2] and "Airplane" not in result.rpartition("Bar")[2]
    return "(Excellent)" in result if problem == "data" else "can send MMS" in result


def _text(observation: Observation) -> str:
    return "\n".join(message.content for message in observation if message.role in ("user", "tool"))


def _json(text: str) -> dict[str, Any]:
    """The object that a tool returned; nothing where it refused."""
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
