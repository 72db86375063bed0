"""A person at the terminal as the user or as the agent.

Idea: the command line is only eyes and keys. It shows what an event `human` of kind `shown` brings, and on `ask` it
sends one line back ({"type": "say", "text": ..} on standard input). What a line means is decided here. A line that
cannot be obeyed is explained and asked again: it is nobody's error and never reaches the environment. The person gets
what the side that they play may know: the user the scenario and the user's own tools, the agent policy and tools.

The wait for a line blocks the worker, which plays one trial at a time then. A stop ends it: the trial is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from sinkflex.control import Control
from sinkflex.envs.conversation import AgentAction, Message, Observation, ToolCall
from sinkflex.envs.domain import ToolError, ToolSpec, UserTools, UserTurn
from sinkflex.events import Events

from .human_calls import BadLine, manual, overview, read_call, readable, suggestion
from .play import Stopped, TrialJob, Usage

Side = Literal["user", "agent"]

_ENDS = {"/done": "user_stop", "/transfer": "transfer", "/out-of-scope": "out_of_scope"}
_USER_HELP = """\
TEXT           say it to the agent
/done          end the conversation: you have what you wanted, or give up
/transfer      end it: the agent has handed you over to somebody else
/out-of-scope  end it: your instructions do not say how to go on
/scenario      who you are and what you want, once more"""
_USER_TOOLS_HELP = """\
/run NAME      use a tool of your own, such as /run {example};
               its result is shown to you only
/tools [NAME]  your tools, or all about one of them"""
_AGENT_HELP = """\
TEXT           say it to the customer
/call NAME     call a tool with field=value pairs or a JSON object, such as
               /call {example}
