"""How byte-level BPE cuts text into words before merging: one table from ``tokenizer.ggml.pre`` to a rule.

A rule's patterns apply one after the other: each cuts what the earlier ones left into matches and the text
between them. Syntax is that of Oniguruma, in which the models' own tokenizers state these patterns.
"""

from __future__ import annotations

from dataclasses import dataclass


def _char_class(ranges: str) -> str:
    """An Oniguruma character class from code points and ranges in hexadecimal, whatever an editor may normalize."""
    bounds = ("-".join(rf"\x{{{point}}}" for point in part.split("-")) for part in ranges.split())
    return f"[{''.join(bounds)}]"


_CONTRACTIONS = "'s|'t|'re|'ve|'m|'ll|'d"
_ANY_CASE_CONTRACTIONS = f"(?i:{_CONTRACTIONS})"
_GPT2 = _CONTRACTIONS + r"| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LINES_AND_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = (
    _ANY_CASE_CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + _LINES_AND_SPACES
)
_QWEN2 = _ANY_CASE_CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + _LINES_AND_SPACES
_QWEN35 = (
    _ANY_CASE_CONTRACTIONS
    + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|"
    + _LINES_AND_SPACES
)
# Letters that have case (Unicode 12).
_CASED_LETTERS = _char_class(
    "41-5A 61-7A B5 C0-D6 D8-F6 F8-1BA 1BC-1BF 1C4-293 295-2AF 370-373 376 377 37B-37D 37F 386 388-38A 38C 38E-3A1 "
    "3A3-3F5 3F7-481 48A-52F 531-556 10A0-10C5 13A0-13F5 13F8-13FD 1C90-1CBA 1CBD-1CBF 1D00-1D2B 1D6B-1D77 "
    "1D79-1D9A 1E00-1F15 1F18-1F1D 1F20-1F45 1F48-1F4D 1F50-1F57 1F59 1F5B 1F5D 1F5F-1F7D 1F80-1FB4 1FB6-1FBC 1FBE "
    "1FC2-1FC4 1FC6-1FCC 1FD0-1FD3 1FD6-1FDB 1FE0-1FEC 1FF2-1FF4 1FF6-1FFC 2102 2107 210A-2113 2115 2119-211D 2124 "
    "2126 2128 212A-212D 212F-2134 2139 213C-213F 2145-2149 214E 2183 2184 2C00-2C7B 2C7E-2CE4 2CEB-2CEE 2CF2 2CF3 "
    "A640-A66D A680-A69B A722-A76F A771-A787 A78B-A78E AB70-ABBF FB00-FB06 FB13-FB17 FF21-FF3A FF41-FF5A "
    "10400-1044F 104B0-104D3 104D8-104FB 10C80-10CB2 10CC0-10CF2 118A0-118DF 1E900-1E943"
)
_HAN_AND_HANGUL = _char_class("4E00-9FA5 800-4E00 AC00-D7FF")
_PUNCTUATION = _char_class("21-2F 3A-7E FF01-FF0F FF1A-FF5E 2018-201F 3000-3002")


@dataclass(frozen=True, slots=True)
class Rule:
    """One way to cut text into words.

    whole_words: a word that is a token is taken whole, even where merges would not build it.
    add_bos: BOS comes first, unless the file says otherwise.
    """

    patterns: tuple[str, ...]
    whole_words: bool = False
    add_bos: bool = False


_DEFAULT = Rule((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]"))
_GPT2_RULE = Rule((_GPT2,))
_DIGITS_RULE = Rule((r"\p{N}", _GPT2))
_LLAMA3_RULE = Rule((_LLAMA3,), whole_words=True, add_bos=True)
_QWEN2_RULE = Rule((_QWEN2,))

_ROWS: tuple[tuple[Rule, tuple[str, ...]], ...] = (
    (_DEFAULT, ("default",)),
    (
        _LLAMA3_RULE,
        ("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano"),
    ),
    (Rule((_LLAMA3,)), ("dbrx", "smaug-bpe", "glm4", "chatglm-bpe")),
    (
        _GPT2_RULE,
        ("gpt-2", "phi-2", "mpt", "olmo", "jais", "trillion", "granite-docling", "exaone4", "gigachat", "a.x-4.0"),
    ),
    (
        _GPT2_RULE,
        ("mellum", "modern-bert", "jina-es", "jina-de", "jina-v2-es", "jina-v2-de", "jina-v1-en", "jina-v2-code"),
    ),
    (_GPT2_RULE, ("roberta-bpe",)),
    (
        _DIGITS_RULE,
        ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"),
    ),
    (
        _QWEN2_RULE,
        ("qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "megrez", "stablelm2", "hunyuan", "solar-open", "grok-2"),
    ),
    (Rule((_QWEN35,)), ("qwen35",)),
    (Rule((r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, "[0-9][0-9][0-9]")), ("falcon",)),
    (
        Rule(
            (
                "[\r\n]",
                rf"\s?{_CASED_LETTERS}+",
                rf"\s?{_PUNCTUATION}+",
                r"(?<!\s)\s+$",  # the look-behind only keeps long runs of white space linear
                f"{_HAN_AND_HANGUL}+",
                r"\p{N}+",
            )
        ),
        ("deepseek-llm",),
    ),
    (
        Rule(("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", f"{_HAN_AND_HANGUL}+", r"\p{N}")),
        ("deepseek-coder",),
    ),
)

RULES: dict[str, Rule] = {name: rule for rule, names in _ROWS for name in names}
