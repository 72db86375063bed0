"""The judge of score mode `official`: natural-language assertions of a task, graded by a model behind an endpoint.

Only tasks whose reward basis names NL_ASSERTION need one. A judge that cannot be asked, or whose verdict cannot be
read, is a fault of the reward: the trial keeps its transcript and has no reward, and `--retry-errors` grades it again
without playing it again. In score mode `offline` nobody is asked, and the report names the component that was dropped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from sinkflex.endpoint import ChatServer, ContextFull, Unanswered

from .endpoint_player import count
from .play import Usage
from .request import Prices
from .results import Trial

COMPONENT = "NL_ASSERTION"
MAX_TOKENS = 2048
PROMPT = """Below are a conversation between a customer service agent and a customer, and a numbered list of
expectations. Decide for each expectation by itself whether the agent met it. Answer with a JSON array that holds true
or false for each expectation, in their order, and nothing else."""
_ARRAY = re.compile(r"\[[\s\w,]*\]")


async def grade(judge: ChatServer, trial: Trial, assertions: Sequence[str], prices: Prices) -> None:
    """Multiplies the judge's verdict (1 when every assertion is met) into the trial's reward, and adds what it used to
    the trial's tokens and cost."""
    reward = trial.reward
    try:
        answer = await judge.chat(_messages(trial.transcript, assertions), temperature=0.0, max_tokens=MAX_TOKENS)
        usage = Usage(trial.tokens, trial.cost)
        count(usage, answer, prices, "judge_")
        trial.cost = usage.cost
        met = _verdicts(answer.text, len(assertions))
    except (Unanswered, ContextFull, ValueError) as error:
        trial.outcome, trial.owner, trial.reason = "infra_error", "reward", "judge"
        trial.error, trial.reward = f"the judge could not grade it: {error}", None
        return
    verdict = float(all(met))
    trial.reward_parts[COMPONENT] = verdict
    trial.outcome, trial.owner, trial.error = "scored", None, None
    trial.reward = (1.0 if reward is None else reward) * verdict


def _messages(transcript: Sequence[Mapping[str, Any]], assertions: Sequence[str]) -> list[dict[str, Any]]:
    lines = []
    for message in transcript:
        for call in message.get("tool_calls", ()):
            lines.append(f"{message['role']} calls {call['name']}({json.dumps(call['arguments'])})")
        if message["content"]:
            lines.append(f"{message['role']}: {message['content']}")
    numbered = "\n".join(f"{number}. {text}" for number, text in enumerate(assertions, start=1))
    talk = "\n".join(lines)
    asked = f"<conversation>\n{talk}\n</conversation>\n\n<expectations>\n{numbered}\n</expectations>"
    return [{"role": "system", "content": PROMPT}, {"role": "user", "content": asked}]


def _verdicts(text: str, count: int) -> list[bool]:
    """The last JSON array of booleans in the answer. ValueError when there is none of that length."""
    for found in reversed(_ARRAY.findall(text)):
        try:
            read = json.loads(found)
        except ValueError:
            continue
        if len(read) == count and all(isinstance(one, bool) for one in read):
            return [bool(one) for one in read]
    raise ValueError(f"its answer holds no array of {count} verdicts: {text[:200]!r}")