/tools [NAME]  the tools, or all about one of them
/policy        the policy, once more"""
_KEYS_HELP = """\
/help          this list
//TEXT         say TEXT with one slash before it
Tab completes commands. Ctrl-C or Ctrl-D stops the evaluation: this trial is
dropped, finished ones are kept."""


class Person:
    """Whoever sits at the terminal; `job` is the trial that they are in. `briefed`: they have read what stays the same
    in all trials."""

    def __init__(self, events: Events, control: Control, side: Side) -> None:
        self.events, self.control, self.side = events, control, side
        self.job: TrialJob | None = None
        self.briefed = False

    def show(self, what: str, text: str, title: str | None = None) -> None:
        """`what` is the kind of text: brief, user, assistant, tool, error, problem or note."""
        self._emit("shown", what=what, title=title, text=text)

    def line(self, completions: Sequence[str]) -> str:
        """The next line that they type, without blanks around it. Raises Stopped when a stop is asked for instead."""
        self.events.status.waiting_for = "a person"
        self._emit("ask", words=list(completions))
        text = self.control.next_line()
        self.events.status.waiting_for = None
        if text is None:
            raise Stopped
        return text.strip()

    def _emit(self, kind: str, **more: Any) -> None:
        assert self.job is not None, "a trial has begun"
        self.events.emit("human", kind=kind, task_id=self.job.task_id, trial=self.job.trial, side=self.side, **more)


class HumanUser:
    """Implements `User`. `scenario`: who they are and what they want. Their tools are shown to them only."""

    def __init__(self, person: Person, scenario: str, greeting: str | None, tools: Sequence[ToolSpec]) -> None:
        self.person, self.scenario, self.greeting, self.tools = person, scenario, greeting, tools
        self.help = "\n".join([_USER_HELP, *self._tools_help(), _KEYS_HELP])
        commands = ["/help", "/scenario", *_ENDS]
        if tools:
            commands += ["/tools", *(f"{verb} {tool.name}" for verb in ("/run", "/tools") for tool in tools)]
        self.commands = commands

    def open(self) -> UserTurn:
        self.person.show("brief", self.scenario, "you are the customer; this is what you know and want")
        if self.tools:
            names = ", ".join(tool.name for tool in self.tools)
            self.person.show("brief", names, "your own tools (/run NAME; /tools says what they do)")
        self.person.show("note", "Type what you say to the agent. /done ends the conversation, /help lists the rest.")
        if self.greeting is not None:
            self.person.show("assistant", self.greeting)
        return self._turn(None)

    def reply(self, agent_text: str, tools: UserTools) -> UserTurn:
        self.person.show("assistant", agent_text)
        return self._turn(tools)

    def snapshot(self) -> Any:
        return None

    def restore(self, saved: Any) -> None:
        pass

    def _turn(self, tools: UserTools | None) -> UserTurn:
        """`tools` None: the conversation has not begun."""
        while True:
            line = self.person.line(self.commands)
            command, _, rest = line.partition(" ")
            if not line.startswith("/"):
                if line:
                    return UserTurn(line)
            elif line.startswith("//"):
                return UserTurn(line[1:])
            elif command in _ENDS and tools is not None:
                return UserTurn(rest.strip(), stop=True, reason=_ENDS[command])
            else:
                self._obey(command, rest.strip(), tools)

    def _obey(self, command: str, rest: str, tools: UserTools | None) -> None:
        show = self.person.show
        try:
            if command == "/help":
                show("note", self.help)
            elif command == "/scenario":
                show("brief", self.scenario, "you are the customer; this is what you know and want")
            elif command == "/tools" and self.tools:
                show("note", about(rest, self.tools))
            elif command in _ENDS or (command == "/run" and self.tools and tools is None):
                raise BadLine("The conversation has not begun: say first what you want.")
            elif command == "/run" and self.tools:
                assert tools is not None
                self._run(read_call(rest, self.tools), tools)
            else:
                raise BadLine(unknown(command, self.commands))
        except BadLine as bad:
            show("problem", str(bad))

    def _run(self, call: ToolCall, tools: UserTools) -> None:
        try:
            self.person.show("tool", readable(tools(call)), f"your {call.name}")
        except ToolError as refused:
            self.person.show("error", str(refused), f"your {call.name}")

    def _tools_help(self) -> list[str]:
        return [_USER_TOOLS_HELP.format(example=self.tools[0].name)] if self.tools else []


class HumanAgent:
    """Implements `Player`. `domain` tells which calls end the conversation and whether somebody hears words."""

    def __init__(self, person: Person, domain: Any) -> None:
        self.person, self.usage = person, Usage()
        self.policy: str = domain.policy_text
        self.tools: Sequence[ToolSpec] = domain.agent_tools
        self.others: Sequence[ToolSpec] = domain.user_tools
        self.alone = bool(getattr(domain, "solo", False))
        self.ending = [tool.name for tool in self.tools if domain.ends_episode(ToolCall(tool.name, {}))]
        names = [tool.name for tool in self.tools]
        self.commands = ["/help", "/policy", "/tools", *(f"{verb} {n}" for verb in ("/call", "/tools") for n in names)]
        example = next((tool for tool in self.tools if tool.kind == "read"), self.tools[0])
        self.help = "\n".join([_AGENT_HELP.format(example=_example(example)), _KEYS_HELP, self._how_it_ends()])
        self._brief()

    async def act(self, observation: Observation) -> AgentAction:
        self.see(observation)
        while True:
            line = self.person.line(self.commands)
            command, _, rest = line.partition(" ")
            try:
                if command == "/call":
                    return AgentAction(tool_calls=(read_call(rest, self.tools, self.others),))
                if line.startswith("/") and not line.startswith("//"):
                    self._obey(command, rest.strip())
                elif line and self.alone:
                    raise BadLine("Nobody is there to hear words: the ticket is all there is. Use /call.")
                elif line:
                    return AgentAction(text=line.removeprefix("/") if line.startswith("//") else line)
            except BadLine as bad:
                self.person.show("problem", str(bad))

    def see(self, observation: Observation) -> None:
        """What happened since they last acted."""
        for message in observation:
            self._see(message)

    def _see(self, message: Message) -> None:
        titles = {"tool": f"result of {message.name}", "assistant": "said in your name"}
        title = titles.get(message.role)
        what = "error" if message.is_error else message.role
        self.person.show(what, readable(message.content), title)

    def _brief(self) -> None:
        person = self.person
        if not person.briefed:
            person.show("brief", self.policy, "you are the agent; this is your policy")
            names = ", ".join(tool.name for tool in self.tools)
            person.show("brief", names, "your tools (/call NAME; /tools says what they take and do)")
            person.briefed = True
        say = "Work with /call" if self.alone else "Type what you say to the customer, or /call a tool"
        person.show("note", f"{say}. {self._how_it_ends()} /help lists the rest.")

    def _how_it_ends(self) -> str:
        calls = " or ".join(f"/call {name}" for name in self.ending)
        if self.alone:
            return f"{calls} ends the conversation."
        return f"The customer ends the conversation{f', or {calls} does' if calls else ''}."

    def _obey(self, command: str, rest: str) -> None:
        if command == "/help":
            self.person.show("note", self.help)
        elif command == "/policy":
            self.person.show("brief", self.policy, "your policy")
        elif command == "/tools":
            self.person.show("note", about(rest, self.tools))
        else:
            raise BadLine(unknown(command, self.commands))


def about(name: str, tools: Sequence[ToolSpec]) -> str:
    """The manual of one tool, or of all in short. BadLine for a tool that is not there."""
    if not name:
        return overview(tools)
    found = next((tool for tool in tools if tool.name == name), None)
    if found is None:
        raise BadLine(f"There is no tool {name}.{suggestion(name, [tool.name for tool in tools])} /tools lists them.")
    return manual(found)


def unknown(command: str, commands: Sequence[str]) -> str:
    verbs = list(dict.fromkeys(one.partition(" ")[0] for one in commands))
    return f"There is no {command}.{suggestion(command, verbs)} There is {', '.join(verbs)}; //TEXT says /TEXT."


def _example(spec: ToolSpec) -> str:
    fields = spec.parameters.get("required", ())
    return " ".join([spec.name, *(f"{field}=..." for field in fields)])
