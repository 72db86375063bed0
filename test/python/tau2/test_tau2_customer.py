"""The scripted customer: what it says, what it never says, when it agrees, and how it ends a conversation."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

import pytest
from retail_play import ALL, Play, user_words
from sinkflex.envs import DualControlEnv
from sinkflex.envs.conversation import AgentAction
from sinkflex.envs.domain import ToolError, UserTurn
from sinkflex.envs.tau2.retail import speech
from sinkflex.envs.tau2.retail.identity import credentials
from sinkflex.envs.tau2.retail.listening import _option_named
from sinkflex.envs.tau2.retail.questions import DEMANDS, QUESTIONS, fallback
from sinkflex.envs.tau2.retail.speech import Manner
from sinkflex.envs.tau2.retail.wishes import Demand, Question, Wish, topics

WHO = "Could you tell me your email address, or your name and zip code?"
ANYTHING = "Is there anything else I can help you with?"
PLAN_0 = (
    "I will exchange these items of order #W2378156: the Mechanical Keyboard for the clicky one without backlight "
    "(none), and the Smart Thermostat for the Google Assistant one. The difference goes to your credit card. "
)


def no_tools(call: Any) -> str:
    raise ToolError("retail has no tools of the user")


@pytest.fixture
def customer(retail: Any) -> Any:
    def build(task_id: str, seed: int = 0) -> Any:
        return retail.user(retail.task(task_id), "scripted", seed)

    return build


def say(customer: Any, *texts: str) -> UserTurn:
    return [customer.reply(text, no_tools) for text in texts][-1]


# What it wants and who it is


def test_every_wish_of_every_task_is_described(retail: Any) -> None:
    counts = {"writes": 0, "refused": [], "no writes": []}
    for task_id in ALL:
        task = retail.task(task_id)
        script = topics(retail.package, task.data)
        wishes = [topic for topic in script if isinstance(topic, Wish)]
        counts["writes"] += len(wishes)
        counts["refused"] += [task_id for wish in wishes if wish.refused]
        if not wishes:
            counts["no writes"].append(task_id)
        strings = task.data.evaluation_criteria.communicate_info
        assert bool(strings) == any(isinstance(topic, Question) for topic in script)
        for wish in wishes:
            assert all(thing.changes is None or thing.new_item_id for thing in wish.items)
            assert re.search(r"#W\d{7}", speech.order_number(wish)) or wish.kind == "user_address"
    assert counts["refused"] == ["12", "13", "64", "105"]
    assert counts["no writes"] == ["10", "24", "25", "50", "57", "62", "65", "67", "68"]
    assert counts["writes"] == sum(int(retail.task(i).level.removeprefix("writes-")) for i in ALL) == 178


def test_the_questions_are_those_of_the_installed_data_and_hold_no_answer(retail: Any) -> None:
    needed = {i: tuple(retail.task(i).data.evaluation_criteria.communicate_info or ()) for i in ALL}
    assert {i: asked.strings for i, asked in QUESTIONS.items()} == {i: told for i, told in needed.items() if told}
    for task_id, asked in QUESTIONS.items():
        for told, text in itertools.product(asked.strings, asked.before + asked.after):
            assert not re.search(rf"\b{re.escape(told)}\b", text, re.IGNORECASE), (task_id, told)
            assert text.endswith("?")
    for task_id in DEMANDS:
        assert any(isinstance(topic, Demand) for topic in topics(retail.package, retail.task(task_id).data))


def test_other_data_falls_back_to_the_task_s_text_without_its_ids(retail: Any) -> None:
    task = retail.task("21").data
    words = fallback(task)
    assert words.startswith("I want to exchange my shoes")
    assert not re.search(r"\d{7}", words) and not re.search(r"\byou(r)?\b", words)


def test_credentials_lead_to_exactly_the_customer_of_the_gold(retail: Any) -> None:
    kinds = {"email": 0, "name": 0, "several": 0}
    for task_id in ALL:
        task = retail.task(task_id)
        found = credentials(retail.package, task.data)
        last = found[-1]
        kinds["email" if last.email else "name"] += 1
        kinds["several"] += len(found) > 1
        users = [
            user
            for user in retail.package.database.users.values()
            if user.email == last.email
            or (f"{user.name.first_name} {user.name.last_name}" == last.name and user.address.zip == last.zip)
        ]
        assert len(users) == 1, task_id
        for action in task.gold:
            order = retail.package.database.orders.get(action.arguments.get("order_id"))
            assert order is None or task_id in ("46", "47") or order.user_id == users[0].user_id
    assert kinds["email"] + kinds["name"] == 114 and kinds["several"] >= 8


@pytest.mark.parametrize(
    ("task_id", "attempts"), [("35", 2), ("37", 2), ("54", 2), ("39", 2), ("67", 3), ("68", 2), ("0", 1)]
)
def test_wrong_credentials_come_first_where_gold_tries_them(
    task_id: str, attempts: int, customer: Any, retail: Any
) -> None:
    user = customer(task_id)
    user.open()
    said = [say(user, WHO).text]
    said += [
        say(user, "I could not find an account with that. Could you check your email or zip code?").text
        for _ in range(2)
    ]
    assert len(dict.fromkeys(said)) == attempts
    tools = retail.start(retail.task(task_id)).environment.tools
    for text, right in zip(said[:attempts], [False] * (attempts - 1) + [True], strict=True):
        email, name = (
            re.search(r"address is (\S+)\.", text),
            re.search(r"name is (\S+) (\S+) and my zip code is (\d+)", text),
        )
        try:
            found = tools.find_user_id_by_email(email[1]) if email else tools.find_user_id_by_name_zip(*name.groups())
        except ValueError:
            found = None
        assert bool(found) is right


# Determinism


def test_equal_seeds_give_equal_conversations_and_seeds_differ(play: Play, env: DualControlEnv) -> None:
    told = []
    for seed in (1, 1, 2, 3, 4, 5):
        play("4", "expert", seed=seed)
        told.append(json.dumps(user_words(env)))
    assert told[0] == told[1]
    assert len(set(told)) >= 3


def test_a_snapshot_of_the_customer_continues_the_same_way(customer: Any) -> None:
    user, twin = customer("0", seed=4), customer("0", seed=99)
    user.open()
    say(user, WHO)
    saved = user.snapshot()
    rest = (PLAN_0 + "Do you confirm (yes/no)?", "What?", "Your exchange has been requested.")
    first = [user.reply(text, no_tools) for text in rest]
    twin.restore(saved)
    assert [twin.reply(text, no_tools) for text in rest] == first
    user.restore(saved)
    assert [user.reply(text, no_tools) for text in rest] == first


# What it never says


def test_no_item_product_or_payment_id_and_no_tool_name_is_ever_said(
    play: Play, env: DualControlEnv, retail: Any
) -> None:
    products = retail.package.database.products
    secret = {i for product in products.values() for i in (product.product_id, *product.variants)}
    tools = {tool.name for tool in retail.agent_tools}
    nosy = Nosy()
    for task_id in ALL:
        for agent, seed in (("gold", 0), ("expert", 1), ("random", 2), ("random", 3), (nosy, 4)):
            play(task_id, agent, seed)
            said = "\n".join(user_words(env))
            assert not secret & set(re.findall(r"\d{10}", said)), (task_id, agent)
            assert not re.search(r"(credit_card|gift_card|paypal)_\d", said), (task_id, agent)
            assert not any(name in said for name in tools), (task_id, agent)
            assert not any(name in said for name in retail.package.database.users), (task_id, agent)


class Nosy:
    """Asks for everything, again and again."""

    questions = itertools.cycle(
        (
            WHO,
            "Which item do you mean? Please give me the item id.",
            "What is the product id, and which option would you like?",
            "Which payment method, please? I need its id.",
            "What is the order id?",
            "What is the reason?",
            "What is your full address?",
            "Which tool should I use? What is your user id?",
            "Sorry?",
        )
    )

    def act(self, observation: Any) -> AgentAction:
        return AgentAction(text=next(self.questions))


def test_every_way_to_describe_a_wish_is_free_of_ids(retail: Any) -> None:
    for task_id in ALL:
        for wish in topics(retail.package, retail.task(task_id).data):
            if isinstance(wish, Wish):
                texts = [speech.details(wish), *(speech.core(wish, Manner(f, False)) for f in (True, False))]
                assert not re.search(r"\d{7,}|_", "".join(texts))


# Slots


def test_it_answers_what_is_asked(customer: Any) -> None:
    user = customer("0", seed=1)
    assert "exchange the Mechanical Keyboard for another one (switch type: clicky, backlight: none)" in user.open().text
    assert say(user, "Sure! To get started, please provide your email address.").text == (
        "I do not remember my email address. My name is Yusuf Rossi and my zip code is 19122."
    )
    assert say(user, "Which payment method would you like to use?").text == (
        "Please use my credit card for the price difference."
    )
    asked = [say(user, "Thanks, Yusuf. What is the order number?").text for _ in range(2)]
    assert "The order number is #W2378156." in asked
    both = say(user, "Which items would you like to exchange, and how would you like to pay the difference?").text
    assert "clicky" in both and "credit card" in both


def test_a_forgetful_customer_describes_the_order_first(customer: Any) -> None:
    user = next(user for user in (customer("113", seed) for seed in range(20)) if user.mind.manner.forgetful)
    user.open()
    first, second = (say(user, "What is the order id?").text for _ in range(2))
    assert first.startswith("I do not remember the order number. It is the order with the ")
    assert second == "The order number is #W5056519."


def test_reason_and_address_are_given_when_asked(customer: Any) -> None:
    user = customer("113")
    user.open()
    assert "by mistake" in say(user, "May I ask why you want to cancel it?").text
    user = customer("96")
    user.open()
    where = say(user, "What is the new address?").text
    assert where == "The address is 476 Maple Drive, Suite 432, New York, NY 10093, USA."


# Plans


def asks(plan: str) -> str:
    return plan + " Do you confirm (yes/no)?"


@pytest.mark.parametrize(
    "plan",
    [
        asks(PLAN_0),
        PLAN_0 + "Would you like me to proceed?",
        PLAN_0 + "Note that an exchange can only be done once and I won't be able to cancel it. Shall I go ahead?",
        asks(PLAN_0.replace("Mechanical Keyboard", "keyboard 1151293680").replace("clicky one", "item 7706410293")),
        asks(PLAN_0.replace("credit card", "payment method (credit_card_9513926)")),
        "Thank you, Yusuf! **Order W2378156**\n1. Keyboard: linear, RGB -> **clicky, no backlight**\n"
        "2. Thermostat: Apple HomeKit -> Google Assistant\n\nThis exchange refunds $12.50 to your credit card ending "
        "in 2478, and you will receive an email with instructions. Would you like to proceed (yes/no)?",
        "Here is what I will do:\n- exchange Mechanical Keyboard -> clicky, backlight none\n- Smart Thermostat -> "
        "Google Assistant\nThe rest of the order (Headphones) stays unchanged. Please confirm (yes/no).",
    ],
)
def test_a_plan_that_is_the_wish_is_confirmed(plan: str, customer: Any) -> None:
    user = customer("0")
    user.open()
    assert say(user, WHO, plan).text.startswith("Yes")


@pytest.mark.parametrize(
    ("name", "value", "text", "said"),
    [
        ("backlight", "none", "clicky, no backlight", True),
        ("backlight", "none", "clicky, backlight: none", True),
        ("backlight", "none", "clicky, with white backlight", False),
        ("waterproof", "yes", "waterproof boots (yes/no)?", True),
        ("waterproof", "yes", "boots that are not waterproof (yes/no)?", False),
        ("waterproof", "no", "non-waterproof boots", True),
        ("waterproof", "no", "now waterproof boots", False),
        ("water resistance", "not resistant", "without water resistance", True),
        ("size", "s", "a purple t-shirt in size s.", True),
        ("size", "s", "your t-shirt's color", False),
        ("size", "m", "a medium helmet", True),
        ("size", "8", "boots of size 8", True),
        ("size", "8", "boots for $189.80", False),
        ("screen size", "13-inch", "the 13 inch laptop", True),
        ("storage", "256gb ssd", "with 256 gb-ssd", False),
        ("storage", "256gb ssd", "with a 256gb  ssd", True),
    ],
)
def test_option_values_are_recognised_in_the_ways_people_say_them(name: str, value: str, text: str, said: bool) -> None:
    assert _option_named(name, value, text) is said


@pytest.mark.parametrize(
    ("task_id", "plan"),
    [
        ("0", PLAN_0.replace("exchange", "return")),
        ("0", PLAN_0.replace("#W2378156", "#W4776164")),
        ("0", PLAN_0.replace("clicky one", "linear one")),
        ("0", PLAN_0.replace(", and the Smart Thermostat for the Google Assistant one", "")),
        ("0", PLAN_0.replace("Mechanical Keyboard", "Mechanical Keyboard and the Headphones")),
        ("0", PLAN_0.replace("credit card", "PayPal account")),
        ("0", PLAN_0.replace("credit card", "credit_card_0000000")),
        ("0", PLAN_0.replace("the clicky one", "item 9999999999, the clicky one")),
        ("0", PLAN_0 + "I will also cancel order #W6247578."),
        ("113", "I will cancel order #W5056519, reason: no longer needed."),
        ("113", "I will cancel order #W5995614, reason: ordered by mistake."),
        ("113", "I will cancel an order."),
        ("96", "I will change the shipping address of order #W6750959 to 1 Other Street, Austin, TX 73301."),
        ("40", "I will change the payment of order #W4923227 to the card ending in 1111."),
        ("2", "I will return the Headphones and the Smart Watch of order #W2378156 to your credit card."),
    ],
)
def test_a_plan_that_contradicts_the_wish_is_turned_down_and_corrected(task_id: str, plan: str, customer: Any) -> None:
    user = customer(task_id)
    user.open()
    if not isinstance(user.topics[0], Wish):
        say(user, "There is nothing to tell about that, as far as I know.")
    reply = say(user, asks(plan))
    assert not reply.text.startswith("Yes") and not reply.stop
    assert speech.details(user.topics[user.mind.at]) in reply.text


def test_a_missing_payment_is_said_with_the_yes(customer: Any) -> None:
    user = customer("0")
    user.open()
    reply = say(user, asks(PLAN_0.replace("The difference goes to your credit card.", "")))
    assert reply.text.startswith("Yes") and "my credit card" in reply.text


# The end


def test_it_never_leaves_while_a_confirmed_write_is_pending(customer: Any) -> None:
    user = customer("0")
    user.open()
    assert say(user, WHO, asks(PLAN_0)).text.startswith("Yes")
    assert not any(say(user, "One moment please.").stop for _ in range(20))
    assert not say(user, ANYTHING).stop
    done = say(user, "The exchange for your order has been requested. " + ANYTHING)
    assert (done.stop, done.reason) == (True, "user_stop")


def test_no_done_means_no_goodbye_in_any_task(play: Play, env: DualControlEnv) -> None:
    """An agent that gets every yes and never writes or reports: the customer does not leave, least of all content."""

    class AllTalk:
        def __init__(self, gold: Any) -> None:
            self.gold = gold

        def act(self, observation: Any) -> AgentAction:
            action = self.gold.act(observation)
            while action.tool_calls:
                action = self.gold.act(observation)
            return AgentAction(text=action.text if "yes/no" in action.text else "Let me see.")

    for task_id in ALL:
        wishes = topics(env.domain.package, env.domain.task(task_id).data)
        if any(isinstance(topic, Wish) and not topic.refused for topic in wishes):
            reward, info = play(task_id, AllTalk(env.domain.agent("gold", env.domain.task(task_id), 0)))
            assert reward == 0.0 and info["reason"] in ("max_turns", "user_gave_up"), (task_id, env.render())
            if info["reason"] == "user_gave_up":
                assert not env.user.mind.confirmed, (task_id, env.render())


def test_it_gives_up_after_refusals_and_useless_turns(customer: Any) -> None:
    for text in ("I cannot help with that.", "Blah.", "I will return everything. Do you confirm (yes/no)?"):
        user = customer("0")
        user.open()
        turns = list(itertools.takewhile(lambda turn: not turn.stop, (user.reply(text, no_tools) for _ in range(50))))
        assert len(turns) == 3
    user = customer("0")
    user.open()
    endless = [user.reply(WHO, no_tools) for _ in range(8)]
    assert any(turn.stop and turn.reason == "user_gave_up" for turn in endless)


def test_patience_returns_when_a_topic_is_settled(customer: Any) -> None:
    user = customer("113")
    user.open()
    say(user, "Blah.", "Blah.", "Blah.")
    assert not say(user, "Your order #W5056519 has been cancelled.").stop
    assert not say(user, "Blah.", "Blah.", "Blah.").stop
    assert say(user, "Blah.").stop


@pytest.mark.parametrize(
    ("task_id", "further"), [("12", "human agent"), ("13", "credit card"), ("64", "swap"), ("105", "")]
)
def test_a_wish_that_the_shop_must_refuse_is_dropped_at_the_first_refusal(
    task_id: str, further: str, customer: Any
) -> None:
    user = customer(task_id)
    user.open()
    reply = say(user, "I am sorry, unfortunately that is not possible.")
    assert further in reply.text
    assert reply.stop is (further == "")


def test_a_refusal_of_something_possible_is_not_taken_for_done(customer: Any) -> None:
    user = customer("113")
    user.open()
    reply = say(user, "Unfortunately your order has been delivered, so it cannot be cancelled.")
    assert not reply.stop and user.mind.at == 0


def test_it_leaves_when_it_is_transferred_and_only_then(customer: Any) -> None:
    user = customer("50")
    user.open()
    assert say(user, "I cannot undo a cancellation.").text == "That is not acceptable. I want to talk to a human agent."
    assert not say(user, "Would you like to be transferred to a human agent?").stop
    end = say(user, "YOU ARE BEING TRANSFERRED TO A HUMAN AGENT. PLEASE HOLD ON.")
    assert (end.stop, end.reason) == (True, "transfer")


@pytest.mark.parametrize(
    ("text", "settled"),
    [
        ("There are 10 options available. " + ANYTHING, True),
        ("I can confirm that there are 10 T-Shirt options.", True),
        ("I'd be happy to help. Could you please provide your email address or name and zip code?", False),
        ("There are 10 options, in four sizes. Would you like me to list them?", True),
        ("Thank you, Yusuf. Could you tell me the order number?", False),
        ("Let me check that for you.", False),
        ("I cannot look that up.", False),
        (ANYTHING, False),
        (asks("I will cancel your order."), False),
    ],
)
def test_a_question_is_settled_by_an_answer_only(text: str, settled: bool, customer: Any) -> None:
    user = customer("2")
    user.open()
    say(user, text)
    assert (user.mind.at == 1) is settled


def test_nothing_that_would_write_is_agreed_to_where_gold_writes_nothing(customer: Any, retail: Any) -> None:
    plans = [
        "I will return all items of order #W5490111 to your original payment method.",
        "I will cancel the whole order.",
        "I will exchange the Bookshelf for a cheaper Bookshelf.",
    ]
    for task_id in ("10", "25", "57", "62", "65", "50"):
        user = customer(task_id)
        user.open()
        while not isinstance(user.topics[user.mind.at], Demand):
            say(user, "It is what it is.")
        for plan in plans:
            assert not say(user, asks(plan)).text.startswith("Yes")
