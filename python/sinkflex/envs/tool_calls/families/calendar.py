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
                ),
                (
                    "The {title} is on {date} now.",
                    "I can do the {title} only on {date}.",
                    "Let us have the {title} on {date} instead.",
                ),
            ),
            tune=Phrases(("Shift {title} to {date}.",), ("{date} suits me better for the {title}.",)),
            report=Phrases(
                ("Reschedule my {title} for {date}.", "Push {title} back to {date}."),
                ("They postponed the {title} until {date}.", "{date} turned out to be the new day of the {title}."),
            ),
        ),
        request(
            "delete_event",
            "Delete an event from the calendar.",
            {"title": "event"},
            train=Phrases(
                ("Delete {title}.", "Remove {title} from my calendar.", "Please delete the event {title}."),
                (
                    "The {title} is not going to happen.",
                    "There will be no {title} this time.",
                    "I cannot go to the {title}, take it out.",
                ),
            ),
            tune=Phrases(("Clear {title} off my calendar.",), ("They called off the {title}.",)),
            report=Phrases(
                ("Erase the entry {title}.", "Scrap {title} from the schedule."),
                ("My {title} fell through.", "Nobody is coming to the {title}, so drop it."),
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
                ),
                (
                    "{person} wants to come to the {title}.",
                    "I would like {person} at the {title}.",
                    "Ask {person} to join the {title}.",
                ),
            ),
            tune=Phrases(("Send {person} an invitation for {title}.",), ("The {title} needs {person} as well.",)),
            report=Phrases(
                ("Put {person} on the guest list of {title}.", "Have {person} attend {title}."),
                (
                    "It would be nice if {person} came along to my {title}.",
                    "{person} was left out of the {title}, fix that.",
                ),
            ),
        ),
    ),
)
