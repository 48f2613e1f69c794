"""Where each named rule of byte-level BPE cuts text into words."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgellm.tokenizer import load_tokenizer
from edgellm.tokenizer.pretokenizers import RULES

BYTE_LEVEL = sorted(name for name, rule in RULES.items() if not rule.spaces_kept)
# One name for each rule that differs from the others.
DISTINCT = sorted({RULES[name]: name for name in BYTE_LEVEL}.values())

# The names llama.cpp knows, but "whitespace", which is a kind of its own here.
LLAMA_CPP = """
default minicpm5 llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano deepseek-llm
deepseek-coder deepseek-v3 spark2_5 youtu falcon mpt starcoder gpt-2 phi-2 jina-es jina-de gigachat jina-v2-es
jina-v2-de a.x-4.0 mellum modern-bert jais-2 gemma4 granite-embed-multi-311m sarvam-moe jina-v1-en jina-v2-code
roberta-bpe refact command-r qwen2 deepseek-r1-qwen kormo f2llmv2 qwen35 stablelm2 olmo dbrx smaug-bpe poro-chat glm4
chatglm-bpe viking jais tekken smollm codeshell bloom gpt3-finnish exaone exaone4 exaone-moe chameleon minerva-7b
megrez gpt-4o llama4 kanana2 talkie granite-embed-multi-97m tiny_aya cohere2moe superbpe trillion granite-docling
bailingmoe bailingmoe2 llada-moe seed-coder hunyuan hunyuan-dense hy_v4 joyai-llm kimi-k2 ufakzeka grok-2 afmoe laguna
minimax-m2 solar-open mellum2 k2-horizon mmbert
"""


def test_all_names_of_llama_cpp_are_known():
    assert set(LLAMA_CPP.split()) <= RULES.keys()


@pytest.fixture(scope="module")
def cut(bpe_metadata):
    """A function from a rule's name and a text to the words."""
    tokenizers = {}

    def words(pre, text):
        if pre not in tokenizers:
            tokenizers[pre] = load_tokenizer(bpe_metadata(pre=pre))
        splitter = tokenizers[pre]._splitter
        return [text[start:end] for _, (start, end) in splitter.pre_tokenize_str(text)]

    return words


@pytest.mark.parametrize(
    ("pre", "text", "expected"),
    [
        ("gpt-2", "3333+777", ["3333", "+", "777"]),
        ("llama-bpe", "3333+777", ["333", "3", "+", "777"]),
        ("qwen2", "501", ["5", "0", "1"]),
        ("smollm", " 501", [" ", "5", "0", "1"]),
        ("llama-bpe", "1234567", ["123", "456", "7"]),
        ("minicpm5", "12345", ["123", "45"]),
        ("default", "1234567", ["123", "456", "7"]),
        ("falcon", "a`1234", ["a", "`", "123", "4"]),
        ("viking", "a 123", ["a", " ", "1", "2", "3"]),
        ("bloom", "a 123", ["a", " 123"]),
        ("gpt-2", "3.14", ["3", ".", "14"]),
        ("gpt-2", "١٢٣٤", ["١٢٣٤"]),
        ("llama-bpe", "١٢٣٤", ["١٢٣", "٤"]),
        ("qwen2", "١٢", ["١", "٢"]),
        ("smollm", "١٢", ["١", "٢"]),
        *((pre, "x1234567,12", ["x", "1", "234", "567", ",", "12"]) for pre in ("afmoe", "tiny_aya")),
        ("superbpe", "x1234567,12", ["x", "1", "234", "567", ",", "12"]),
        ("afmoe", "1234ab", ["1", "234", "ab"]),
        ("superbpe", "1234ab", ["1", "234", "ab"]),
        ("tiny_aya", "1234ab", ["123", "4", "ab"]),
        ("superbpe", "½1234", ["½1", "234"]),
    ],
)
def test_digits(cut, pre, text, expected):
    assert cut(pre, text) == expected


