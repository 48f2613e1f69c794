"""Which tokens mean something: beginning, end, padding, and everything that ends a generation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edgellm.tokenizer.fields import Fields
from edgellm.tokenizer.vocabulary import TokenType, Vocabulary

# Spellings that end a turn in some model family and that no one writes by accident: they count, and are
# control tokens, whatever type the file gives them.
_END_OF_TURN = (
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<｜end▁of▁sentence｜>",
    "<end_of_utterance>",
)
_END_OF_MESSAGE = ("<|eom_id|>",)
_OTHER_ENDS = ("<|return|>", "<|call|>", "<|calls|>", "<|flush|>", "<|tool_response>", "<turn|>")

# Spellings that are also ordinary text or markup in other vocabularies (Gemma has </s> among its HTML tags):
# they count only where the file says that they are control tokens.
_END_OF_TURN_IF_CONTROL = ("<EOT>", "_<EOT>", "[EOT]")
_ENDS_IF_CONTROL = (
    "</s>",
    "<eos>",
    "[EOS]",
    "[e~[",
    "<|fim_pad|>",
    "<fim-pad>",
    "<fim_pad>",
    "<|fim_repo|>",
    "<fim-repo>",
    "<|repo_name|>",
    "<reponame>",
    "<REPO>",
    "<|file_sep|>",
)


@dataclass(frozen=True, slots=True)
class Specials:
    """Ids with a role (None: the model has none) and whether encode adds the first and the last of them."""

    bos: int | None
    eos: int | None
    eot: int | None
    eom: int | None
    pad: int | None
    unk: int | None
    sep: int | None
    mask: int | None
    eog: frozenset[int]
    add_bos: bool
    add_eos: bool


def read_specials(
    fields: Fields,
    vocabulary: Vocabulary,
    *,
    add_bos: bool,
    add_eos: bool = False,
    defaults: Mapping[str, tuple[int, bytes]],
) -> Specials:
    """Read the special ids, find the ones known only by their spelling, and correct the types of those.

    add_bos, add_eos: the rules for files that do not say.
    defaults: role → (id, piece) used when the file names no id and that token has that text.

    Raises:
        ModelFormatError: an id or a flag has the wrong type.
    """

    def read(role: str, *keys: str) -> int | None:
        tokens = (fields.token_id(key, len(vocabulary)) for key in keys)
        token = next((token for token in tokens if token is not None), None)
        if token is None and role in defaults:
            usual, piece = defaults[role]
            if usual < len(vocabulary) and vocabulary.piece(usual) == piece:
                return usual
        return token

    bos, eos = read("bos", "bos_token_id", "cls_token_id"), read("eos", "eos_token_id")
    unk, pad = read("unk", "unknown_token_id"), read("pad", "padding_token_id")
    # The format's own key is misspelled.
    sep, mask = read("sep", "seperator_token_id", "separator_token_id"), read("mask", "mask_token_id")
    if "token_type" not in fields:
        _mark_spelled_as_markers(vocabulary, (bos, eos, pad, sep, mask))
    spelled = _find_spelled(vocabulary)
    eot = fields.token_id("eot_token_id", len(vocabulary))
    if eot is None:
        eot = _first(spelled, (*_END_OF_TURN, *_END_OF_TURN_IF_CONTROL))
    eom = fields.token_id("eom_token_id", len(vocabulary))
    if eom is None:
        eom = _first(spelled, _END_OF_MESSAGE)
    ends = {token for token in (eos, eot, eom) if token is not None}
    ends.update(spelled.values())
    if _ends_channels_not_turns(spelled):
        ends.discard(spelled["<|end|>"])
    if unk == bos or unk in ends:
        # GPT-2's heirs name their only special token: what nobody can spell would begin or end a text in its middle.
        unk = None

    return Specials(
        bos=bos,
        eos=eos,
        eot=eot,
        eom=eom,
        pad=pad,
        unk=unk,
        sep=sep,
        mask=mask,
        eog=frozenset(ends),
        add_bos=_adds(fields, "add_bos_token", "bos_token_id", bos, add_bos),
        add_eos=_adds(fields, "add_eos_token", "eos_token_id", eos, add_eos),
    )


def _adds(fields: Fields, flag: str, key: str, token: int | None, default: bool) -> bool:
    wanted = fields.flag(flag, default)
    if wanted and token is None:
        if flag in fields:
            fields.warn(flag, f"is true, but there is no usable {key}; nothing will be added")
        return False
    return wanted


def _first(spelled: dict[str, int], names: tuple[str, ...]) -> int | None:
    return next((spelled[name] for name in names if name in spelled), None)


def _ends_channels_not_turns(spelled: dict[str, int]) -> bool:
    """Models with several channels per turn close each with <|end|> and the turn with something else."""
    if "<|end|>" not in spelled:
        return False
    return {"<|return|>", "<|call|>"} <= spelled.keys() or {"<|flush|>", "<|calls|>"} <= spelled.keys()


def _mark_spelled_as_markers(vocabulary: Vocabulary, tokens: tuple[int | None, ...]) -> None:
    for token in tokens:
        if token is not None:
            piece = vocabulary.piece(token)
            if len(piece) > 2 and piece[:1] + piece[-1:] in (b"<>", b"[]"):
                vocabulary.set_type(token, TokenType.CONTROL)


def _find_spelled(vocabulary: Vocabulary) -> dict[str, int]:
    """Ends known by their spelling, by name. The unmistakable ones become control tokens."""
    marked = _ids_starting_with(vocabulary, b"<[_")
    control = np.array(vocabulary.ids_of_type(TokenType.CONTROL), np.int64)
    found: dict[str, int] = {}
    for name in (*_END_OF_TURN, *_END_OF_MESSAGE, *_OTHER_ENDS):
        token = vocabulary.find(name.encode(), among=marked)
        if token is not None:
            vocabulary.set_type(token, TokenType.CONTROL)
            found[name] = token
    for name in (*_END_OF_TURN_IF_CONTROL, *_ENDS_IF_CONTROL):
        token = vocabulary.find(name.encode(), among=control)
        if token is not None:
            found[name] = token
    return found


def _ids_starting_with(vocabulary: Vocabulary, first_bytes: bytes) -> npt.NDArray[np.int64]:
    filled = np.flatnonzero(vocabulary.lengths)
    first = np.frombuffer(vocabulary.blob, np.uint8)[vocabulary.offsets[filled]]
    return filled[np.isin(first, np.frombuffer(first_bytes, np.uint8))]
