"""What stands in for the user in solo mode: a ticket, and the tool by which the agent ends the episode."""

from __future__ import annotations

from typing import Any

from ...domain import ToolSpec, UserTools, UserTurn

DONE = ToolSpec("done", "Call this tool when you are done with the task.", {"type": "object", "properties": {}})

MMS = "MMS message"
REFUEL = "They will not change their mobile data plan but they will refuel 2.0 GB of data if necessary."
"""What every other ticket about mobile data says, and the tickets about MMS leave out."""


class Ticket:
    """`absent`: the environment answers words with an error observation, nobody is there to hear them. `full`: the
    ticket about MMS also says what the user would pay for, which the package's own leaves out."""

    absent = True

    def __init__(self, task: Any, full: bool = False) -> None:
        self.text: str = task.ticket
        if full and MMS in self.text and REFUEL not in self.text:
            self.text = f"{self.text} {REFUEL}"

    def open(self) -> UserTurn:
        return UserTurn(self.text)

    def reply(self, agent_text: str, tools: UserTools) -> UserTurn:
        raise AssertionError("the environment does not pass words to an absent user")

    def snapshot(self) -> Any:
        return None

    def restore(self, saved: Any) -> None:
        pass
