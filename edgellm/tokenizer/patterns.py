"""The regular expressions by which byte-level BPE vocabularies cut text into words.

Syntax is that of Oniguruma, in which the models' own tokenizers state them. Non-ASCII characters are written as code
points, whatever an editor may normalize.
"""

from __future__ import annotations


def _points(ranges: str) -> str:
    """The inside of a character class, from code points and ranges in hexadecimal."""
    bounds = ("-".join(rf"\x{{{point}}}" for point in part.split("-")) for part in ranges.split())
    return "".join(bounds)


_CONTRACTIONS = "'s|'t|'re|'ve|'m|'ll|'d"
_ANY_CASE_CONTRACTIONS = f"(?i:{_CONTRACTIONS})"
_LINES_AND_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_OPTIONAL_MARK = r"[^\r\n\p{L}\p{N}]?"


def _words(
    *,
    contractions: str = _ANY_CASE_CONTRACTIONS + "|",
    letters: str = r"\p{L}+",
    numbers: str = r"\p{N}",
    signs: str = r" ?[^\s\p{L}\p{N}]+[\r\n]*",
    spaces: str = _LINES_AND_SPACES,
) -> str:
    """The form most rules share; what is given replaces a part of Qwen 2's, the plainest."""
    return f"{contractions}{_OPTIONAL_MARK}{letters}|{numbers}|{signs}|{spaces}"


GPT_2 = _CONTRACTIONS + r"| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
QWEN_2 = _words()
LLAMA_3 = _words(numbers=r"\p{N}{1,3}")
QWEN_35 = _words(letters=r"[\p{L}\p{M}]+", signs=r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*")
WITHOUT_CONTRACTIONS = _words(contractions="")
MINICPM = _words(numbers=r"\p{N}+")
SEED_CODER = _words(signs=r" ?[^\s\p{L}\p{N}\r\n]+")
K2_HORIZON = _words(letters=rf"[\p{{L}}\p{{M}}{_points('200C 200D')}]+", numbers=r"\p{N}{1,3}")
BAILING = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
EXAONE_MOE = _words(
    letters=r"(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+",
    signs=r" ?[^\s\p{L}\p{N}]+[\r\n/]?",
    spaces=r"\s*[\r\n]|\s+(?!\S)|\s+",
)
JAIS_2 = _words(
    numbers=r"\p{N}{1,3}",
    spaces=r"\s*[\r\n]+|"
    + "|".join(rf"\s{{{n}}}(?!\S)" for n in ("512", "256", "128", "64", "32", "16", "8", "4", "1,2"))
    + r"|\s{1}",
)


def _cased_words(outside: str = "", endings: str = _ANY_CASE_CONTRACTIONS + "?", numbers: str = r"\p{N}{1,3}") -> str:
    """Words as capitals, then small letters. ``outside``: what is taken out of the classes of letters."""
    upper, lower = (
        rf"[\p{{Lu}}\p{{Lt}}\p{{Lm}}\p{{Lo}}\p{{M}}{outside}]",
        rf"[\p{{Ll}}\p{{Lm}}\p{{Lo}}\p{{M}}{outside}]",
    )
    return (
        f"{_OPTIONAL_MARK}{upper}*{lower}+{endings}|{_OPTIONAL_MARK}{upper}+{lower}*{endings}|{numbers}"
        rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_LINES_AND_SPACES}"
    )


GPT_4O = _cased_words()
TEKKEN = _cased_words(endings="", numbers=r"\p{N}")
YOUTU = _cased_words(numbers=r"\p{N}")
KIMI_2 = r"\p{Han}+|" + _cased_words(outside=r"&&[^\p{Han}]").replace(r"[\r\n/]*", r"[\r\n]*")

