"""The keyword arguments of `generate` and `chat`: one list, and what a wrong name is told."""

from __future__ import annotations

import dataclasses
import inspect
from typing import get_type_hints

import pytest

import edgellm
from edgellm.keywords import OTHER_NAMES, ChatArguments, ChatKeywords, GenerateArguments, GenerateKeywords, settle
from edgellm.sampling import SamplingKeywords, SamplingParams


@pytest.mark.parametrize(
    ("keywords", "arguments"),
    [(SamplingKeywords, SamplingParams), (GenerateKeywords, GenerateArguments), (ChatKeywords, ChatArguments)],
)
def test_both_views_of_the_list_agree_in_names_and_types(keywords, arguments):
    fields = {field.name for field in dataclasses.fields(arguments)}
    assert get_type_hints(keywords) == {name: get_type_hints(arguments)[name] for name in fields}
    assert not keywords.__required_keys__


@pytest.mark.parametrize(
    ("method", "arguments"), [(edgellm.Model.generate, GenerateArguments), (edgellm.Model.chat, ChatArguments)]
)
def test_help_shows_every_argument_with_its_default(method, arguments):
    parameters = list(inspect.signature(method).parameters.values())[2:]
    assert [(p.name, p.default) for p in parameters] == [
        (field.name, field.default) for field in dataclasses.fields(arguments)
    ]
    assert all(p.kind is inspect.Parameter.KEYWORD_ONLY for p in parameters)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("temprature", "temperature"),
        ("max_token", "max_tokens"),
        ("topk", "top_k"),
        ("stops", "stop"),
        *OTHER_NAMES.items(),
    ],
)
def test_a_wrong_name_is_told_the_right_one(name, meant):
    with pytest.raises(TypeError, match=rf"^there is no argument {name}: did you mean {meant}\?$"):
        settle(GenerateArguments, {name: 1})


def test_a_name_like_no_other_is_told_all_of_them():
    with pytest.raises(TypeError, match=r"no argument zzz: there are .*max_tokens.*temperature"):
        settle(GenerateArguments, {"zzz": 1})


def test_what_was_given_is_kept_and_the_rest_has_defaults():
    asked = settle(GenerateArguments, {"max_tokens": 5, "top_k": 3})
    assert (asked.max_tokens, asked.top_k, asked.temperature, asked.stop) == (5, 3, 0.8, None)
