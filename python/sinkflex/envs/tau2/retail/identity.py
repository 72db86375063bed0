"""How the scripted customer proves who they are: e-mail addresses, or name and zip code, in the order they are tried.

The gold list shows the attempts where it looks the customer up (five tasks try a wrong e-mail first, three a wrong zip
code); elsewhere the task's known information says what the customer has. Where that is only a user id and a zip code,
the name comes from the shop's data: a customer knows their own name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..package import Package

_EMAIL = re.compile(r"[\w.+-]+@[\w-]+\.[a-z]+", re.IGNORECASE)
_ZIP = re.compile(r"\b\d{5}\b")


@dataclass(frozen=True, slots=True)
class Credential:
    """An e-mail address, or a full name with a zip code."""

    email: str = ""
    name: str = ""
    zip: str = ""


def credentials(package: Package, task: Any) -> tuple[Credential, ...]:
    """In the order in which they are given. Raises LookupError when the task names nobody."""
    known = _known_info(task)
    out: list[Credential] = []
    for action in task.evaluation_criteria.actions or ():
        if action.name == "find_user_id_by_email":
            out.append(Credential(email=action.arguments["email"]))
        elif action.name == "find_user_id_by_name_zip":
            who = action.arguments
            out.append(Credential(name=f"{who['first_name']} {who['last_name']}", zip=who["zip"]))
    out += [Credential(email=email) for email in _EMAIL.findall(known)]
    user = _user(package, known)
    zips = _ZIP.findall(known)
    if user is not None and user.address.zip in zips:
        out.append(Credential(name=f"{user.name.first_name} {user.name.last_name}", zip=user.address.zip))
    if not out:
        raise LookupError(f"task {task.id} does not say who the customer is")
    return tuple(dict.fromkeys(out))


def customers(package: Package, task_ids: Iterable[str]) -> frozenset[str]:
    """The ids of the users who are the customers of these tasks, or whose profile or orders their gold touches."""
    tasks = [package.tasks[task_id] for task_id in task_ids]
    known = {who for task in tasks for who in credentials(package, task)}
    called = [action.arguments for task in tasks for action in task.evaluation_criteria.actions or ()]
    users, orders = package.database.users, package.database.orders
    touched = {arguments["user_id"] for arguments in called if "user_id" in arguments}
    touched |= {orders[key].user_id for arguments in called if (key := arguments.get("order_id")) in orders}
    return frozenset(
        user_id
        for user_id, user in users.items()
        if user_id in touched
        or Credential(email=user.email) in known
        or Credential(name=f"{user.name.first_name} {user.name.last_name}", zip=user.address.zip) in known
    )


def _known_info(task: Any) -> str:
    instructions = task.user_scenario.instructions
    return instructions if isinstance(instructions, str) else instructions.known_info or ""


def _user(package: Package, known: str) -> Any:
    """The one user whom the text names by id, e-mail address, or full name and zip code; None if it names none."""
    for user_id, user in package.database.users.items():
        if re.search(rf"\b{re.escape(user_id)}\b", known) or user.email in known:
            return user
        names = (user.name.first_name, user.name.last_name)
        if all(re.search(rf"\b{re.escape(name)}\b", known) for name in names) and user.address.zip in known:
            return user
    return None
