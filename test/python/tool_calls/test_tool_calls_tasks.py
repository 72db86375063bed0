"""What tool-calls asks: the same everywhere, readable in one way, and nothing of train in tune or report."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import pytest
from sinkflex.envs import domain
from sinkflex.envs.tool_calls.asides import CORRECTIONS, DETAILS
from sinkflex.envs.tool_calls.examples import EXAMPLES
from sinkflex.envs.tool_calls.expert import readings
from sinkflex.envs.tool_calls.families import FAMILIES, HELD_OUT
from sinkflex.envs.tool_calls.family import COUNTS
from sinkflex.envs.tool_calls.generator import STYLES, Content, build

SPLITS = {"train": 20_000, "tune": 200, "report": 200}
SOME = {"train": 4000, "tune": 200, "report": 200}


@pytest.fixture(scope="module")
def contents() -> dict[str, list[Content]]:
    return {split: [build(split, index) for index in range(count)] for split, count in SOME.items()}


def test_splits_and_names() -> None:
    suite = domain("tool-calls")
    assert suite.splits() == SPLITS
    assert suite.task_ids("report")[:6] == (
        "report-shop-direct-00000",
        "report-calendar-direct-00001",
        "report-files-direct-00002",
        "report-messages-direct-00003",
        "report-travel-direct-00004",
        "report-shop-indirect-00005",
    )
    for task_id in (suite.task_ids("train")[0], suite.task_ids("train")[-1], suite.task_ids("tune")[137]):
        assert suite.task(task_id).id == task_id
    for wrong in ("report-shop-direct-00001", "report-travel-direct-00204", "train-travel-direct-00004", "report", ""):
        with pytest.raises(KeyError):
            suite.task(wrong)
    assert domain("tool-calls", levels=[0, 3]).splits() == {"train": 12_500, "tune": 125, "report": 125}
    with pytest.raises(ValueError, match=r"levels 0 to 3, got \[4\]"):
        domain("tool-calls", levels=[4])


def test_a_split_holds_its_families_and_styles_in_equal_parts(contents: dict[str, list[Content]]) -> None:
    for split in ("tune", "report"):
        assert set(Counter(content.family.name for content in contents[split]).values()) == {40}
        assert Counter(content.style for content in contents[split]) == {0: 100, 1: 50, 2: 25, 3: 25}
        tools = Counter(content.tool for content in contents[split])
        assert len(tools) == 15 and min(tools.values()) >= 6
    assert {content.family.name for content in contents["train"]} == {family.name for family in FAMILIES}


def test_every_request_says_its_call_and_no_other(contents: dict[str, list[Content]]) -> None:
    for content in (c for split in contents.values() for c in split):
        calls = {(call.name, tuple(call.arguments.items())) for call in readings(content.text, content.family)}
        assert calls == {(content.tool, tuple(content.arguments.items()))}, content.text


def test_the_same_task_in_every_process() -> None:
    """Fixed by hand: a change of the generator is a change of the suite, and of its version."""
    assert build("report", 17).text == "Our office closes at 8:05 today. Have receipt_90.txt deleted."


def values(content: Content) -> Iterator[str]:
    """What names somebody or something: every text, every word of a name, but no small count and no month."""
    kinds = next(request.kinds for request in content.family.requests if request.tool.name == content.tool)
    for name, value in content.arguments.items():
        if kinds[name] not in COUNTS:
            yield str(value)
            if kinds[name] in ("person", "item", "event"):
                yield from str(value).split()


def words_of(text: str) -> set[str]:
    return set(re.findall(r"[\w#.:-]*\w", text))


def test_no_name_id_or_other_value_of_a_held_out_split_occurs_elsewhere(contents: dict[str, list[Content]]) -> None:
    texts = {split: " ".join(content.text for content in some) for split, some in contents.items()}
    words = {split: words_of(text) for split, text in texts.items()}
    for split, other in (("report", "train"), ("report", "tune"), ("tune", "train"), ("tune", "report")):
        leaked = {
            v for c in contents[split] for v in values(c) if (v in words[other] if " " not in v else v in texts[other])
        }
        assert not leaked, f"{split} in {other}: {sorted(leaked)[:5]}"


def phrases() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {"train": [], "tune": [], "report": []}
    for request in (request for family in (*FAMILIES, *HELD_OUT.values()) for request in family.requests):
        for split, ways in request.phrases.items():
            found[split] += ways.direct + ways.indirect
    for table in (DETAILS, CORRECTIONS):
        for split, more in table.items():
            found[split] += more
    return found


def runs_of_words(phrase: str, length: int) -> set[str]:
    """Runs of fixed words, slots not among them."""
    parts = (re.findall(r"[\w']+", part) for part in re.split(r"\{\w+\}", phrase.lower()))
    return {" ".join(part[at : at + length]) for part in parts for at in range(len(part) - length + 1)}


def test_no_phrase_of_a_held_out_split_occurs_elsewhere() -> None:
    """No sentence with its values taken out, and no five words in a row."""
    skeletons = {
        s: {" ".join(re.findall(r"\w+", re.sub(r"\{\w+\}", "_", p.lower()))) for p in ps} for s, ps in phrases().items()
    }
    runs = {split: {run for p in ps for run in runs_of_words(p, 5)} for split, ps in phrases().items()}
    for one, other in (("train", "tune"), ("train", "report"), ("tune", "report")):
        assert not skeletons[one] & skeletons[other]
        assert not runs[one] & runs[other]


def test_train_never_shows_a_held_out_family(contents: dict[str, list[Content]]) -> None:
    suite = domain("tool-calls")
    held_out = {tool.name for family in HELD_OUT.values() for tool in family.tools}
    for task in map(suite.task, suite.task_ids("train")[:400]):
        assert held_out.isdisjoint(tool.name for tool in suite.tools_for(task))
        assert held_out.isdisjoint(call.name for m in suite.examples(6, task) for call in m.tool_calls)
    assert {family.name for family in HELD_OUT.values()} == {"devices", "travel"}


def test_examples_are_of_the_family_and_of_no_task(contents: dict[str, list[Content]]) -> None:
    every = [content for some in contents.values() for content in some]
    requests = {content.text for content in every}
    asked = {value for content in every for value in content.arguments.values() if isinstance(value, str)}
    names = {word for content in every for word in words_of(content.text) if word[0].isupper()}
    for family in (*FAMILIES, *HELD_OUT.values()):
        tools = [tool.name for tool in family.tools]
        assert sorted(tool for _, tool, _ in EXAMPLES[family.name][:3]) == sorted(tools)
        for request, tool, arguments in EXAMPLES[family.name]:
            assert tool in tools and request not in requests
            assert asked.isdisjoint(arguments.values())
            assert names.isdisjoint({"Igor", "Blum", "Wanda", "Pike", "Malta", "Perth"})
            assert all(str(value).lower() in request.lower() for value in arguments.values())


def test_styles_are_what_their_names_say(contents: dict[str, list[Content]]) -> None:
    assert STYLES == ("direct", "indirect", "detail", "corrected")
    for content in contents["report"]:
        wrong = [
            w for w in CORRECTIONS["report"] if w.split("{")[0].strip() and w.split("{")[0].strip() in content.text
        ]
        assert bool(wrong) == (content.style == 3), content.text
