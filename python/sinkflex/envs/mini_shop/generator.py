"""Draws tasks from seeds: the same seed and level give the same task on every machine and Python version.

Levels: 0 one question · 1 one write · 2 the same by product only, where policy decides what to do (a third end in a
hand-off) · 3 the customer's phone, half of the time after a write · 4 two requests, a third of them with a change of
mind. Names, zips, order ids, items, products and colours are drawn evenly, so no id is rarer than another.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from .state import Device, Order
from .tasks import Kind, Reference, ShopTask, Wish
from .words import COLOURS, ITEMS, NAMES, ORDERS, PRODUCTS, ZIPS

LEVELS = (0, 1, 2, 3, 4)
_ASKS: tuple[Kind, ...] = ("status", "item", "order")
_CANCEL_OR_REFUND: tuple[Kind, ...] = ("cancel", "refund")
_WRITES: tuple[Kind, ...] = ("cancel", "refund", "swap")
_INITIAL = ("pending", "shipped", "delivered", "cancelled")
_FORBIDS = {
    "cancel": ("shipped", "delivered", "cancelled"),
    "refund": ("pending", "shipped", "cancelled"),
    "money": ("shipped", "cancelled"),
    "swap": ("shipped", "delivered", "cancelled", "sold", "other"),
}


@dataclass(slots=True)
class _World:
    """A world in the making: `orders` may still change so that a wish finds what it needs."""

    rng: Random
    orders: dict[str, Order]
    catalogue: dict[str, list[tuple[str, str, bool]]]
    spare: str

    def set_status(self, order: str, status: str) -> None:
        self.orders[order] = replace(self.orders[order], status=status)


def essence(task: ShopTask) -> str:
    """Who wants what about which order, without the world around it: tasks of equal essence are near twins."""
    wishes = [w for wish in task.wishes for w in (wish, wish.instead) if w is not None]
    return " ".join([task.name, task.zip, *(f"{wish.kind} {wish.order}" for wish in wishes)])


def build(seed: int, level: int) -> ShopTask:
    """The task of a seed at a level."""
    rng = Random(seed)
    world = _world(rng, 3 if level in (2, 4) else rng.choice((2, 3)))
    ids = list(world.orders)
    rng.shuffle(ids)
    device = Device()
    if level == 0:
        wishes = [_ask(world, ids[0])]
    elif level == 1:
        wishes = [_allowed(world, ids[0], rng.choice(_WRITES), ref=_any_ref(rng), shy=True)]
    elif level == 2:
        wishes = [_decision(world, ids[0])]
    elif level == 3:
        wishes = [_app(world, ids[0])]
        if rng.random() < 0.5:
            wishes.insert(0, _allowed(world, ids[0], rng.choice(_CANCEL_OR_REFUND)))
        device = _broken(rng)
    else:
        wishes = _two(world, ids)
        if wishes[-1].kind == "app":
            device = _broken(rng)
    return ShopTask(
        level=level,
        name=rng.choice(NAMES),
        zip=rng.choice(ZIPS),
        introduced=rng.random() < 0.4,
        wishes=tuple(wishes),
        orders=tuple(world.orders.items()),
        catalogue={product: tuple(variants) for product, variants in world.catalogue.items()},
        device=device,
    )


def _world(rng: Random, count: int) -> _World:
    products = rng.sample(PRODUCTS, count + 1)
    items = rng.sample(ITEMS, 3 * len(products))
    catalogue = {product: [(colour, items.pop(), False) for colour in rng.sample(COLOURS, 3)] for product in products}
    orders = {
        order: Order(rng.choice(_INITIAL), product, rng.choice(catalogue[product])[1])
        for order, product in zip(rng.sample(ORDERS, count), products[:count], strict=True)
    }
    return _World(rng, orders, catalogue, spare=products[-1])


def _any_ref(rng: Random) -> Reference:
    choices: tuple[Reference, ...] = ("id", "product", "none")
    return rng.choices(choices, (60, 25, 15))[0]


def _ask(world: _World, order: str) -> Wish:
    kind = world.rng.choice(_ASKS)
    product = world.orders[order].product
    by_product = kind == "order" or world.rng.random() < 0.35
    return Wish(kind, order, product, "product" if by_product else "id")


def _app(world: _World, order: str) -> Wish:
    return Wish("app", order, world.orders[order].product)


def _allowed(world: _World, order: str, kind: Kind, *, ref: Reference = "id", shy: bool = False) -> Wish:
    """A service wish that policy allows; the order's status is set so that it does."""
    rng = world.rng
    status = rng.choice(("pending", "delivered")) if kind == "money" else "delivered" if kind == "refund" else "pending"
    world.set_status(order, status)
    wish = Wish(kind, order, world.orders[order].product, ref)
    return _to_colour(world, wish, sold=False, shy=shy and rng.random() < 0.25) if kind == "swap" else wish


