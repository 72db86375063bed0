"""People to write to, to call and to keep away."""

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
                (
                    'Send {person} the message "{text}".',
                    'Write to {person}: "{text}".',
                    'Text "{text}" to {person}.',
                    'Send "{text}" to {person}.',
                    'Please message {person}: "{text}".',
                    'Send the words "{text}" to {person}.',
                ),
                (
                    'Tell {person} "{text}".',
                    '{person} should know: "{text}".',
                    'Let {person} read this: "{text}".',
                    'Say "{text}" to {person}.',
                ),
            ),
            tune=Phrases(
                ('Message {person}: "{text}".', 'Could you send "{text}" to {person}?'),
                ('Pass on "{text}" to {person}.', '"{text}" is what {person} must know.'),
            ),
            report=Phrases(
                (
                    'Drop {person} a line saying "{text}".',
                    'Have "{text}" sent to {person}.',
                    'Compose a message for {person}: "{text}".',
                ),
                ('{person} has to hear "{text}" from me.', 'Make sure {person} gets the words "{text}".'),
            ),
        ),
        request(
            "call_person",
            "Call a person on the phone.",
            {"person": "person"},
            train=Phrases(
                (
                    "Call {person}.",
                    "Please phone {person}.",
                    "Start a call with {person}.",
                    "Call {person} now.",
                    "Please make a call to {person}.",
                    "I want to call {person}.",
                ),
                (
                    "I want to talk to {person}.",
                    "I need to speak with {person}.",
                    "Get {person} on the phone.",
                    "I have something to discuss with {person}.",
                ),
            ),
            tune=Phrases(
                ("Ring {person}.", "Could you call {person}?"),
                ("Connect me to {person}.", "I must talk with {person} about something."),
            ),
            report=Phrases(
                ("Dial the number of {person}.", "Give {person} a call.", "Phone my friend {person}."),
                ("I must hear the voice of {person}.", "Put me through to {person}."),
            ),
        ),
        request(
            "block_person",
            "Block all messages of a person.",
            {"person": "person"},
            train=Phrases(
                (
                    "Block {person}.",
                    "Please block the contact {person}.",
                    "Block all messages from {person}.",
                    "I want to block {person}.",
                    "Block {person} for me.",
                    "Please stop all messages of {person}.",
                ),
                (
                    "I never want to hear from {person} again.",
                    "{person} keeps writing to me, make it stop.",
                    "No more messages from {person}.",
                    "I have had enough of {person}.",
                ),
            ),
            tune=Phrases(
                ("Ban {person}.", "Could {person} be blocked?"),
                ("{person} must not reach me.", "{person} is not my friend any more."),
            ),
            report=Phrases(
                ("Put {person} on my blocked list.", "Have {person} blocked.", "Block the number of {person}."),
                ("{person} is a nuisance, keep that contact away from me.", "Do not let {person} bother me."),
            ),
        ),
    ),
)