# Letters that have case (Unicode 12).
_CASED_LETTERS = _points(
    "41-5A 61-7A B5 C0-D6 D8-F6 F8-1BA 1BC-1BF 1C4-293 295-2AF 370-373 376 377 37B-37D 37F 386 388-38A 38C 38E-3A1 "
    "3A3-3F5 3F7-481 48A-52F 531-556 10A0-10C5 13A0-13F5 13F8-13FD 1C90-1CBA 1CBD-1CBF 1D00-1D2B 1D6B-1D77 "
    "1D79-1D9A 1E00-1F15 1F18-1F1D 1F20-1F45 1F48-1F4D 1F50-1F57 1F59 1F5B 1F5D 1F5F-1F7D 1F80-1FB4 1FB6-1FBC 1FBE "
    "1FC2-1FC4 1FC6-1FCC 1FD0-1FD3 1FD6-1FDB 1FE0-1FEC 1FF2-1FF4 1FF6-1FFC 2102 2107 210A-2113 2115 2119-211D 2124 "
    "2126 2128 212A-212D 212F-2134 2139 213C-213F 2145-2149 214E 2183 2184 2C00-2C7B 2C7E-2CE4 2CEB-2CEE 2CF2 2CF3 "
    "A640-A66D A680-A69B A722-A76F A771-A787 A78B-A78E AB70-ABBF FB00-FB06 FB13-FB17 FF21-FF3A FF41-FF5A "
    "10400-1044F 104B0-104D3 104D8-104FB 10C80-10CB2 10CC0-10CF2 118A0-118DF 1E900-1E943"
)
_HAN_AND_HANGUL = f"[{_points('4E00-9FA5 800-4E00 AC00-D7FF')}]+"
_WIDE_PUNCTUATION = _points("21-2F 3A-7E FF01-FF0F FF1A-FF5E 2018-201F 3000-3002")
DEEPSEEK_LLM = (
    "[\r\n]",
    rf"\s?[{_CASED_LETTERS}]+",
    rf"\s?[{_WIDE_PUNCTUATION}]+",
    r"(?<!\s)\s+$",  # the look-behind only keeps long runs of white space linear
    _HAN_AND_HANGUL,
    r"\p{N}+",
)
DEEPSEEK_CODER = ("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _HAN_AND_HANGUL, r"\p{N}")

_HAN_AND_KANA = f"[{_points('4E00-9FA5 3040-309F 30A0-30FF')}]+"
_ASCII_SIGN = r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]"""
_SIGN_WORDS = _ASCII_SIGN + r"[A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+"
_DEEPSEEK_WORDS = rf"{_SIGN_WORDS}[\r\n]*|{_LINES_AND_SPACES}"
DEEPSEEK_3 = (r"\p{N}{1,3}", _HAN_AND_KANA, _DEEPSEEK_WORDS)
SPARK = (r"\p{N}{1,3}", _HAN_AND_KANA, rf"{_SIGN_WORDS}|[\r\n]|\s+(?!\S)|\s+", r"\p{N}")

_YOUTU_SCRIPTS = "|".join(
    f"[{_points(points)}]+"
    for points in (
        "AC00-D7A3 3131-318E",
        "FF01 2026 201C 201D 2018 2019 2014 FF1A FF1B FF0C 3001-303F FE30-FE4F",
        "3105-312F",
        "4E00-9FA5 3040-309F 30A0-30FF",
    )
)
YOUTU_ALL = (_YOUTU_SCRIPTS, YOUTU)

_FALCON_SIGNS = r"[\p{P}\$\+<=>\^~\|`]+"
FALCON = (_FALCON_SIGNS, GPT_2, "[0-9][0-9][0-9]")
DEFAULT = (r"[\p{P}\$\+<=>\^~\|]+", GPT_2, r"\p{N}+", "[0-9][0-9][0-9]")
BLOOM = rf" ?[^(\s|.,!?{_points('2026 3002 FF0C 3001 964 6D4 60C')})]+"
CHAMELEON = (
    "<sentinel:[0-9]+>",
    "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
    r"([\t\n]|    |  )",
    r"\p{N}",
    r"[\p{P}!-/:-@\[-`{-~]",
    GPT_2,
)
NEWLINES_APART = r"[^\n]+|\n+"

# Digits in threes from the right. In a run that stands alone, first what is too many at its start.
_FIRST_DIGITS = r"\A\p{N}{1,2}(?=(?:\p{N}{3})+\z)"
_ASIAN_SCRIPTS = _points(
    "4E00-9FFF 3400-4DBF F900-FAFF 3040-309F 30A0-30FF FF65-FF9F 2F00-2FDF E40-E7F E80-EFF 1780-17FF 1000-109F "
    "AA60-AA7F A9E0-A9FF AC00-D7AF 1100-11FF"
)
AFMOE = (r"\p{N}+", _FIRST_DIGITS, r"\p{N}{3}", f"[{_ASIAN_SCRIPTS}]+", _DEEPSEEK_WORDS)
# The models' own expression looks ahead to the end of a run from each of its digits. Runs of 300 and more are cut
# before it, where it would cut them anyway, so that its cost stays linear.
_LONG_RUN_CUTS = (r"\A\d{1,2}(?=(?:\d{3})+\z)", r"\d{300}")
SUPERBPE = (r"\p{N}+", r"(?<!\d)\d{300,}", *_LONG_RUN_CUTS, r"(?=(\d{3})+(?!\d))")
TINY_AYA = (r"(?<!\d)\d{300,}\b", *_LONG_RUN_CUTS, r"\d{1,3}(?=(?:\d{3})*\b)", GPT_4O)
