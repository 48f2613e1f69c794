"""`edgellm run` with a schema, a grammar, an expression or choices."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from tests.support.scripted import ScriptedModel

Install = Callable[..., ScriptedModel]
Invoke = Callable[..., Result]


@pytest.mark.parametrize(
    ("arguments", "keywords"),
    [
        (["--schema", '{"type": "integer"}'], {"schema": '{"type": "integer"}'}),
        (["--json"], {"json": True}),
        (["--regex", "[0-9]+"], {"regex": "[0-9]+"}),
        (["--choice", "yes", "--choice", "no"], {"choices": ["yes", "no"]}),
    ],
)
def test_options_become_the_arguments_of_the_model(install: Install, invoke: Invoke, arguments, keywords):
    model = install(["1"])
    assert invoke("run", *arguments, "x").exit_code == 0
    assert model.keywords == [{"max_tokens": 256, **keywords}]


def test_schemas_and_grammars_are_read_from_files(install: Install, invoke: Invoke, tmp_path: Path):
    model = install(["1"])
    (tmp_path / "s.json").write_text('{"const": "é"}', "utf-8")
    (tmp_path / "g.gbnf").write_text('root ::= "é"', "utf-8")
    assert invoke("run", "--schema", str(tmp_path / "s.json"), "--max-tokens", "9", "x").exit_code == 0
    assert invoke("run", "--chat", "--grammar", str(tmp_path / "g.gbnf"), "x").exit_code == 0
    assert model.keywords == [{"max_tokens": 9, "schema": '{"const": "é"}'}, {"grammar": 'root ::= "é"'}]


@pytest.mark.parametrize("option", ["--schema", "--grammar"])
def test_a_file_that_cannot_be_read_is_a_usage_error(install: Install, invoke: Invoke, tmp_path: Path, option: str):
    model = install(["1"])
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    for name, message in (("missing", "No such file"), ("binary", "is not UTF-8 text")):
        result = invoke("run", option, str(tmp_path / name), "x")
        assert result.exit_code == 2
        assert option in result.stderr
        assert message in result.stderr
    assert model.asked == []


def test_two_of_the_options_are_a_usage_error(install: Install, invoke: Invoke):
    model = install(["1"])
    result = invoke("run", "--json", "--choice", "a", "x")
    assert result.exit_code == 2
    assert "--json and --choice" in result.stderr
    assert model.asked == []


def test_a_text_cut_before_it_is_complete_is_shown_and_fails(install: Install, invoke: Invoke):
    install(['{"a'], finish_reason="length")
    result = invoke("run", "--json", "x")
    assert (result.exit_code, result.stdout) == (1, '{"a\n')
    assert "--max-tokens" in result.stderr


def test_a_text_without_a_schema_may_be_cut(install: Install, invoke: Invoke):
    install(["abc"], finish_reason="length")
    assert invoke("run", "x").exit_code == 0
