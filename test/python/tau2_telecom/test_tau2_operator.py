"""The phone operator: what it understands, what it does with the phone, what it says, and when it hangs up."""

from __future__ import annotations

import re
from typing import Any

import pytest
from sinkflex.envs import DualControlEnv
from sinkflex.envs.conversation import AgentAction, ToolCall
from sinkflex.envs.tau2.telecom.instructions import Step, steps
from sinkflex.envs.tau2.telecom.operator import MAX_REFUSALS, PATIENCE, Operator, caller
from sinkflex.envs.tau2.telecom.phone import SENTENCES, request, sentence
from telecom_play import SERVICE, call, play_to_the_end, say, tasks_with

GIVEN = {"mode": "4g_5g_preferred", "app_name": "messaging", "permission": "storage"}
OFF = {topic: Step(topic, change=True, on=False) for topic in ("airplane", "saver", "vpn", "wifi_calling")}
ON = {topic: Step(topic, change=True, on=True) for topic in ("airplane", "data", "roaming")}
BAR, SPEED = Step("bar"), Step("speed")
REBOOT, APN, SIM = Step("reboot", change=True), Step("apn", change=True), Step("sim", change=True)
STORAGE, SMS = (Step("permission", change=True, permission=name) for name in ("storage", "sms"))
BEST = Step("mode", change=True, mode="4g_5g_preferred")


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("To start, could you please check your status bar and tell me what you see?", [BAR]),
        ("Go to Settings > Network & Internet and toggle Airplane Mode **OFF**.", [OFF["airplane"]]),
        ("Could you try turning Airplane mode off?", [OFF["airplane"]]),
        ("Please remove your SIM card and reinsert it, then restart your phone.", [SIM, REBOOT]),
        ("Is Wi\N{NON-BREAKING HYPHEN}Fi calling enabled?", [Step("wifi_calling")]),
        ("Please run `check_apn_settings` for me.", [Step("apn")]),
        ("Please grant the messaging app both storage and SMS permissions.", [STORAGE, SMS]),
        ('Use grant_app_permission(app_name="messaging", permission="storage").', [STORAGE]),
        ("Switch your preferred network mode to 4G/5G.", [BEST]),
        ('Please use set_network_mode_preference with mode "4g_5g_preferred".', [BEST]),
        ("I see that your mobile data is disabled. Please turn it on.", [ON["data"]]),
        ("Your line has been resumed. Please reboot your phone.", [REBOOT]),
        ("Now reset your APN settings and then reboot your device for the changes to take effect.", [APN, REBOOT]),
        ("Could you run a speed test and share the result?", [SPEED]),
        ("Please try sending an MMS message.", [Step("mms")]),
        ("Do not turn off mobile data.", []),
        ("If Data Saver is on, turn it off.", [OFF["saver"]]),
        ("Once your phone has restarted, check the status bar.", [BAR]),
        ("Turn off airplane mode and data saver.", [OFF["airplane"], OFF["saver"]]),
        ("Please toggle Airplane Mode ON, wait 10 seconds, then OFF again.", [ON["airplane"], OFF["airplane"]]),
        ("Would you like me to enable roaming on your line?", []),
        ("I have enabled roaming on your line. Make sure that data roaming is on.", [ON["roaming"]]),
        ("Can I ask you to disable Wi-Fi calling?", [OFF["wifi_calling"]]),
        ("Your data saver needs to be turned off.", [OFF["saver"]]),
        ("Thank you John. I will look up your account now.", []),
        ("Let me check your account.", []),
        (
            "I'll need you to check the SIM card status. Also, check whether mobile data is on.",
            [Step("sim"), Step("data")],
        ),
        (
            "1. Turn off Airplane Mode\n2. Turn on Mobile Data\n3. Restart your phone",
            [OFF["airplane"], ON["data"], REBOOT],
        ),
        ("Open Settings, tap Connections, and turn off the VPN.", [OFF["vpn"]]),
    ],
)
def test_what_is_understood(words: str, wanted: list[Step]) -> None:
    assert steps(words) == wanted


class Recorder:
    """Hands out canned results and notes what was called."""

    def __init__(self) -> None:
        self.calls: list[ToolCall] = []

    def __call__(self, tool: ToolCall) -> str:
        self.calls.append(tool)
        requested = "You have a payment request for bill B1234321 of 65.0 USD."
        return requested if tool.name == "check_payment_request" else "It is done."


