"""A model for tests of what is built on `edgellm.Model`: it says what the script says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from edgellm.chat.events import ContentDelta
from edgellm.errors import ContextOverflowError, TemplateError

Script = Callable[[Any], Iterable[Any]]
"""From a prompt or messages to the chunks of the reply, or other events; it may raise, block or interrupt."""


class ScriptedGeneration:
    """Has the interface of `edgellm.Generation` that callers use."""

    def __init__(self, chunks: Iterable[Any], prompt_tokens: int, finish_reason: str) -> None:
        self._chunks = iter(chunks)
        self._finish = finish_reason
        self._cancelled = False
        self.closed = False
        self.finish_reason: str | None = None
        self.truncated = False
        self.seed = 7
        self.token_ids: list[int] = []
        self.prompt_tokens = prompt_tokens

    def events(self) -> Iterator[Any]:
        for chunk in self._chunks:
            if self._cancelled:
                break
            self.token_ids.append(len(self.token_ids))
            yield ContentDelta(chunk) if isinstance(chunk, str) else chunk
        self.finish_reason = "cancelled" if self._cancelled else self._finish

    def __iter__(self) -> Iterator[str]:
        return (event.text for event in self.events() if isinstance(event, ContentDelta))

    def cancel(self) -> None:
        self._cancelled = True

    def close(self) -> None:
        self.closed = True

    def __enter__(self) -> ScriptedGeneration:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def usage(self) -> Any:
        return SimpleNamespace(
            prompt_tokens=self.prompt_tokens, completion_tokens=len(self.token_ids), cached_tokens=2, total_tokens=0
        )

    @property
    def timings(self) -> Any:
        return SimpleNamespace(prefill_s=0.1, decode_s=0.2, first_token_s=0.25, prefill_tps=40.0, decode_tps=12.5)


@dataclass
class ScriptedModel:
    """Has the interface of `edgellm.Model` that the command line uses; a word is a token."""

    script: Script
    n_ctx: int = 1000
    has_chat_template: bool = True
    finish_reason: str = "stop"
    arguments: dict[str, Any] = field(default_factory=dict)
    path: Any = None
    asked: list[Any] = field(default_factory=list)
    """Prompts of `generate` and messages of `chat`, as they came."""
    keywords: list[dict[str, Any]] = field(default_factory=list)
    generations: list[ScriptedGeneration] = field(default_factory=list)
    closed: bool = False

    def open(self, path: Any, **arguments: Any) -> ScriptedModel:
        """Stand in for the constructor of `edgellm.Model`."""
        self.path, self.arguments = path, arguments
        return self

    @property
    def info(self) -> Any:
        return SimpleNamespace(
            name="Scripted",
            architecture="script",
            quantization="Q4_1",
            n_params=134_515_008,
            n_ctx=self.n_ctx,
            n_ctx_train=self.n_ctx,
            backend="scripted",
            isa="none",
            threads=1,
        )

    @property
    def chat_template(self) -> Any:
        if not self.has_chat_template:
            raise TemplateError("no chat template")
        return SimpleNamespace(render=lambda messages: " ".join(m["content"] for m in messages))

    def tokenize(self, text: str, **_: bool) -> list[str]:
        return text.split()

    def generate(self, prompt: Any, **keywords: Any) -> ScriptedGeneration:
        return self._start(prompt, len(str(prompt).split()), keywords)

    def chat(self, messages: list[dict[str, str]], **keywords: Any) -> ScriptedGeneration:
        return self._start([dict(m) for m in messages], sum(len(m["content"].split()) for m in messages), keywords)

    def _start(self, prompt: Any, n_tokens: int, keywords: dict[str, Any]) -> ScriptedGeneration:
        if n_tokens > self.n_ctx:
            raise ContextOverflowError(f"the prompt has {n_tokens} tokens, more than n_ctx={self.n_ctx}")
        self.asked.append(prompt)
        self.keywords.append(keywords)
        self.generations.append(ScriptedGeneration(self.script(prompt), n_tokens, self.finish_reason))
        return self.generations[-1]

    def __enter__(self) -> ScriptedModel:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True
