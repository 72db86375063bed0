"""People to write to, call and keep away."""

from __future__ import annotations

from ..family import Family, Phrases, request

MESSAGES = Family(
    "messages",
    (
        request(
            "send_message",
            "Send a text to a person.",
            {"person": "person", "text": "text"},
            train=Phrases(
                ('Send {person} the message "{text}".', 'Write to {person}: "{text}".', 'Text "{text}" to {person}.'),
                ('Tell {person} "{text}".', '{person} should know: "{text}".', 'Let {person} read this: "{text}".'),
            ),
            tune=Phrases(('Message {person}: "{text}".',), ('Pass on "{text}" to {person}.',)),
            report=Phrases(
                ('Drop {person} a line saying "{text}".', 'Shoot "{text}" over to {person}.'),
                ('{person} has to hear "{text}" from me.', 'Make sure {person} gets the words "{text}".'),
            ),
        ),
        request(
            "call_person",
            "Call a person on the phone.",
            {"person": "person"},
            train=Phrases(
                ("Call {person}.", "Please phone {person}.", "Start a call with {person}."),
                ("I want to talk to {person}.", "I need to speak with {person}.", "Get {person} on the phone."),
            ),
            tune=Phrases(("Ring {person}.",), ("Connect me to {person}.",)),
            report=Phrases(
                ("Dial the number of {person}.", "Give {person} a ring."),
                ("I must hear the voice of {person}.", "Put me through to {person}."),
            ),
        ),
        request(
            "block_person",
            "Block all messages of a person.",
            {"person": "person"},
            train=Phrases(
                ("Block {person}.", "Please block the contact {person}.", "Block all messages from {person}."),
                (
                    "I never want to hear from {person} again.",
                    "{person} keeps writing to me, make it stop.",
                    "No more messages from {person}.",
                ),
            ),
            tune=Phrases(("Ban {person}.",), ("{person} must not reach me.",)),
            report=Phrases(
                ("Put {person} on my blocked list.", "Shut out {person}."),
                ("{person} is a nuisance, keep that contact away from me.", "Do not let {person} bother me."),
            ),
        ),
    ),
)