@pytest.mark.parametrize("tool", [name for name in SENTENCES if name not in ("set_apn_settings", "make_payment")])
@pytest.mark.parametrize("named", [False, True])
def test_every_tool_of_the_phone_is_reached_by_words_and_by_name(tool: str, named: bool, telecom: Any) -> None:
    operator = Operator(caller(telecom.task(SERVICE).data), "0")
    recorder = Recorder()
    arguments = "(mode='4g_5g_preferred', app_name='messaging', permission='storage')" if "set_n" in tool else ""
    arguments = arguments or ("(app_name='messaging', permission='storage')" if "app_" in tool else "")
    operator.reply(f"Please use `{tool}{arguments}`." if named else request([sentence(tool, GIVEN)]), recorder)
    assert recorder.calls[0].name == tool
    schema = next(spec for spec in telecom.user_tools if spec.name == tool).parameters
    assert set(recorder.calls[0].arguments) == set(schema.get("required", ()))


def reply(env: DualControlEnv, words: str) -> tuple[str, list[str], bool]:
    """What the user says, which tools it used, and whether it hung up."""
    before = len(env.transcript)
    observation, _, terminated, _, _ = env.step(AgentAction(text=words))
    used = [c.name for m in env.transcript[before:] if m.role == "user" for c in m.tool_calls]
    return observation[-1].content, used, terminated


@pytest.fixture
def talk(env: DualControlEnv, telecom: Any) -> Any:
    """Begins a task in which all of these are wrong."""

    def begin(*wrong: str, problem: str = "") -> DualControlEnv:
        tasks = [task_id for task_id in tasks_with(telecom, *wrong) if task_id.startswith(f"[{problem}")]
        env.reset(seed=0, options={"task_id": tasks[0]})
        return env

    return begin


def test_it_says_who_and_where_it_is_when_asked_and_not_before(talk: Any) -> None:
    env = talk("user_abroad_roaming_disabled_on")
    opening = env.transcript[-1].content
    assert "555" not in opening and "France" not in opening
    words, used, _ = reply(env, "Could you give me your name and phone number, please?")
    assert "John Smith" in words and "555-123-2002" in words and used == []
    assert "France" in reply(env, "Are you travelling abroad at the moment?")[0]
    assert "555-123-2002" in reply(env, "What is your date of birth?")[0]


def test_what_it_says_of_the_phone_it_has_just_read(talk: Any) -> None:
    env = talk("data_saver_mode_on", "bad_vpn")
    words, used, _ = reply(env, "Please check the data saver and the VPN.")
    assert used == ["check_data_restriction_status", "check_vpn_status"]
    assert "Data Saver mode is ON" in words and "Server performance: poor." in words and "{" not in words


def test_a_switch_that_stands_as_wanted_is_left_alone(talk: Any) -> None:
    env = talk("airplane_mode_on", "data_mode_off", problem="mobile")
    words, used, _ = reply(env, "Please turn mobile data on and turn Wi-Fi calling off.")
    assert "toggle_data" in used and "toggle_wifi_calling" not in used and "Wi-Fi calling is already off." in words
    words, used, _ = reply(env, "Make sure that mobile data is on.")
    assert used == ["check_network_status"] and "Mobile data is already on." in words


def test_it_agrees_to_two_gigabytes_and_not_to_another_plan(talk: Any) -> None:
    env = talk("data_usage_exceeded")
    words, used, over = reply(env, "I can change your plan or add data. Would you like to refuel 2 GB for 4 dollars?")
    assert "2.0 GB" in words and used == [] and not over
    assert "do not want to change my plan" in reply(env, "Would you like to change to a bigger plan?")[0]
    assert "2.0 GB" in reply(env, "How much data would you like to add?")[0]
    assert reply(env, "Shall I enable roaming on your line at no cost?")[0].startswith("Yes")


def test_it_checks_and_pays_a_request_once_there_is_one(talk: Any) -> None:
    env = talk("overdue_bill_suspension")
    words, used, _ = reply(env, "Please pay your bill.")
    assert used == ["check_payment_request"] and "No payment request" in words
    call(env, "send_payment_request", customer_id="C1001", bill_id="B1234321")
    words, used, _ = reply(env, "I have sent you a payment request for the overdue bill.")
    assert used[:2] == ["check_payment_request", "make_payment"]
    assert "65.0 USD" in words and "B1234321" not in words
    assert env.state.environment.tools._get_bill_by_id("B1234321").status.value == "Paid"


