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
                ("Open {file}.", "Please open the file {file}.", "Show me {file}."),
                ("I want to read {file}.", "What does {file} say?", "Let me see what is in {file}."),
            ),
            tune=Phrases(("Bring up {file}.",), ("I have to look into {file}.",)),
            report=Phrases(
                ("Load {file} on the screen.", "Display the contents of {file}."),
                ("Remind me of what I wrote in {file}.", "I need a look at {file}."),
            ),
        ),
        request(
            "delete_file",
            "Delete a file.",
            {"file": "file"},
            train=Phrases(
                ("Delete {file}.", "Please delete the file {file}.", "Remove {file} from the disk."),
                ("I do not need {file} any more.", "{file} can go.", "Throw {file} away."),
            ),
            tune=Phrases(("Wipe {file}.",), ("{file} is of no use to anybody.",)),
            report=Phrases(
                ("Erase {file} for good.", "Put {file} in the trash."),
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
                ),
                ("{person} needs to see {file}.", "{person} asked me for {file}.", "I want {person} to have {file}."),
            ),
            tune=Phrases(("Let {person} open {file} too.",), ("{person} cannot get into {file}.",)),
            report=Phrases(
                ("Make {file} available to {person}.", "Grant {person} the right to view {file}."),
                ("{person} is waiting for a link to {file}.", "Could {person} get a copy of {file}?"),
            ),
        ),
    ),
)
