"""Plays scripted agents in mini-shop and remembers what was said. Shared by the tests of this folder."""

from __future__ import annotations

from dataclasses import dataclass, field

from sinkflex.envs import DualControlEnv


@dataclass
class Played:
    level: str
    reward: float
    turns: int
    info: dict
    words: int
    texts: list[str] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    user_texts: list[str] = field(default_factory=list)


def action_words(action) -> list[str]:
    words = action.text.split()
    for call in action.tool_calls:
        words.append(call.name)
        for key, value in call.arguments.items():
            words += [key, *value.split()]
    return words


def play(env: DualControlEnv, agent_name: str, task_id: str, seed: int = 0) -> Played:
    """One episode. `words` counts every word the agent sees or says and two control tokens a message."""
    observation, info = env.reset(seed=seed, options={"task_id": task_id})
    agent = env.domain.agent(agent_name, env.task, seed)
    played = Played(info["level"], 0.0, 0, info, 0)
    over = False
    while True:
        for message in observation:
            played.texts.append(message.content)
            played.words += len(message.content.split()) + 2
            {"tool": played.results, "user": played.user_texts}[message.role].append(message.content)
        if over:
            return played
        action = agent.act(observation)
        words = action_words(action)
        played.texts.append(" ".join(words))
        played.words += len(words) + 2
        played.turns += 1
        observation, played.reward, terminated, truncated, played.info = env.step(action)
        over = terminated or truncated