def test_it_tests_after_every_change_and_hangs_up_when_it_works(talk: Any) -> None:
    env = talk("airplane_mode_on", "data_mode_off", problem="mobile")
    words, used, over = reply(env, "Please turn off airplane mode.")
    assert used[-1] == "run_speed_test" and not over and "No Connection" in words
    _, used, over = reply(env, "Please turn on mobile data.")
    assert used[-1] == "run_speed_test" and over


def test_it_stays_while_something_it_agreed_to_is_not_done(talk: Any) -> None:
    """Simulated users of other projects leave right after their yes, before the write."""
    env = talk("airplane_mode_on", "data_mode_off", problem="mobile")
    reply(env, "Please turn off airplane mode.")
    words, used, over = reply(env, "Please turn on mobile data. Would you like me to add 2 GB for 4 dollars as well?")
    assert "2.0 GB" in words and used[-1] == "run_speed_test" and not over
    call(env, "refuel_data", customer_id="C1001", line_id="L1002", gb_amount=2.0)
    assert reply(env, "I have added 2 GB. Does it work now?")[2]


def test_it_gives_up_after_idle_turns_and_after_refusals(talk: Any) -> None:
    env = talk("airplane_mode_on")
    overs = [reply(env, "One moment, please.")[2] for _ in range(PATIENCE)]
    assert overs == [False] * (PATIENCE - 1) + [True]
    env = talk("airplane_mode_on")
    overs = [reply(env, "Unfortunately I cannot help with that.")[2] for _ in range(MAX_REFUSALS)]
    assert overs == [False] * (MAX_REFUSALS - 1) + [True]
    env = talk("airplane_mode_on")
    for _ in range(3):
        reply(env, "One moment, please.")
        assert not reply(env, "Please check the status bar.")[2], "something useful starts the count again"


def test_it_waits_for_the_human_when_it_is_handed_over(talk: Any) -> None:
    env = talk("lock_sim_card_pin")
    _, used, over = reply(env, "YOU ARE BEING TRANSFERRED TO A HUMAN AGENT. PLEASE HOLD ON.")
    assert over and used == []
    assert env.snapshot().reason == "transfer"


def test_it_needs_nothing_of_gold(telecom: Any) -> None:
    task = telecom.task(SERVICE).data
    blind = task.model_copy(update={"evaluation_criteria": None, "initial_state": None, "description": None})
    assert caller(blind) == caller(task)


@pytest.mark.parametrize("agent", ["gold", "expert", "random"])
def test_neither_tools_nor_ids_are_ever_in_its_words(agent: str, env: DualControlEnv, telecom: Any) -> None:
    names = [tool.name for tool in (*telecom.user_tools, *telecom.agent_tools)]
    for n, task_id in enumerate(telecom.task_ids("base")[::6]):
        play_to_the_end(env, task_id, agent, seed=n)
        for message in env.transcript:
            if message.role == "user":
                assert not any(name in message.content for name in names), message.content
                assert not re.search(r"\b[BCLDP]\d{3,}|_", message.content), message.content


def test_equal_seeds_give_equal_words_and_other_seeds_others(env: DualControlEnv) -> None:
    def words(seed: int) -> list[str]:
        play_to_the_end(env, SERVICE, "expert", seed)
        return [message.content for message in env.transcript if message.role == "user"]

    assert words(1) == words(1)
    assert len({tuple(words(seed)) for seed in range(4)}) > 1


def test_a_restored_operator_goes_on_as_it_was(talk: Any) -> None:
    env = talk("airplane_mode_on", "data_mode_off", problem="mobile")
    reply(env, "One moment, please.")
    saved = env.snapshot()
    after = [reply(env, words) for words in ("Well.", "Please turn airplane mode off.", "So.", "Hm.", "Well then.")]
    env.restore(saved)
    again = [reply(env, words) for words in ("Well.", "Please turn airplane mode off.", "So.", "Hm.", "Well then.")]
    assert after == again


def test_settings_by_hand_and_unnamed_choices_are_asked_back(talk: Any) -> None:
    env = talk("bad_network_preference", problem="mobile")
    assert "by hand" in reply(env, "Please set the APN settings to the right values.")[0]
    assert "Which network mode" in reply(env, "Please change your network mode.")[0]
    assert "Which permission" in reply(env, "Please grant the messaging app a permission.")[0]
    say(env, "Thanks.")
