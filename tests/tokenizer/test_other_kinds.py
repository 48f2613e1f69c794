"""Vocabularies of single families: RWKV, PLaMo 2, DNA, characters of words."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgellm.errors import ModelFormatError, VocabularyError
from edgellm.tokenizer import load_tokenizer
from tests.support.vocabularies import NORMAL

_ACGT = "ACGTAC"


def test_rwkv_takes_the_longest_piece_over_bytes(rwkv):
    ids = rwkv.encode("helhello! hello\n\n\n中é'\"\\n")
    assert [rwkv.token_bytes(token).decode() for token in ids] == [
        "hel",
        "hello!",
        " hello",
        "\n\n",
        "\n",
        "中",
        "é",
        "'\"",
        "\\n",
    ]
    assert [rwkv.token_bytes(token) for token in rwkv.encode("文")] == [b"\xe6", b"\x96", b"\x87"]


@settings(deadline=None)
@given(st.text(st.sampled_from("hel o!us\n中é'\"\\n[PAD]3")))
def test_rwkv_is_greedy(rwkv, text):
    data = text.encode()
    by_bytes = {rwkv.token_bytes(token): token for token in range(1, rwkv.n_vocab - 1)}
    expected, place = [], 0
    while place < len(data):
        longest = max(end for end in range(place + 1, len(data) + 1) if data[place:end] in by_bytes)
        expected.append(by_bytes[data[place:longest]])
        place = longest
    assert rwkv.encode(text) == expected


def test_rwkv_names_ends_and_never_its_padding(rwkv):
    assert rwkv.eog_ids == {0, 257}
    assert not rwkv.add_bos
    assert rwkv.n_vocab - 1 not in rwkv.encode("[PAD300]")


def test_rwkv_without_a_byte(rwkv_metadata):
    metadata = rwkv_metadata()
    for key in ("tokens", "token_type"):
        del metadata[f"tokenizer.ggml.{key}"][1 + 0xE6]
    with pytest.raises(VocabularyError, match="文"):
        load_tokenizer(metadata).encode("文")
    metadata["tokenizer.ggml.unknown_token_id"] = 5
    assert load_tokenizer(metadata).encode("文")[0] == 5


@pytest.mark.parametrize(("escaped", "data"), [("\\", b"\\"), ("a\\", b"a\\"), ("\\x4", b"x4"), (r"\xzz", b"xzz")])
def test_rwkv_survives_odd_escapes(rwkv_metadata, escaped, data):
    tokenizer = load_tokenizer(rwkv_metadata(added=[(escaped, NORMAL)]))
    assert tokenizer.token_bytes(tokenizer.n_vocab - 1) == data
    assert tokenizer.decode(tokenizer.encode("hello x4")) == "hello x4"


def test_plamo_takes_the_cheapest_pieces(plamo, spell):
    assert spell(plamo, plamo.encode("hello user")) == ["hello", " user"]
    # Two pieces cost as much as one: the longest wins.
    assert spell(plamo, plamo.encode("ab")) == ["ab"]
    assert spell(plamo, plamo.encode("ba中")) == ["b", "a", "<0xE4>", "<0xB8>", "<0xAD>"]


@settings(deadline=None)
@given(st.text(st.sampled_from("helo usrab中é"), max_size=12))
def test_plamo_finds_the_least_cost(plamo, plamo_metadata, text):
    metadata = plamo_metadata()
    rows = zip(metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.scores"], strict=True)
    costs = {piece: -score for piece, score in rows if score < 0}
    least = [0.0]
    for end in range(1, len(text) + 1):
        pieces = (least[start] + costs[text[start:end]] for start in range(end) if text[start:end] in costs)
        least.append(min([least[-1] + 1000, *pieces]))
    ids = plamo.encode(text)
    in_bytes = b"".join(plamo.token_bytes(token) for token in ids if plamo.piece(token).startswith("<0x"))
    spelled = sum(costs.get(plamo.piece(token), 0) for token in ids)
    assert spelled + 1000 * len(in_bytes.decode()) == least[-1]


def test_plamo_drops_a_byte_order_mark(plamo):
    assert plamo.encode("\ufeffhello") == plamo.encode("hello")


@pytest.mark.parametrize("missing", ["scores", "<0x41>"])
def test_plamo_without_what_it_needs(plamo_metadata, missing):
    metadata = plamo_metadata(**({"scores": None} if missing == "scores" else {}))
    if missing != "scores":
        metadata["tokenizer.ggml.tokens"][metadata["tokenizer.ggml.tokens"].index(missing)] = "other"
    with pytest.raises(ModelFormatError, match=missing):
        load_tokenizer(metadata)


def test_dna_goes_by_sixes(dna, spell):
    assert spell(dna, dna.encode("ab<dna>acgtacGTcccccc</dna>hello<dna>CCCCCCN"))[1:] == [
        "<dna>",
        "ACGTAC\ue000",
        "<oov>",
        "<oov>",
        "</dna>",
        "hello",
        "<dna>",
        "CCCCCC\ue000",
        "<oov>",
    ]
    assert spell(dna, dna.encode("<dna>gt</dna>")) == ["<dna>", "GTAAAA\ue000", "</dna>"]
    assert dna.encode("<dna></dna>") == [dna.id_of("<dna>"), dna.id_of("</dna>")]


def test_dna_comes_back_and_does_not_mix_with_text(dna, bpe):
    assert dna.decode(dna.encode(f"x<dna>{_ACGT}</dna>")) == f"x<dna>{_ACGT}</dna>"
    assert dna.encode(_ACGT) == bpe.encode(_ACGT)


@pytest.mark.parametrize("kind", [3, 4])
def test_dna_tags_of_any_type_begin_dna(dna_metadata, dna, kind):
    metadata = dna_metadata()
    metadata["tokenizer.ggml.token_type"][metadata["tokenizer.ggml.tokens"].index("<dna>")] = kind
    assert load_tokenizer(metadata).encode(f"<dna>{_ACGT}") == dna.encode(f"<dna>{_ACGT}")


def test_without_tags_dna_is_text(dna_metadata, bpe):
    metadata = dna_metadata()
    metadata["tokenizer.ggml.tokens"][metadata["tokenizer.ggml.tokens"].index("<oov>")] = "other"
    assert load_tokenizer(metadata).encode("<dna>ab") == bpe.encode("<dna>ab")


def test_words_are_merged_in_characters(words, words_metadata, spell):
    assert spell(words, words.encode("你好 \n hello\u3000ab")) == ["你好", "he", "l", "l", "o", "a", "b"]
    assert words.encode("Hz") == [2, 2]
    lower = load_tokenizer(words_metadata(**{"normalizer.lowercase": True}))
    assert spell(lower, lower.encode("HELLO")) == ["he", "l", "l", "o"]
    named = load_tokenizer(words_metadata(model="gpt2"))
    assert named.encode("你好 he") == words.encode("你好 he")


def test_words_without_an_unknown_token(words_metadata):
    with pytest.raises(VocabularyError, match="xyz"):
        load_tokenizer(words_metadata(unknown_token_id=None)).encode("hello xyz")


@pytest.mark.parametrize(
    ("kind", "changes", "mask"),
    [
        ("bpe", {"pre": "jina-v2-de"}, "<mask>"),
        ("unigram", {"general.architecture": "nomic-bert-moe"}, "<mask>"),
        ("bpe", {"general.name": "Modern-BERT base"}, "[MASK]"),
    ],
)
def test_masks_of_some_models_swallow_the_space_before_them(request, kind, changes, mask):
    factory = request.getfixturevalue(f"{kind}_metadata")
    tokenizer = load_tokenizer(factory(added=[(mask, 3)], **changes))
    plain = load_tokenizer(factory(added=[(mask, 3)]))
    text = f"hello \n{mask} user"
    assert tokenizer.encode(text, parse_special=True) == plain.encode(f"hello{mask} user", parse_special=True)
    assert tokenizer.encode(text) == plain.encode(text)


def test_only_phi_3s_own_vocabulary_swallows_the_space_after_markers(bpe_metadata, bpe):
    phi_4 = load_tokenizer(bpe_metadata(**{"general.architecture": "phi3"}))
    text = "<|im_end|>\nhello"
    assert phi_4.encode(text, parse_special=True) == bpe.encode(text, parse_special=True)
    assert phi_4.decode(phi_4.encode(text, parse_special=True), skip_special=False) == text
