"""What a chat template can do, found by trying it on small conversations."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from edgellm.chat import probe
from edgellm.chat.options import ChatOptions
from edgellm.chat.template import TOOL_VARIABLES, ChatTemplate
from edgellm.errors import EdgeLLMError, TemplateError

SWITCHES = ("enable_thinking", "thinking", "thinking_budget", "reasoning_effort")
USUAL = frozenset(
    {"messages", "add_generation_prompt", "bos_token", "eos_token", "documents", *TOOL_VARIABLES, *SWITCHES}
    | {"raise_exception", "strftime_now", "range", "namespace", "dict", "cycler", "joiner", "lipsum"}
)
ROLES = ("system", "developer", "user", "assistant", "tool")


@dataclass(frozen=True, slots=True)
class Findings:
    """What a template does with the parts of a conversation.  Everything is false or empty if `error` is set."""

    error: str | None = None
    """Why it cannot even write one message of the user."""
    roles: tuple[str, ...] = ()
    """Roles whose messages reach the prompt as they are."""
    system: Literal["own", "merged", "none"] = "none"
    """A system message has a place of its own, goes in front of the user's, or is refused with everything else."""
    lists_tools: bool = False
    calls: Literal["object", "text"] | None = None
    """How it takes the arguments of earlier tool calls; None: it does not write them."""
    several_calls: bool = False
    results: bool = False
    """Whether what tools returned is written."""
    switches: tuple[str, ...] = ()
    """Variables that turn reasoning on and off or set how much of it there is."""
    keeps_reasoning: bool = False
    """Whether `reasoning_content` of a reply before a tool's result is written."""
    documents: bool = False
    opening: str = ""
    """What it writes to begin a reply."""
    continues: bool = False
    """Whether a reply that has begun can be continued."""
    variables: tuple[str, ...] = ()
    """Further variables it reads; see `template_args`."""
    notes: tuple[str, ...] = ()
    """What may surprise."""


def lint(template: ChatTemplate) -> Findings:
    """Try a template out.  Never raises for what the template does."""
    write = template.write_exactly
    tools = False
    try:
        write([probe.USER])
    except TemplateError as error:
        tools = probe.attempt(write, [probe.USER], tools=True) is not None
        if not tools:
            return Findings(error=str(error))
    read = template.variables
    as_text = probe.wants_text_arguments(write)
    arguments: Any = f'{{"{probe.KEY}": "{probe.VALUE}"}}' if as_text else {probe.KEY: probe.VALUE}
    called, twice = (probe.attempt(write, probe.calling(arguments, calls=n), True) or "" for n in (1, 2))
    return Findings(
        roles=tuple(role for role in ROLES if _writes(template, role, tools)),
        system="own" if template.takes_system else "merged",
        lists_tools=template.lists_tools,
        calls=None if probe.VALUE not in called else "text" if as_text else "object",
        several_calls=twice.count(probe.VALUE) == 2 * called.count(probe.VALUE) > 0,
        results=probe.RESULT in called,
        switches=tuple(name for name in SWITCHES if name in read),
        keeps_reasoning=_keeps_reasoning(template),
        documents="documents" in read,
        opening=_opening(template, tools),
        continues=_continues(template, tools),
        variables=tuple(sorted(read - USUAL)),
        notes=tuple(_notes(template, tools)),
    )


def _writes(template: ChatTemplate, role: str, tools: bool) -> bool:
    if role == "tool":
        return probe.RESULT in (probe.attempt(template.write_exactly, probe.calling({}), tools=True) or "")
    said = {"role": role, "content": probe.ANSWER}
    talk = {"user": [said], "assistant": [probe.USER, said, probe.USER]}.get(role, [said, probe.USER])
    return probe.ANSWER in (probe.attempt(template.write_exactly, talk, tools) or "") and (
        role != "developer" or "developer" in template.source
    )


def _opening(template: ChatTemplate, tools: bool) -> str:
    given = [probe.TOOL] if tools else None
    try:
        with_, without = (
            template.write_exactly([probe.USER], given, add_generation_prompt=add) for add in (True, False)
        )
    except TemplateError:
        return ""
    same = next((i for i, (a, b) in enumerate(zip(with_, without, strict=False)) if a != b), len(without))
    # The end of the text may begin like the opening does: not in the middle of a mark.
    return with_[len(with_[:same].rstrip("<|[")) :]


def _keeps_reasoning(template: ChatTemplate) -> bool:
    talk = probe.calling({probe.KEY: probe.VALUE})
    talk[1] |= {"reasoning_content": probe.THOUGHT}
    return probe.THOUGHT in (probe.attempt(template.write_exactly, talk, tools=True) or "")


def _continues(template: ChatTemplate, tools: bool) -> bool:
    options = ChatOptions(continue_final_message=True, tools=[probe.TOOL] if tools else None)
    try:
        text = options.render(template, [probe.USER, probe.REPLY], options.tools, None)
    except EdgeLLMError:
        return False
    return text.endswith(probe.ANSWER)


def _notes(template: ChatTemplate, tools: bool) -> Iterator[str]:
    if tools:
        yield "it fails without tools; a file that has it should have another one for conversations without"
    if not template.takes_system:
        yield "it has no system role: a system message goes in front of the user's message that follows"
    odd: dict[str, list[dict[str, Any]]] = {
        "two messages of the user in a row": [probe.USER, probe.USER],
        "a conversation that begins with the assistant": [probe.REPLY, probe.USER],
        "a system message in the middle": [probe.USER, probe.REPLY, {"role": "system", "content": "x"}, probe.USER],
    }
    for name, talk in odd.items():
        try:
            template.render(talk, tools=[probe.TOOL] if tools else None)
        except TemplateError as error:
            yield f"it refuses {name}: {error}"
