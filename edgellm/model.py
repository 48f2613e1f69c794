"""`edgellm.Model`: a language model in a file, ready to write."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack, cast

from edgellm.arguments import choice, functions, integer, logprob_count, stop_strings, token_limit, token_list
from edgellm.backends.base import KV_TYPES
from edgellm.chatting import Turn, check_messages, prepare_turn
from edgellm.constraints import Constraints
from edgellm.embedding import Embedder
from edgellm.engine.generation import Generation
from edgellm.engine.limits import Overflow, fit
from edgellm.engine.machine import default_threads
from edgellm.engine.memory import parse_size
from edgellm.engine.request import Request
from edgellm.engine.scoring import KeepLogits, PromptLogprobs
from edgellm.errors import ArgumentError, CancelledError, ContextOverflowError, UnsupportedModelError
from edgellm.explain import Explanation, explain
from edgellm.keywords import ChatArguments, ChatKeywords, GenerateArguments, GenerateKeywords, accepts, settle
from edgellm.loading import Options, load
from edgellm.locate import locate
from edgellm.reply import Reply
from edgellm.sampling import Sampler
from edgellm.structured import wanted
from edgellm.textstream import TextStream
from edgellm.toolrun import ToolRun
from edgellm.vocabulary import Tokenizer

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from edgellm.backends.base import KVType
    from edgellm.chat import ChatTemplate
    from edgellm.info import ModelInfo
    from edgellm.sampling import Constraint

    TokenIds = Sequence[int] | npt.NDArray[np.integer[Any]]

_OVERFLOWS = ("error", "stop", "shift")


class Model:
    """A loaded model.  Usable from any thread and from asyncio; requests made at the same time share the work.

    A context manager; `close`, or losing the last reference, gives back all memory.  After a fork the child gets
    ClosedError from every call.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        n_ctx: int | None = None,
        threads: int | None = None,
        backend: Literal["auto", "native", "numba", "reference"] = "auto",
        kv_type: Literal["f16", "q8_0", "f32"] = "f16",
        n_batch: int = 512,
        overflow: Overflow = "error",
        max_memory: int | str | None = None,
    ) -> None:
        """Load a GGUF file, or a model of the catalog by name (fetched at the first use).

        n_ctx: the most tokens of one sequence, never more than the model was trained for.  None or 0: what it was
            trained for, or what half of the free memory holds.
        threads: None: the physical cores this process may use.  Can be changed later: `Model.threads`.
        backend: "auto" takes the fastest that works here.
        kv_type: how keys and values are kept: "q8_0" takes about half the memory of "f16" and is faster in long
            contexts, at a small loss of exactness.
        n_batch: the most tokens of one step; it changes speed and memory, never the results.  Encoders take a text in
            one step, so theirs is n_ctx at least.
        overflow: at the end of the context, "error" refuses longer prompts and ends longer texts; "stop" ends longer
            prompts too, with an empty text; "shift" drops the oldest tokens after the first 16, so that a text can
            go on for ever, and `Generation.dropped_tokens` counts them.
        max_memory: bytes, or text such as "3GB": the context, then the batch, are made to fit.

        Raises ModelNotFoundError, ModelFormatError, UnsupportedModelError, OutOfMemoryError, BackendError, and
        ArgumentError for arguments out of range.
        """
        options = Options(
            n_ctx=(None if n_ctx is None else integer("n_ctx", n_ctx, 0)) or None,
            n_batch=integer("n_batch", n_batch, 1, 65536),
            threads=_threads(threads),
            backend=backend,
            kv_type=cast("KVType", choice("kv_type", kv_type, KV_TYPES)),
            overflow=cast(Overflow, choice("overflow", overflow, _OVERFLOWS)),
            max_memory=parse_size(max_memory, "max_memory"),
        )
        loaded = load(locate(model), options)
        self._info = loaded.info
        self._prompts = loaded.prompts
        self._constraints = Constraints(loaded.prompts, loaded.info.n_vocab)
        self._engine = loaded.engine
        self._embedder = Embedder(loaded.engine, loaded.prompts, loaded.info)
        self._overflow = options.overflow
        self._finalizer = weakref.finalize(self, loaded.engine.close)
        self._finalizer.atexit = False  # the engine sees to that itself

    @property
    def info(self) -> ModelInfo:
        """Sizes, types, licence and memory of the model, and how it runs."""
        return replace(self._info, threads=self._engine.threads)

    @property
    def threads(self) -> int:
        """How many threads compute a step.

        May be set at any time, from any thread, to what the argument of this name may be; it counts from the next step
        on, also for texts that are being generated, and changes the speed, never the text.  Raises ArgumentError, and
        ClosedError.
        """
        return self._engine.threads

    @threads.setter
    def threads(self, threads: int | None) -> None:
        self._engine.threads = _threads(threads)

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer.  Raises VocabularyError if it has none."""
        return Tokenizer._of(self._prompts.tokenizer)

    @property
    def chat_template(self) -> ChatTemplate:
        """The template `chat` uses.  Raises TemplateError if the model has none and none would suit it."""
        return self._prompts.template

    @accepts(GenerateArguments)
    def generate(self, prompt: str | TokenIds, **keywords: Unpack[GenerateKeywords]) -> Generation:
        """Continue `prompt`; returns at once, the text comes from the `Generation`.

        prompt: text, which gets a BOS token if the model wants one, or token ids, which are taken as they are.
        max_tokens: None or -1: until the model ends the text or the context is full; more than fits is cut to what
            fits (`Generation.truncated`); 0 only reads the prompt, so that a later one that begins with it is quick.
        temperature … seed: see `edgellm.sampling.SamplingParams`.
        schema, regex, grammar, json, choices: at most one of them, which the text then follows without fail unless it
            ends by "length": a JSON Schema, pydantic model or Python type such as a dataclass; a regular expression; a
            grammar in Lark or GBNF; True for any JSON object; texts of which it is one.  `Generation.parsed` is the
            value; docs/structured.md has the details.
        stop: text that ends the generation and is left out; up to 64 of them.  The spelling of a control token
            stops at that token.
        logprobs, prompt_logprobs: report the log-probability of each chosen token, and of each token of the prompt, and
            so many of the likeliest tokens in its place (`Generation.logprobs`, `prompt_logprobs`), by the model's own
            logits, whatever the settings make of them.
        logits_processors: functions that take all ids so far and the logits (a copy, float32) and return new ones or
            None.  They run in the engine's thread, where everything waits for them.
        parse_special: let the prompt's text spell control tokens; a prompt that spells BOS first gets no other.

        Raises ArgumentError, GrammarError for a schema or grammar that cannot be used, ContextOverflowError for a
        prompt longer than the context, VocabularyError for text or stops with a model that has no vocabulary or ids
        outside of it, UnsupportedModelError for an encoder, and ClosedError.
        """
        self._check_continues()
        asked = settle(GenerateArguments, keywords)
        if isinstance(prompt, str):
            ids = self._prompts.encode(prompt, parse_special=asked.parse_special)
        else:
            ids = self._ids("prompt", prompt)
        grammar = wanted(asked.schema, asked.regex, asked.grammar, asked.json, asked.choices)
        if grammar is None:
            return Generation(self._request(ids, asked), self._engine, self)
        constraint = self._constraints.start(grammar, ids[-1])
        return Generation(self._request(ids, asked, constraint=constraint), self._engine, self, grammar.value)

    @accepts(ChatArguments)
    def chat(self, messages: Sequence[Mapping[str, Any]], **keywords: Unpack[ChatKeywords]) -> Reply:
        """Answer a conversation: mappings with "role" and "content", written out by the model's chat template.

        tools: what the model may call: functions with type annotations and a docstring, or JSON schemas.
        tool_choice: "auto", "required", "none", or the name of the tool to call, once.
        run_tools: call the functions the model asks for and let it go on, at most `max_tool_rounds` times; the result
            is a `ToolRun`.  Otherwise `Reply.tool_calls` says what to call.
        documents: texts to answer from, as the template defines them.
        continue_final_message: go on with the last message instead of beginning a new one.
        add_generation_prompt: begin the assistant's turn; None: unless the last message is continued.
        enable_thinking, reasoning_effort: for models that reason before they answer; others take no notice.
        template_args: further variables of the template, by name.
        chat_template: the text of a Jinja template to use in the place of the file's.
        reply_format: how the model writes reasoning and calls, if the template does not show it: a name of
            docs/tools.md, or "raw" for a text that is not taken apart.
        parse_special: let messages, tools and documents spell control tokens; otherwise they are taken as text.

        With ``overflow="shift"`` a conversation too long for the context loses its oldest turns whole; the system
        message stays.  For the other arguments and errors see `generate`; TemplateError comes from the template.
        """
        self._check_continues()
        asked = settle(ChatArguments, keywords)
        rounds = integer("max_tool_rounds", asked.max_tool_rounds, 1)
        if asked.run_tools:
            # What was demanded of the first round has been done with it.
            later = replace(asked, tool_choice=None, continue_final_message=False, add_generation_prompt=None)
            return ToolRun(
                lambda talk: self._turn(talk, asked if len(talk) == len(messages) else later),
                messages, self._engine, self, asked.functions(), rounds,
            )  # fmt: skip
        request, turn = self._turn(messages, asked)
        return Reply(request, self._engine, self, turn.parse, turn.parser)

    def _turn(self, messages: Sequence[Mapping[str, Any]], asked: ChatArguments) -> tuple[Request, Turn]:
        fitting = self._info.n_ctx if self._overflow == "shift" else None
        turn = prepare_turn(self._prompts, self._constraints, messages, asked, fitting)
        request = self._request(
            turn.prompt.ids, asked, constraint=turn.constraint, dropped=turn.prompt.dropped, spelled=turn.spelled
        )
        return request, turn

    @accepts(ChatArguments)
    def explain_prompt(self, messages: Sequence[Mapping[str, Any]], **keywords: Unpack[ChatKeywords]) -> Explanation:
        """Show the prompt that `chat` would make of the same arguments, token by token.

        ``print(model.explain_prompt(messages))`` shows ids, texts, and which message, or the template, each came from.
        Nothing is generated, and nothing left out where the prompt is too long.  Raises what `chat` raises.
        """
        self._engine.check_usable()
        options = settle(ChatArguments, keywords).options()
        check_messages(messages)
        return explain(self._prompts, messages, options)

    def _request(
        self,
        ids: list[int],
        asked: GenerateArguments,
        *,
        constraint: Constraint | None = None,
        dropped: int = 0,
        spelled: frozenset[int] = frozenset(),
    ) -> Request:
        """Return a request, submitted."""
        n_vocab = self._info.n_vocab
        scored = logprob_count("prompt_logprobs", asked.prompt_logprobs, n_vocab)
        limit = token_limit(asked.max_tokens)
        stops = stop_strings(asked.stop)
        fitted = fit(ids, limit, self._info.n_ctx, self._overflow)
        text, stop_ids = None, frozenset[int]()
        if self._prompts.has_vocabulary or stops:
            tokenizer = self._prompts.tokenizer
            after = ids[-1] if ids[-1] < tokenizer.n_vocab else None
            text = TextStream(tokenizer, after, stops, spelled)
            stop_ids = tokenizer.eog_ids | self._prompts.stop_ids(stops)
        breakers = self._prompts.breakers(asked.dry_breakers) if asked.breaks_repetition else ()
        request = Request(
            fitted.prompt,
            max_tokens=fitted.max_tokens,
            sampler=Sampler(
                asked, n_vocab, ids, constraint=constraint, breakers=breakers,
                processors=functions("logits_processors", asked.logits_processors),
            ),
            text=text,
            stop_ids=stop_ids,
            score=None if scored is None else PromptLogprobs(fitted.prompt, n_vocab, scored),
            top_logprobs=logprob_count("logprobs", asked.logprobs, n_vocab),
        )  # fmt: skip
        request.n_prompt = len(ids) + dropped
        request.dropped = dropped + fitted.dropped
        request.truncated = fitted.truncated
        if not fitted.prompt:  # a prompt too long for overflow="stop"
            request.finish("length")
        else:
            self._engine.submit(request)
        return request

    def tokenize(self, text: str, add_special: bool = True, parse_special: bool = False) -> list[int]:
        """Return the ids of `text`; see `edgellm.Tokenizer.encode`."""
        self._engine.check_usable()
        return self._prompts.tokenizer.encode(text, add_special, parse_special)

    def detokenize(self, ids: TokenIds) -> str:
        """Return the text of `ids`, control tokens left out.  Raises VocabularyError for an unknown id."""
        self._engine.check_usable()
        tokenizer = self._prompts.tokenizer
        return tokenizer.decode(token_list("ids", ids, tokenizer.n_vocab))

    def logits(self, ids: TokenIds) -> npt.NDArray[np.float32]:
        """Return the logits ``[len(ids), n_vocab]`` after each of `ids`, the first at position 0.

        Every row is computed, nothing comes from a cache, and the values do not depend on what else runs.  Raises
        ArgumentError for no ids, VocabularyError for unknown ones, ContextOverflowError for more than n_ctx,
        UnsupportedModelError for an encoder, CancelledError if the Model is closed meanwhile.
        """
        self._check_generates()
        tokens = self._ids("ids", ids)
        n_ctx = self._info.n_ctx
        if len(tokens) > n_ctx:
            raise ContextOverflowError(f"ids has {len(tokens)} tokens, the context holds {n_ctx}")
        score = KeepLogits(len(tokens), self._info.n_vocab)
        request = Request(tokens, max_tokens=0, sampler=None, score=score)
        self._engine.submit(request)
        try:
            request.events.get()
        finally:
            self._engine.cancel(request)
        if request.error is not None:
            raise request.error
        if request.finish_reason == "cancelled":
            raise CancelledError("the Model was closed while it computed logits")
        return score.rows

    def embed(
        self,
        texts: str | Iterable[str | TokenIds],
        normalize: bool = True,
        *,
        pooling: Literal["mean", "cls", "last"] | None = None,
    ) -> npt.NDArray[np.float32]:
        """Return the texts as vectors ``[len(texts), n_embd_out]``: one row each, a single text counts as one.

        texts: texts, encoded with the tokens at both ends that the model wants, or lists of token ids, taken as they
            are.  A text's vector does not depend on the others.
        normalize: make every vector of length 1, so that a product of two is the cosine of their angle.
        pooling: how the vectors of a text's tokens become one: their "mean", the first ("cls") or the "last".  None:
            as the file says, or the mean where it does not.

        Works with encoders and with models that generate: these give what they make their logits of.  A reranker
        (``info.pooling`` is "rank") returns its scores, never normalised.

        Raises ContextOverflowError for a text longer than n_ctx, whatever `overflow` is; ArgumentError for other
        values and texts without a token, VocabularyError, NumericalError, ClosedError, and CancelledError if the Model
        is closed meanwhile.
        """
        self._engine.check_usable()
        return self._embedder.embed(texts, normalize, pooling)

    def embed_tokens(self, text: str | TokenIds, normalize: bool = False) -> npt.NDArray[np.float32]:
        """Return a vector for each token of one text, ``[n_tokens, n_embd_out]``.  See `embed`."""
        self._engine.check_usable()
        return self._embedder.embed_tokens(text, normalize)

    def _check_generates(self) -> None:
        self._engine.check_usable()
        if not self._info.generates:
            raise UnsupportedModelError(
                f"{self._info.name} is an encoder ({self._info.architecture}): it turns texts into vectors and does "
                "not continue them; use embed()"
            )

    def _check_continues(self) -> None:
        self._check_generates()
        if not self._info.causal:
            raise UnsupportedModelError(
                f"{self._info.name} is a diffusion model ({self._info.architecture}): it fills in masked tokens in any "
                "order and does not continue texts; logits() and embed() work"
            )

    def _ids(self, name: str, value: object) -> list[int]:
        ids = token_list(name, value, self._info.n_vocab)
        if not ids:
            raise ArgumentError(f"{name} is empty: give at least one token id")
        return ids

    def close(self) -> None:
        """Cancel what is running and give back all memory.  May be called twice."""
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Model: {self._info.name}, {self._info.quantization}, n_ctx={self._info.n_ctx}>"


def _threads(value: object) -> int:
    return default_threads() if value is None else integer("threads", value, 1, 1024)
