"""Example conversations for the prompt: six of each family, about people and things that occur in no task.

The first three show each tool once; then come another wording, a detail that does not matter, and a correction. They
are of the family whose tools the prompt lists, also where that family is held out: so small a model uses no tool of its
list that it has not seen used. What training never shows is the family.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..conversation import Message, ToolCall

_Example = tuple[str, str, dict[str, str | int]]

EXAMPLES: Mapping[str, tuple[_Example, ...]] = {
    "shop": (
        ("Kindly cancel order #20417.", "cancel_order", {"order": "#20417"}),
        ("Buy 12 amber pens.", "buy_item", {"item": "amber pens", "quantity": 12}),
        ("Where on earth is order 31?", "track_order", {"order": "31"}),
        ("We are out of jade vests, send 11.", "buy_item", {"item": "jade vests", "quantity": 11}),
        ("Igor Blum loves your shop. Track order #82.", "track_order", {"order": "#82"}),
        ("Cancel order 66. Not 66, I want #67.", "cancel_order", {"order": "#67"}),
    ),
    "calendar": (
        ("Move yacht picnic to June 30.", "move_event", {"title": "yacht picnic", "date": "June 30"}),
        ("Delete opera quiz.", "delete_event", {"title": "opera quiz"}),
        ("Invite Igor Blum to yacht picnic.", "invite_person", {"title": "yacht picnic", "person": "Igor Blum"}),
        ("We will have opera quiz on May 29.", "move_event", {"title": "opera quiz", "date": "May 29"}),
        (
            "I like pears. Yacht picnic must have Wanda Pike.",
            "invite_person",
            {"title": "yacht picnic", "person": "Wanda Pike"},
        ),
        ("Delete opera quiz. Not opera quiz, I want rugby gala.", "delete_event", {"title": "rugby gala"}),
    ),
    "files": (
        ("Open memo_7.odt.", "open_file", {"file": "memo_7.odt"}),
        ("Share song_8.odt with Igor Blum.", "share_file", {"file": "song_8.odt", "person": "Igor Blum"}),
        ("Delete song_8.odt.", "delete_file", {"file": "song_8.odt"}),
        ("Wanda Pike would love song_5.odt.", "share_file", {"file": "song_5.odt", "person": "Wanda Pike"}),
        ("I like pears. Delete memo_4.odt.", "delete_file", {"file": "memo_4.odt"}),
        ("Open memo_7.odt. Not memo_7.odt, I want memo_3.odt.", "open_file", {"file": "memo_3.odt"}),
    ),
    "messages": (
        ('Send "the soup is cold" to Igor Blum.', "send_message", {"person": "Igor Blum", "text": "the soup is cold"}),
        ("Call Wanda Pike.", "call_person", {"person": "Wanda Pike"}),
        ("Block Igor Blum.", "block_person", {"person": "Igor Blum"}),
        ("I need a word with Igor Blum.", "call_person", {"person": "Igor Blum"}),
        ('I like pears. Tell Wanda Pike "nice hat".', "send_message", {"person": "Wanda Pike", "text": "nice hat"}),
        ("Block Igor Blum. Not Igor Blum, I want Wanda Pike.", "block_person", {"person": "Wanda Pike"}),
    ),
    "devices": (
        ("Heat the sunroom to 29 degrees.", "set_temperature", {"room": "sunroom", "degrees": 29}),
        ("Switch the light in the sunroom.", "switch_light", {"room": "sunroom"}),
        ("Run the blender for 95 minutes.", "start_machine", {"machine": "blender", "minutes": 95}),
        ("It is dark in the pantry.", "switch_light", {"room": "pantry"}),
        ("I like pears. Start the toaster for 98 minutes.", "start_machine", {"machine": "toaster", "minutes": 98}),
        ("Heat the pantry to 28 degrees. Not 28, I want 30.", "set_temperature", {"room": "pantry", "degrees": 30}),
    ),
    "travel": (
        ("Find a flight from Malta to Perth.", "find_flight", {"origin": "Malta", "destination": "Perth"}),
        ("Cancel trip T-52.", "cancel_trip", {"trip": "T-52"}),
        ("Book a hotel in Perth for 12 nights.", "book_hotel", {"city": "Perth", "nights": 12}),
        ("We will not take trip 53.", "cancel_trip", {"trip": "53"}),
        ("I like pears. Get me from Perth to Malta.", "find_flight", {"origin": "Perth", "destination": "Malta"}),
        ("Book a hotel in Malta for 11 nights. Not 11, I want 12.", "book_hotel", {"city": "Malta", "nights": 12}),
    ),
}


def example_messages(family: str, count: int) -> Sequence[Message]:
    """The first `count` conversations of a family. ValueError for more than there are."""
    if count > len(EXAMPLES[family]):
        raise ValueError(f"tool-calls has {len(EXAMPLES[family])} example conversations, {count} were asked for")
    return tuple(
        message
        for text, tool, arguments in EXAMPLES[family][:count]
        for message in (Message("user", text), Message("assistant", "", tool_calls=(ToolCall(tool, arguments),)))
    )