@pytest.mark.parametrize("pre", ["afmoe", "tiny_aya", "superbpe"])
@pytest.mark.parametrize("n", [299, 300, 301, 302, 899, 900, 1000])
def test_long_runs_of_digits_are_cut_like_short_ones(cut, pre, n):
    lead = [n % 3] if n % 3 else []
    assert list(map(len, cut(pre, "7" * n))) == lead + [3] * (n // 3)
    assert list(map(len, cut(pre, f"a{'7' * n}."))) == [1, *lead, *[3] * (n // 3), 1]
    if pre == "tiny_aya":
        assert list(map(len, cut(pre, f"{'7' * n}a"))) == [*[3] * (n // 3), *lead, 1]


@pytest.mark.parametrize(
    ("pre", "text", "expected"),
    [
        ("default", "a+b's", ["a", "+", "b", "'", "s"]),
        ("llama-bpe", "I'M  ok\n\n x", ["I", "'M", " ", " ok", "\n\n", " x"]),
        ("gpt-2", "I'm  ok\n\n x", ["I", "'m", " ", " ok", "\n\n", " x"]),
        ("gpt-2", "I'M", ["I", "'", "M"]),
        ("qwen2", "it'sure", ["it", "'s", "ure"]),
        ("ufakzeka", "it'sure", ["it", "'sure"]),
        ("bailingmoe", "it'Sure", ["it", "'S", "ure"]),
        ("gpt-4o", "HelloWORLDs'll go", ["Hello", "WORLDs'll", " go"]),
        ("tekken", "HelloWORLDs'll go", ["Hello", "WORLDs", "'ll", " go"]),
        ("youtu", "HelloWORLD's 12", ["Hello", "WORLD's", " ", "1", "2"]),
        ("llama-bpe", "HelloWORLD", ["HelloWORLD"]),
        ("exaone-moe", "two words, three", ["two words", ",", " three"]),
        ("superbpe", "two words, three", ["two words, three"]),
        ("bloom", "a.b c(d", ["a", ".", "b", " c", "(", "d"]),
        ("chameleon", "a    bIMGIMGABZ!!", ["a", "    ", "b", "IMGIMGABZ", "!", "!"]),
        ("deepseek-v3", "_ab 日本x", ["_ab", " ", "日本", "x"]),
        ("deepseek-llm", "ab 日本x", ["ab", " ", "日本", "x"]),
        ("deepseek-coder", "ab, 日本x", ["ab", ",", " ", "日本", "x"]),
        ("kimi-k2", "go日本go É", ["go", "日本", "go", " É"]),
        ("qwen2", "go日本go", ["go日本go"]),
        ("youtu", "가나ab，。ㄅ", ["가나", "ab", "，。", "ㄅ"]),
        ("afmoe", "abเไ日本", ["ab", "เไ日本"]),
        ("qwen2", "नि", ["न", "ि"]),
        ("qwen35", "नि", ["नि"]),
        ("gpt-4o", "नि", ["नि"]),
        ("k2-horizon", "क\u200dष\u200c", ["क\u200dष\u200c"]),
        ("llama-bpe", "क\u200dष", ["क", "\u200dष"]),
    ],
)
def test_words_and_scripts(cut, pre, text, expected):
    assert cut(pre, text) == expected


@pytest.mark.parametrize(
    ("pre", "text", "expected"),
    [
        ("qwen2", "!!\n\n x", ["!!\n\n", " x"]),
        ("seed-coder", "!!\n\n x", ["!!", "\n\n", " x"]),
        ("gpt-4o", "!!/\n x", ["!!/\n", " x"]),
        ("kimi-k2", "!!\n/", ["!!\n", "/"]),
        ("exaone-moe", "!!\n\n x", ["!!\n", "\n", " x"]),
        ("laguna", "a!\n\nb", ["a", "!", "\n\n", "b"]),
        ("spark2_5", "!?\n\n1234", ["!?", "\n", "\n", "1", "2", "3", "4"]),
        ("deepseek-coder", "a\n\nb", ["a", "\n", "\n", "b"]),
        ("jais-2", "      x", ["    ", " ", " x"]),
        ("llama-bpe", "      x", ["     ", " x"]),
        ("chameleon", "a\t\tb", ["a", "\t", "\t", "b"]),
    ],
)
def test_lines_and_spaces(cut, pre, text, expected):
    assert cut(pre, text) == expected


@settings(deadline=None, max_examples=20)
@given(st.text())
@pytest.mark.parametrize("pre", DISTINCT)
def test_every_character_is_kept(cut, pre, text):
    assert "".join(cut(pre, text)) == text


@pytest.mark.parametrize("pre", BYTE_LEVEL)
def test_every_name_loads_and_gives_text_back(bpe_metadata, pre):
    tokenizer = load_tokenizer(bpe_metadata(pre=pre))
    assert tokenizer.warnings == ()
    text = "I'm 12345 ½ naïve\r\n\t  x_y!? 中文 हिन्दी 👩‍🚀 ΐ  "
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("pre", DISTINCT)
def test_long_texts_take_linear_time(cut, pre):
    start = time.process_time()
    for text in ("a" * 100_000, "7" * 100_000 + "a", " " * 100_000 + "a"):
        assert "".join(cut(pre, text)) == text
    assert time.process_time() - start < 10
