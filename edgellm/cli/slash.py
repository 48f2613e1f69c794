"""The commands of the chat, ``/help`` and so on."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgellm.cli.conversation import Conversation
from edgellm.cli.options import SETTINGS
from edgellm.cli.ui import columns, plural, say
from edgellm.errors import ArgumentError

if TYPE_CHECKING:
    from edgellm.cli.repl import Repl


@dataclass(frozen=True, slots=True)
class Command:
    """One command; `run` takes the argument and returns whether the chat goes on."""

    usage: str
    help: str
    run: Callable[[Repl, str], bool]


@dataclass(frozen=True, slots=True)
class Call:
    """A command as the user gave it."""

    command: Command
    argument: str


def parse(text: str) -> Call | None:
    """Return the command in `text`, or None if that is a message.  Raises ArgumentError for an unknown one.

    A message may begin with a slash: ``/etc/hosts is …`` is none of ours, and a space in front makes anything one.
    """
    found = re.match(r"/(\w*)(?:\s+|$)", text)
    if found is None:
        return None
    name = found[1]
    if name not in COMMANDS:
        raise ArgumentError(f"unknown command /{name}; /help lists them (a message may start with a space)")
    return Call(COMMANDS[name], text[found.end() :].strip())


def _help(_repl: Repl, _argument: str) -> bool:
    for line in columns([(command.usage, command.help) for command in COMMANDS.values()], "<<"):
        say(line)
    say("Enter sends, Alt-Enter starts a new line, Ctrl-C stops a reply, Ctrl-D leaves.")
    return True


def _reset(repl: Repl, _argument: str) -> bool:
    repl.conversation.reset()
    say("(a new conversation)", dim=True)
    return True


def _system(repl: Repl, argument: str) -> bool:
    repl.conversation.system = argument or None
    say("(system message set)" if argument else "(no system message)", dim=True)
    return True


def _regenerate(repl: Repl, _argument: str) -> bool:
    if not repl.conversation.turns:
        raise ArgumentError("there is nothing to answer again yet")
    repl.regenerate()
    return True


def _save(repl: Repl, argument: str) -> bool:
    path = _path(argument, "/save")
    repl.conversation.save(path, repl.model.info.name)
    say(f"(saved to {path})", dim=True)
    return True


def _load(repl: Repl, argument: str) -> bool:
    path = _path(argument, "/load")
    repl.conversation = Conversation.load(path)
    say(f"(loaded {plural(len(repl.conversation.turns), 'turn')} from {path})", dim=True)
    return True


def _path(argument: str, command: str) -> Path:
    if not argument:
        raise ArgumentError(f"{command} needs a file name")
    return Path(argument).expanduser()


def _set(repl: Repl, argument: str) -> bool:
    settings = repl.conversation.settings
    name, _, value = argument.replace("=", " ").partition(" ")
    name, value = name.replace("-", "_"), value.strip()
    known = {setting.name: setting for setting in SETTINGS}
    if not name:
        for line in columns([(s.name, str(settings.get(s.name, "default")), s.help) for s in SETTINGS], "<<<"):
            say(line)
    elif name not in known:
        raise ArgumentError(f"unknown setting {name}; there are {', '.join(known)}")
    elif not value:
        say(f"{name} is {settings.get(name, 'default')}")
    elif value == "default":
        settings.pop(name, None)
    else:
        try:
            settings[name] = known[name].kind(value)
        except ValueError:
            kind = "a whole number" if known[name].kind is int else "a number"
            raise ArgumentError(f"{name} must be {kind} or default, not {value}") from None
    return True


def _stats(repl: Repl, _argument: str) -> bool:
    if repl.last is None:
        raise ArgumentError("no reply yet")
    usage, timings = repl.last.usage, repl.last.timings
    prompt, reply = plural(usage.prompt_tokens, "token"), plural(usage.completion_tokens, "token")
    say(f"  prompt  {prompt}, {usage.cached_tokens} of them remembered")
    say(f"  prefill {timings.prefill_tps:.1f} tokens/s, first token after {timings.first_token_s:.2f} s")
    say(f"  reply   {reply}, {timings.decode_tps:.1f} tokens/s, seed {repl.last.seed}")
    return True


def _exit(_repl: Repl, _argument: str) -> bool:
    return False


COMMANDS = {
    "help": Command("/help", "Show this list.", _help),
    "reset": Command("/reset", "Forget the conversation; system message and settings stay.", _reset),
    "system": Command("/system TEXT", "Set the system message; without TEXT remove it.", _system),
    "regen": Command("/regen", "Answer the last message again.", _regenerate),
    "save": Command("/save FILE", "Write the conversation to a JSON file.", _save),
    "load": Command("/load FILE", "Go on with a saved conversation.", _load),
    "set": Command("/set NAME VALUE", "Change a setting, or back with default; without NAME show all.", _set),
    "stats": Command("/stats", "Show tokens and speed of the last reply.", _stats),
    "exit": Command("/exit", "Leave.", _exit),
}