def _forbidden(world: _World, order: str, kind: Kind, *, ref: Reference = "id") -> Wish:
    """A service wish that ends in a hand-off."""
    reason = world.rng.choice(_FORBIDS[kind])
    world.set_status(order, "pending" if reason in ("sold", "other") else reason)
    wish = Wish(kind, order, world.orders[order].product, ref)
    if reason == "other":
        return replace(wish, target=world.spare)
    return _to_colour(world, wish, sold=reason == "sold") if kind == "swap" else wish


def _to_colour(world: _World, wish: Wish, *, sold: bool, shy: bool = False) -> Wish:
    """Point a swap at another colour of its product; one of the other two colours is sold out half of the time."""
    variants = world.catalogue[wish.product]
    current = world.orders[wish.order].item
    target, other = world.rng.sample([i for i in range(3) if variants[i][1] != current], 2)
    other_sold = world.rng.random() < 0.5
    for index, flag in ((target, sold), (other, other_sold)):
        variants[index] = (variants[index][0], variants[index][1], flag)
    return replace(wish, target=variants[target][0], item=variants[target][1], shy=shy)


def _decision(world: _World, order: str) -> Wish:
    """Level 2. Named by product only, so that nobody can hand off without having looked."""
    rng = world.rng
    if rng.random() < 0.35:
        kind: Kind = rng.choices(("cancel", "refund", "swap", "money"), (3, 3, 3, 1))[0]
        return _forbidden(world, order, kind, ref="product")
    kind = rng.choices(("cancel", "refund", "swap", "money"), (1, 1, 1, 3))[0]
    return _allowed(world, order, kind, ref="product")


def _two(world: _World, ids: list[str]) -> list[Wish]:
    """Level 4: two requests about different orders, sized to need at most eleven agent turns."""
    rng = world.rng
    if rng.random() < 1 / 3:
        instead = _allowed(world, ids[1], rng.choice(_CANCEL_OR_REFUND))
        first = _allowed(world, ids[0], rng.choice(_CANCEL_OR_REFUND))
        return [replace(first, instead=instead), _ask(world, ids[2])]
    if rng.random() < 0.25:
        first = _ask(world, ids[0])
    else:
        kind = rng.choice(_WRITES)
        first = _allowed(world, ids[0], kind, ref=rng.choice(("id", "id", "product")))
    writes = _CANCEL_OR_REFUND if first.kind == "swap" else _WRITES
    match rng.choices(("ask", "write", "hand_off", "app"), (25, 35, 20, 20))[0]:
        case "write":
            second = _allowed(world, ids[1], rng.choice(writes), ref=rng.choice(("id", "product")))
        case "hand_off":
            second = _forbidden(world, ids[1], rng.choice(writes), ref=rng.choice(("id", "product")))
        case "app":
            second = _app(world, ids[1])
        case _:
            second = _ask(world, ids[1])
    return [first, second]


def _broken(rng: Random) -> Device:
    faults = rng.sample(("airplane", "permission", "old"), rng.choice((1, 1, 1, 2, 2)))
    return Device(airplane="airplane" in faults, permitted="permission" not in faults, old="old" in faults)
