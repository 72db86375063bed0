"""Names, ids and other values of requests. Every split draws from its own, so nothing of train occurs in report.

Words are listed by split. Numbers, dates and times are divided by their remainder modulo 7, which shows in no digit:
0 to 4 are train's, 5 tune's, 6 report's. Small counts (quantities, nights) are the only values that all splits share.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from .family import COUNTS

_REMAINDERS = {"train": (0, 1, 2, 3, 4), "tune": (5,), "report": (6,)}

_EXTENSIONS = ("pdf", "txt", "csv", "png", "doc")


def _words(**text: str) -> Mapping[str, tuple[str, ...]]:
    return {split: tuple(words.split()) for split, words in text.items()}


def _lines(**text: str) -> Mapping[str, tuple[str, ...]]:
    return {split: tuple(part.strip() for part in lines.split("/")) for split, lines in text.items()}


_MONTHS = _words(all="January February March April May June July August September October November December")["all"]

_FIRST = _words(
    train="""Maria Daniel Sofia Peter Laura Ahmed Julia Marco Elena Victor Hannah Oscar Nadia Simon Clara Pablo Irene
        Felix Amina George Teresa Lucas Monica Hugo Paula Samuel Greta Andre Lucia Walter Naomi Stefan Rita Edgar""",
    tune="Bruno Celia Dimitri Fatima Gustav Ingrid Joanna Kaspar",
    report="Otto Priya Rafael Selma Tobias Ursula Yusuf Zelda Leander Mirela Nils Ottavia Quentin Rosalind",
)
_LAST = _words(
    train="""Lopez Weber Rossi Novak Brown Fischer Silva Keller Martin Haddad Moreau Santos Clark Berger Costa Young
        Petrov Walsh Romano Hansen Diaz Meyer Fontana Hughes Ortega Bauer Marino Price Vogel Castro""",
    tune="Lindqvist Okafor Dubois Tanaka Murphy Kowalski",
    report="Eriksen Abara Vasquez Whitlock Iyer Sandoval Thorne Zimmer Beaumont Calloway",
)
_MAKES = _words(
    train="""copper linen wooden ceramic leather woollen silver cotton glass bamboo velvet steel marble paper rubber
        silk plastic stone""",
    tune="brass denim oak porcelain",
    report="wicker granite cashmere pewter walnut suede bronze",
)
_GOODS = _words(
    train="""kettle shirt chair vase wallet blanket ring towel bowl tray cushion lamp clock basket scarf mirror spoon
        jacket rug candle""",
    tune="bench apron teapot curtain",
    report="stool mitten ladle hammock goblet satchel doormat",
)
_TOPICS = _words(
    train="""budget piano team sales garden design yoga chess history dental project science tennis music family
        safety german cooking finance reading""",
    tune="pottery payroll chemistry soccer",
    report="violin hiring ballet archery geology marketing karate",
)
_MEETINGS = _words(
    train="review lesson lunch call class party check visit meeting workshop exam dinner",
    tune="seminar rehearsal interview",
    report="recital briefing tournament breakfast tryout",
)
_STEMS = _words(
    train="""report invoice photo notes draft plan letter list map contract menu slides essay poem data survey schedule
        recipe""",
    tune="thesis ledger agenda poster",
    report="manual sketch diary blueprint roster receipt syllabus",
)
_TEXTS = _lines(
    train="""I am running late / the keys are on the table / dinner is ready / see you at the station / happy birthday /
        the train was cancelled / I found your glasses / please feed the cat / the meeting is over /
        thank you for the flowers / we need more milk / the car is fixed / bring your laptop / I will call you back /
        the door is open / good luck with the exam / your parcel is here / let us meet outside /
        I forgot my umbrella / the tickets are sold out / dad is feeling better / turn off the oven""",
    tune="""the plumber is here / I lost my wallet / we won the game / choose any seat""",
    report="""grandma landed safely / my battery is nearly empty / save me a slice of cake / the concert starts soon /
        your suitcase arrived / practice got rained out / the baby is asleep / leave the box by the gate""",
)
_ROOMS = _lines(tune="kitchen / attic / nursery / cellar / library / garage")
_MACHINES = _lines(tune="dishwasher / sauna / dryer / coffee maker / air purifier / sprinkler")
_CITIES = _lines(
    report="""Lisbon / Oslo / Nairobi / Quito / Hanoi / Dublin / Montreal / Santiago / Kyoto / Tallinn / Marrakesh /
        Adelaide / Reykjavik / Valencia"""
)


def draw(kind: str, split: str, rng: Random) -> str | int:
    """A value of a kind of argument."""
    match kind:
        case "person":
            return f"{rng.choice(_FIRST[split])} {rng.choice(_LAST[split])}"
        case "item":
            return f"{rng.choice(_MAKES[split])} {rng.choice(_GOODS[split])}"
        case "event":
            return f"{rng.choice(_TOPICS[split])} {rng.choice(_MEETINGS[split])}"
        case "file":
            return f"{rng.choice(_STEMS[split])}_{_number(10, 99, split, rng)}.{rng.choice(_EXTENSIONS)}"
        case "order":
            return rng.choice(("#", "")) + str(_number(1000, 9999, split, rng))
        case "trip":
            return rng.choice(("T-", "")) + str(_number(1000, 9999, split, rng))
        case "date":
            place = _number(0, 12 * 28 - 1, split, rng)
            return f"{_MONTHS[place // 28]} {place % 28 + 1}"
        case "time":
            place = _number(0, 14 * 12 - 1, split, rng)
            return f"{7 + place // 12}:{5 * (place % 12):02d}"
        case _ if kind in COUNTS:
            return rng.randint(*COUNTS[kind])
        case _:
            return rng.choice(_LISTS[kind][split])


_LISTS = {"text": _TEXTS, "room": _ROOMS, "machine": _MACHINES, "city": _CITIES}


def _number(least: int, most: int, split: str, rng: Random) -> int:
    """One that belongs to the split by its remainder."""
    while True:
        number = rng.randint(least, most)
        if number % 7 in _REMAINDERS[split]:
            return number
