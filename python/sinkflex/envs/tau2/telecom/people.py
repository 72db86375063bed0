"""Invented accounts for generated tasks: nobody of the benchmark's own data is among them."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

FIRST = (
    *("Ada", "Boris", "Carla", "Deniz", "Elif", "Femi", "Gustav", "Hana", "Ivo", "Jasmin", "Karim", "Leila", "Mateo"),
    *("Nadia", "Omar", "Petra", "Quentin", "Rosa", "Sven", "Tamika", "Umberto", "Vera", "Wanda", "Yusuf", "Zoe"),
)
LAST = (
    *("Abara", "Becker", "Castillo", "Dimitrov", "Eriksen", "Fontaine", "Garza", "Hofmann", "Ibrahim", "Jansen"),
    *("Kowalski", "Lindqvist", "Moreau", "Nakamura", "Okafor", "Pereira", "Quiroga", "Rossi", "Sato", "Tanaka"),
)
CITIES = (("Portland", "OR", "97201"), ("Austin", "TX", "78701"), ("Madison", "WI", "53703"), ("Tucson", "AZ", "85701"))
COUNTRIES = ("Spain", "Japan", "Brazil", "Norway", "Kenya", "Canada", "Italy", "Vietnam")
MODELS = ("Smartphone X", "Smartphone Lite", "Pixel 7", "Galaxy S23", "OnePlus 11")
OTHERS = 2
"""Customers of the company beside the one who calls."""


@dataclass(frozen=True, slots=True)
class Account:
    """The caller's ids and words. `limit_gb` is the data limit of the line's plan."""

    name: str
    phone: str
    country: str
    customer_id: str
    line_id: str
    overdue_bill_id: str
    limit_gb: float


def invent(rng: random.Random, plans: list[Any], number: int) -> tuple[Account, dict[str, Any]]:
    """The caller number `number`, and the company's data with this and OTHERS other customers, as the package's
    initialisation data takes it."""
    data: dict[str, Any] = {"customers": [], "lines": [], "devices": [], "bills": []}
    # A plan without a limit that anybody reaches leaves nothing to refuel.
    capped = [plan for plan in plans if plan.data_limit_gb < 100]
    account: Account | None = None
    names = rng.sample([(first, last) for first in FIRST for last in LAST], OTHERS + 1)
    place = rng.randrange(OTHERS + 1)
    for n, (first, last) in enumerate(names):
        key = 2000 + number * 10 + n * 3
        plan = rng.choice(capped if n == place else plans)
        lines = [_line(rng, key + i, plan, data) for i in range(rng.choice((1, 2, 3)))]
        caller_line = rng.choice(lines)
        customer = _customer(rng, key, first, last, caller_line["phone_number"], lines)
        _bills(rng, key, customer, plan, data)
        data["customers"].append(customer)
        if n == place:
            caller_line["status"] = "Active"
            caller_line.pop("suspension_start_date", None)
            account = Account(
                name=customer["full_name"],
                phone=caller_line["phone_number"],
                country=rng.choice(COUNTRIES),
                customer_id=customer["customer_id"],
                line_id=caller_line["line_id"],
                overdue_bill_id=f"B{key}9",
                limit_gb=plan.data_limit_gb,
            )
    assert account is not None, "the caller is one of the customers"
    return account, data


def _line(rng: random.Random, key: int, plan: Any, data: dict[str, Any]) -> dict[str, Any]:
    suspended = rng.random() < 0.2
    line = {
        "line_id": f"L{key}",
        "phone_number": f"555-{300 + key % 600}-{1000 + key * 7 % 9000}",
        "status": "Suspended" if suspended else "Active",
        "plan_id": plan.plan_id,
        "device_id": f"D{key}",
        "data_used_gb": round(rng.uniform(0.0, 0.8) * min(plan.data_limit_gb, 30.0), 1),
        "data_refueling_gb": 0.0,
        "roaming_enabled": rng.random() < 0.5,
        "contract_end_date": f"{rng.choice((2026, 2027))}-{rng.randint(1, 12):02}-28",
        **({"suspension_start_date": "2025-02-01"} if suspended else {}),
    }
    data["lines"].append(line)
    data["devices"].append(
        {
            "device_id": f"D{key}",
            "device_type": "phone",
            "model": rng.choice(MODELS),
            "imei": str(rng.randrange(10**14, 10**15)),
            "is_esim_capable": rng.random() < 0.7,
            "activated": True,
            "activation_date": f"2025-01-{rng.randint(1, 28):02}T10:00:00",
        }
    )
    return line


def _customer(
    rng: random.Random, key: int, first: str, last: str, phone: str, lines: list[dict[str, Any]]
) -> dict[str, Any]:
    city, state, zip_code = rng.choice(CITIES)
    return {
        "customer_id": f"C{key}",
        "full_name": f"{first} {last}",
        "date_of_birth": f"{rng.randint(1950, 2004)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}",
        "email": f"{first}.{last}{key}@example.com".lower(),
        "phone_number": phone,
        "address": {"street": f"{rng.randint(1, 999)} Lake St", "city": city, "state": state, "zip_code": zip_code},
        "account_status": "Active",
        "payment_methods": [
            {
                "method_type": rng.choice(("Credit Card", "Debit Card", "PayPal")),
                "account_number_last_4": f"{rng.randrange(10000):04}",
                "expiration_date": f"{rng.randint(1, 12):02}/2027",
            }
        ],
        "line_ids": [line["line_id"] for line in lines],
        "bill_ids": [],
        "created_at": f"2024-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}T09:00:00",
    }


def _bills(rng: random.Random, key: int, customer: dict[str, Any], plan: Any, data: dict[str, Any]) -> None:
    months: Mapping[int, str] = {1: "Paid", 2: "Issued", 3: "Draft"}
    # Some customers have no draft yet: a charge then begins one.
    for month in (1, 2, 3) if rng.random() < 0.7 else (1, 2):
        items = [
            {
                "description": f"{plan.name} - Line {line_id}",
                "amount": plan.price_per_month,
                "date": f"2025-{month:02}-05",
                "item_type": "Plan Charge",
            }
            for line_id in ([] if month == 3 else customer["line_ids"])
        ]
        bill = {
            "bill_id": f"B{key}{month}",
            "customer_id": customer["customer_id"],
            "period_start": f"2025-{month:02}-01",
            "period_end": f"2025-{month:02}-28",
            "issue_date": f"2025-{month:02}-05",
            "total_due": sum(item["amount"] for item in items) or 0.0,
            "due_date": f"2025-{month:02}-19",
            "line_items": items,
            "status": months[month],
        }
        customer["bill_ids"].append(bill["bill_id"])
        data["bills"].append(bill)
