"""Documents on a disk."""

from __future__ import annotations

from ..family import Family, Phrases, request

FILES = Family(
    "files",
    (
        request(
            "open_file",
            "Open a file.",
            {"file": "file"},
            train=Phrases(
                (
                    "Open {file}.",
                    "Please open the file {file}.",
                    "Show me {file}.",
                    "Open {file} for me.",
                    "I want to open {file}.",
                    "Start by opening {file}.",
                ),
                (
                    "I want to read {file}.",
                    "What does {file} say?",
                    "Let me see what is in {file}.",
                    "I would like to look at {file}.",
                ),
            ),
            tune=Phrases(
                ("Bring up {file}.", "Could you open {file}?"),
                ("I have to look into {file}.", "What is written in {file}?"),
            ),
            report=Phrases(
                ("Load {file} on the screen.", "Display the contents of {file}.", "Have {file} opened."),
                ("Remind me of what I wrote in {file}.", "I need a look at {file}."),
            ),
        ),
        request(
            "delete_file",
            "Delete a file.",
            {"file": "file"},
            train=Phrases(
                (
                    "Delete {file}.",
                    "Please delete the file {file}.",
                    "Remove {file} from the disk.",
                    "Delete {file} now.",
                    "I want to delete {file}.",
                    "Remove the file {file}.",
                ),
                (
                    "I do not need {file} any more.",
                    "{file} can go.",
                    "Throw {file} away.",
                    "Get {file} out of my sight.",
                ),
            ),
            tune=Phrases(
                ("Wipe {file}.", "Could you delete {file}?"),
                ("{file} is of no use to anybody.", "Let {file} disappear."),
            ),
            report=Phrases(
                ("Erase {file} for good.", "Put {file} in the trash.", "Have {file} deleted."),
                ("{file} only takes up space, get rid of it.", "Nobody should keep {file}."),
            ),
        ),
        request(
            "share_file",
            "Share a file with a person.",
            {"file": "file", "person": "person"},
            train=Phrases(
                (
                    "Share {file} with {person}.",
                    "Please share the file {file} with {person}.",
                    "Give {person} access to {file}.",
                    "I want to share {file} with {person}.",
                    "With {person} please share {file}.",
                    "Send {file} to {person}.",
                ),
                (
                    "{person} needs to see {file}.",
                    "{person} asked me for {file}.",
                    "I want {person} to have {file}.",
                    "{person} may read {file}.",
                ),
            ),
            tune=Phrases(
                ("Let {person} open {file} too.", "Could {file} be shared with {person}?"),
                ("{person} cannot get into {file}.", "{person} is curious about {file}."),
            ),
            report=Phrases(
                (
                    "Make {file} available to {person}.",
                    "Grant {person} the right to view {file}.",
                    "Have {file} shared with {person}.",
                ),
                ("{person} is waiting for a link to {file}.", "Could {person} get a copy of {file}?"),
            ),
        ),
    ),
)
