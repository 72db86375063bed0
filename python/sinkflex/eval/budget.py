"""What an evaluation may use, and whether another trial may begin.

A trial is begun only while what is spent, plus what the trials under way are expected to use (the mean of the finished
ones), is below the limit: the limit is overshot by the trials under way at most. A cost that is not known counts as
nothing here and is reported as unknown.
"""

from __future__ import annotations

from dataclasses import dataclass

from sinkflex.refusal import Refusal

from .request import Budget, Request
from .results import Trial


def priced(request: Request) -> Request:
    """The request itself. Refusal for a budget in money that no cost could ever use up: a server is paid for and its
    prices are not known."""
    paid = [request.agent.model] if request.agent.kind == "endpoint" else []
    paid += [server.model for server in (request.user.endpoint, request.judge) if server is not None]
    unknown = [model for model in paid if not request.prices.of(model).known]
    if request.budget.money is not None and unknown:
        raise Refusal(
            "SF-EVAL-REQUEST",
            f"A budget in money needs prices, those of {', '.join(map(str, dict.fromkeys(unknown)))} too.",
            why="Without them no cost is known, and the budget would end nothing.",
            fix="Add --prices IN/OUT, dollars per million tokens, or a file with them, or give the budget in tokens.",
            owner="env",
            exit_code=2,
        )
    return request


@dataclass(slots=True)
class Purse:
    """Spent so far, earlier attempts of a resumed evaluation included."""

    tokens: int = 0
    money: float = 0.0
    trials: int = 0
    in_flight: int = 0

    def spend(self, trial: Trial) -> None:
        self.tokens += sum(trial.tokens.values())
        self.money += trial.cost or 0.0
        self.trials += 1

    def empty(self, budget: Budget) -> bool:
        ahead = (self.in_flight + 1) / self.trials if self.trials else 0.0
        for spent, limit in ((float(self.tokens), budget.tokens), (self.money, budget.money)):
            if limit is not None and spent and spent * (1.0 + ahead) > limit:
                return True
        return False
