"""Events, their dates and guests."""

from __future__ import annotations

from ..family import Family, Phrases, request

CALENDAR = Family(
    "calendar",
    (
        request(
            "move_event",
            "Move an event to another date.",
            {"title": "event", "date": "date"},
            train=Phrases(
                (
                    "Move {title} to {date}.",
                    "Please move the {title} to {date}.",
                    "Change the date of {title} to {date}.",
                    "I want to move my {title} to {date}.",
                    "Set {title} to {date}.",
                    "Put the {title} on {date}.",
                ),
                (
                    "The {title} is on {date} now.",
                    "I can do the {title} only on {date}.",
                    "Let us have the {title} on {date} instead.",
                    "{date} is a better day for the {title}.",
                ),
            ),
            tune=Phrases(
                ("Shift {title} to {date}.", "Could {title} be moved to {date}?"),
                ("{date} suits me better for {title}.", "The {title} had to wait until {date}."),
            ),
            report=Phrases(
                (
                    "Reschedule my {title} for {date}.",
                    "Push {title} back to {date}.",
                    "Have the {title} moved to {date}.",
                ),
                ("They postponed the {title} until {date}.", "{date} turned out to be the new day of {title}."),
            ),
        ),
        request(
            "delete_event",
            "Delete an event from the calendar.",
            {"title": "event"},
            train=Phrases(
                (
                    "Delete {title}.",
                    "Remove {title} from my calendar.",
                    "Please delete the event {title}.",
                    "Delete the {title}, please.",
                    "I want you to remove {title}.",
                    "Take {title} off my calendar.",
                ),
                (
                    "The {title} is not going to happen.",
                    "There will be no {title} this time.",
                    "I cannot go to the {title}.",
                    "We do not have the {title} any more.",
                ),
            ),
            tune=Phrases(
                ("Clear {title} from my calendar.", "Can you delete my {title}?"),
                ("They called off the {title}.", "Nobody has time for the {title}."),
            ),
            report=Phrases(
                ("Erase the entry {title}.", "Have {title} deleted.", "Could you remove my {title}?"),
                ("My {title} fell through.", "The {title} was cancelled by the boss."),
            ),
        ),
        request(
            "invite_person",
            "Invite a person to an event.",
            {"title": "event", "person": "person"},
            train=Phrases(
                (
                    "Invite {person} to {title}.",
                    "Please invite {person} to the {title}.",
                    "Add {person} to the event {title}.",
                    "I want to invite {person} to my {title}.",
                    "Ask {person} to join the {title}.",
                    "To the {title} please invite {person}.",
                ),
                (
                    "{person} wants to come to the {title}.",
                    "I would like {person} at the {title}.",
                    "The {title} would be better with {person}.",
                    "{person} is welcome at the {title}.",
                ),
            ),
            tune=Phrases(
                ("Send {person} an invitation for {title}.", "Could {person} be invited to {title}?"),
                ("The {title} needs {person} as well.", "Let {person} be part of {title}."),
            ),
            report=Phrases(
                (
                    "Put {person} on the guest list of {title}.",
                    "Have {person} invited to {title}.",
                    "Write an invitation to {title} for {person}.",
                ),
                (
                    "It would be nice if {person} came along to my {title}.",
                    "{person} was left out of {title}, fix that.",
                ),
            ),
        ),
    ),
)
