"""What the reference agents of every tau2 domain share."""

from __future__ import annotations

from ..conversation import AgentAction, Observation

REFUSAL = "I cannot help with that."
IMPOSSIBLE = "Unfortunately that is not possible."
HAND_OVER = "YOU ARE BEING TRANSFERRED TO A HUMAN AGENT. PLEASE HOLD ON."


class NoopAgent:
    """Refuses everything: what it scores is the floor of the benchmark."""

    def act(self, observation: Observation) -> AgentAction:
        return AgentAction(text=REFUSAL)
