"""Text typical of retail, for training a tokenizer: a deterministic sample of what an episode can contain."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence

from ...domain import ToolSpec
from ..package import Package
from . import speech
from .agents import item_names
from .customer import Customer
from .identity import credentials, customers
from .plans import done, plan
from .wishes import KINDS, Wish, topics

SAMPLE = 120
"""Users, and as many orders; all 50 products."""


def corpus(package: Package, tools: Sequence[ToolSpec]) -> Iterator[str]:
    """Policy, tool schemas, tool results, and sentences of customers and agents in train tasks. The customers of test
    tasks and their orders are left out."""
    yield package.policy
    for tool in tools:
        yield json.dumps(tool.as_function())
    held_out = customers(package, package.splits.get("test", ()))
    database = package.database
    render = package.environment_type.to_json_str
    for product in database.products.values():
        yield render(product)
    yield package.tools_type(database).list_all_product_types()
    rng = random.Random(0)
    users = [user for user in database.users.values() if user.user_id not in held_out]
    orders = [order for order in database.orders.values() if order.user_id not in held_out]
    for entity in (*rng.sample(users, min(SAMPLE, len(users))), *rng.sample(orders, min(SAMPLE, len(orders)))):
        yield render(entity)
    train = [task for task_id, task in package.tasks.items() if task_id not in package.splits.get("test", ())]
    names = item_names(package)
    for task in train:
        wishes = topics(package, task)
        for seed in range(2):
            yield Customer(wishes, credentials(package, task), str(seed)).open().text
        yield from (speech.credential(who) for who in credentials(package, task))
        yield from (speech.details(wish) for wish in wishes if isinstance(wish, Wish))
        for action in task.evaluation_criteria.actions or ():
            if action.name in KINDS:
                yield plan(action.name, action.arguments, names)
                yield done(action.name, action.arguments)
