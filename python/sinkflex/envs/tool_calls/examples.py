"""Example conversations for the prompt: six of each family, about people and things that occur in no task.

The first four show each tool once; then come a detail that does not matter and a correction. They are of the family
whose tools the prompt lists, also where that family is held out: so small a model uses no tool of its list that it has
not seen used. What training never shows is the family.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..conversation import Message, ToolCall

_Example = tuple[str, str, dict[str, str | int]]

EXAMPLES: Mapping[str, tuple[_Example, ...]] = {
    "shop": (
        ("Kindly cancel order #20417.", "cancel_order", {"order": "#20417"}),
        ("Buy 12 jade vest.", "buy_item", {"item": "jade vest", "quantity": 12}),
        ("Where on earth is order K31?", "track_order", {"order": "K31"}),
        ("Order 70552 has to be for 11 pieces.", "set_quantity", {"order": "70552", "quantity": 11}),
        ("Igor Blum is a fan of yours. Cancel #611 now.", "cancel_order", {"order": "#611"}),
        ("Tell me where #82 is. Not #82, I want #83.", "track_order", {"order": "#83"}),
    ),
    "calendar": (
        ("Add yacht picnic, May 31, 22:00.", "add_event", {"title": "yacht picnic", "date": "May 31", "time": "22:00"}),
        ("Ask Igor Blum to the yacht picnic.", "invite_person", {"title": "yacht picnic", "person": "Igor Blum"}),
        ("Move opera quiz to June 30.", "move_event", {"title": "opera quiz", "date": "June 30"}),
        ("The opera quiz is cancelled.", "delete_event", {"title": "opera quiz"}),
        ("I like pears. Delete yacht picnic.", "delete_event", {"title": "yacht picnic"}),
        (
            "Move yacht picnic to May 30. Not May 30, I want May 31.",
            "move_event",
            {"title": "yacht picnic", "date": "May 31"},
        ),
    ),
    "files": (
        ("Open memo_7.odt.", "open_file", {"file": "memo_7.odt"}),
        ("Share memo_7.odt with Igor Blum.", "share_file", {"file": "memo_7.odt", "person": "Igor Blum"}),
        ("Rename memo_7.odt to song_8.odt.", "rename_file", {"file": "memo_7.odt", "new_name": "song_8.odt"}),
        ("Get rid of song_8.odt.", "delete_file", {"file": "song_8.odt"}),
        ("I like pears. Show song_8.odt.", "open_file", {"file": "song_8.odt"}),
        ("Delete memo_7.odt. Not memo_7.odt, I want song_8.odt.", "delete_file", {"file": "song_8.odt"}),
    ),
    "messages": (
        (
            'Tell Igor Blum "the soup is cold".',
            "send_message",
            {"person": "Igor Blum", "text": "the soup is cold"},
        ),
        ("Call Wanda Pike.", "call_person", {"person": "Wanda Pike"}),
        ("Mute Igor Blum for 95 minutes.", "mute_chat", {"person": "Igor Blum", "minutes": 95}),
        ("Wanda Pike must not write to me.", "block_person", {"person": "Wanda Pike"}),
        ("I like pears. I will talk to Igor Blum.", "call_person", {"person": "Igor Blum"}),
        ("Block Igor Blum. Not Igor Blum, I want Wanda Pike.", "block_person", {"person": "Wanda Pike"}),
    ),
    "devices": (
        ("Heat the sunroom to 29 degrees.", "set_temperature", {"room": "sunroom", "degrees": 29}),
        ("It is dark in the sunroom.", "switch_light", {"room": "sunroom"}),
        ("Run the blender for 95 minutes.", "start_machine", {"machine": "blender", "minutes": 95}),
        ("Stop the blender.", "stop_machine", {"machine": "blender"}),
        ("I like pears. Stop the toaster.", "stop_machine", {"machine": "toaster"}),
        (
            "Run the blender for 95 minutes. Not 95, I want 98.",
            "start_machine",
            {"machine": "blender", "minutes": 98},
        ),
    ),
    "travel": (
        ("Find a flight from Malta to Perth.", "find_flight", {"origin": "Malta", "destination": "Perth"}),
        ("Book a hotel in Perth, 12 nights.", "book_hotel", {"city": "Perth", "nights": 12}),
        ("We want a car in Malta for 11 days.", "rent_car", {"city": "Malta", "days": 11}),
        ("Cancel trip TR-52.", "cancel_trip", {"trip": "TR-52"}),
        ("I like pears. Cancel #53.", "cancel_trip", {"trip": "#53"}),
        ("Book a hotel in Malta, 12 nights. Not Malta, I want Perth.", "book_hotel", {"city": "Perth", "nights": 12}),
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
