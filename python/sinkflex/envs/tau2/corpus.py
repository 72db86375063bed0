"""Text typical of retail, for training a tokenizer: a deterministic sample of what an episode can contain."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence

from ..domain import ToolSpec
from .customer import Customer
from .identity import credentials
from .package import RetailPackage
from .wishes import topics

SAMPLE = 120
"""Users, and as many orders; all 50 products."""


def corpus(package: RetailPackage, tools: Sequence[ToolSpec]) -> Iterator[str]:
    """Policy, tool schemas, tool results and first sentences of customers. Users and orders that belong to a test task
    are left out, and so are the customers of test tasks."""
    yield package.policy
    for tool in tools:
        yield json.dumps(tool.as_function())
    held_out = _customers(package, package.splits.get("test", ()))
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
    for task in train:
        for seed in range(2):
            yield Customer(topics(package, task), credentials(package, task), str(seed)).open().text


def _customers(package: RetailPackage, task_ids: Sequence[str]) -> set[str]:
    """Users whom a task touches: by a gold argument, or as the owner of an order in one."""
    found = set()
    for task_id in task_ids:
        for action in package.tasks[task_id].evaluation_criteria.actions or ():
            order = package.database.orders.get(action.arguments.get("order_id", ""))
            found.add(action.arguments.get("user_id", order.user_id if order is not None else ""))
    return found
