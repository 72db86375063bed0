"""Rooms and machines of a house: tune's own family, never seen in training."""

from __future__ import annotations

from ..family import Family, Phrases, request

DEVICES = Family(
    "devices",
    (
        request(
            "set_temperature",
            "Heat a room to some degrees.",
            {"room": "room", "degrees": "degrees"},
            tune=Phrases(
                ("Heat the {room} to {degrees} degrees.", "Set the {room} to {degrees} degrees."),
                ("It should be {degrees} degrees in the {room}.", "I want {degrees} degrees in my {room}."),
            ),
        ),
        request(
            "switch_light",
            "Switch the light of a room.",
            {"room": "room"},
            tune=Phrases(
                ("Switch the light of the {room}.", "Can I have light in the {room}?"),
                ("I cannot see a thing in the {room}.", "The {room} is dark."),
            ),
        ),
        request(
            "start_machine",
            "Run a machine for some minutes.",
            {"machine": "machine", "minutes": "minutes"},
            tune=Phrases(
                ("Run the {machine} for {minutes} minutes.", "Start the {machine}, {minutes} minutes."),
                ("The {machine} has to work {minutes} minutes.", "{minutes} minutes of the {machine} will do."),
            ),
        ),
    ),
)
