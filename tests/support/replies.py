"""Replies as models of each format write them: name → (format, text, (reasoning, content, calls))."""

from __future__ import annotations

from typing import Any

TEXT = {"type": "string"}
SCHEMAS = {
    "f": {"properties": {"s": TEXT, "n": {"type": "integer"}, "l": {"type": "array"}, "o": {"type": "object"}}},
    "g": {},
}
F = '{"s": "a \\"b\\"\\nc", "n": 1}'
F_VALUE = {"s": 'a "b"\nc', "n": 1}

Result = tuple[str, str, list[tuple[str, Any, str | None]]]

SAMPLES: dict[str, tuple[str, str, Result]] = {
    "plain": ("hermes", " Hello, <b>you</b>.\n\n", ("", " Hello, <b>you</b>.\n\n", [])),
    "hermes": (
        "hermes",
        f'Let me see.\n<tool_call>\n{{"name": "f", "arguments": {F}}}\n</tool_call>\n'
        '<tool_call>\n{"arguments": {}, "name": "g"}\n</tool_call>',
        ("", "Let me see.", [("f", F_VALUE, None), ("g", {}, None)]),
    ),
    "hermes, thinking": (
        "hermes",
        '<think>\nI could\n\ncall g.\n</think>\n\n<tool_call>{"name": "g"}</tool_call> Done.',
        ("I could\n\ncall g.", "Done.", [("g", {}, None)]),
    ),
    "hermes, unclosed": (
        "hermes",
        '<tool_call>{"name": "g", "arguments": {}}\n<tool_call>{"name": "g", "arguments": null}',
        ("", "", [("g", {}, None), ("g", {}, None)]),
    ),
    "hermes, arguments in a string": (
        "hermes",
        '<tool_call>{"id": "x", "name": "f", "arguments": "{\\"n\\": 2}"}</tool_call>',
        ("", "", [("f", {"n": 2}, None)]),
    ),
    "hermes, a brace missing": (
        "hermes",
        '<tool_call>\n{"name": "f", "arguments": {"n": 2}\n</tool_call>',
        ("", "", [("f", {"n": 2}, None)]),
    ),
    "hermes, only talked about": (
        "hermes",
        'Write <tool_call> before {"a": 1}, and </tool_call> after it.',
        ("", 'Write <tool_call> before {"a": 1}, and </tool_call> after it.', []),
    ),
    "hermes, cut off": (
        "hermes",
        'Hm.<tool_call>{"name": "f", "arguments": {"s": "abc',
        ("", "Hm.", [("f", {}, "the call was cut off")]),
    ),
    "qwen-coder": (
        "qwen-coder",
        'Yes.\n\n<tool_call>\n<function=f>\n<parameter=s>\na "b"\nc\n</parameter>\n<parameter=n>\n1\n</parameter>\n'
        '<parameter=l>\n[1, "x"]\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=g>\n</function>\n'
        "</tool_call>",
        ("", "Yes.", [("f", {**F_VALUE, "l": [1, "x"]}, None), ("g", {}, None)]),
    ),
    "qwen-coder, unknown parameters": (
        "qwen-coder",
        "<function=h><parameter=a>3</parameter><parameter=b>x y</parameter><parameter=c>true</parameter></function>",
        ("", "", [("h", {"a": 3, "b": "x y", "c": True}, None)]),
    ),
    "seed": (
        "qwen-coder",
        "<seed:tool_call>\n<function=f>\n<parameter=s>3</parameter>\n<parameter=o>{'a': None}</parameter>\n"
        "</function>\n</seed:tool_call>",
        ("", "", [("f", {"s": "3", "o": {"a": None}}, None)]),
    ),
    "glm": (
        "glm",
        "\n<think>so</think>\nOk<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>x\ny</arg_value>\n<arg_key>n</arg_key>"
        "\n<arg_value>5</arg_value>\n</tool_call>\n<tool_call>g\n</tool_call>",
        ("so", "Ok", [("f", {"s": "x\ny", "n": 5}, None), ("g", {}, None)]),
    ),
    "minimax-m2": (
        "minimax-m2",
        '<minimax:tool_call>\n<invoke name="f">\n<parameter name="s">1</parameter>\n</invoke>\n<invoke name="g">\n'
        "</invoke>\n</minimax:tool_call>",
        ("", "", [("f", {"s": "1"}, None), ("g", {}, None)]),
    ),
    "minicpm": (
        "minicpm",
        '<function name="f"><param name="s"><![CDATA[<a> & "b"]]></param><param name="n">7</param></function>',
        ("", "", [("f", {"s": '<a> & "b"', "n": 7}, None)]),
    ),
    "deepseek-dsml": (
        "deepseek-dsml",
        'Ok\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name="f">\n<｜DSML｜parameter name="s" string="true">1'
        '</｜DSML｜parameter>\n<｜DSML｜parameter name="l" string="false">[1]</｜DSML｜parameter>\n</｜DSML｜invoke>\n'
        "</｜DSML｜function_calls>",
        ("", "Ok", [("f", {"s": "1", "l": [1]}, None)]),
    ),
    "kimi-k3": (
        "kimi-k3",
        '<|open|>tools<|sep|><|open|>call tool="f" index="1"<|sep|><|open|>argument key="s" type="string"<|sep|>3'
        "<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>",
        ("", "", [("f", {"s": "3"}, None)]),
    ),
    "kimi-k2": (
        "kimi-k2",
        "Hm<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>"
        + F
        + "<|tool_call_end|><|tool_call_begin|>functions.g:1<|tool_call_argument_begin|>{}<|tool_call_end|>"
        "<|tool_calls_section_end|>",
        ("", "Hm", [("f", F_VALUE, None), ("g", {}, None)]),
    ),
    "deepseek-r1": (
        "deepseek",
        "<think>\nI\n</think>\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n"
        + F
        + "\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n{}\n```<｜tool▁call▁end｜>"
        "<｜tool▁calls▁end｜>",
        ("I", "", [("f", F_VALUE, None), ("g", {}, None)]),
    ),
    "deepseek-v3.1": (
        "deepseek",
        "Sure.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>"
        + F
        + "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        ("", "Sure.", [("f", F_VALUE, None)]),
    ),
    "mistral, a list": (
        "mistral",
        '[TOOL_CALLS][{"name": "f", "arguments": ' + F + ', "id": "abc"}, {"name": "g", "arguments": {}}]',
        ("", "", [("f", F_VALUE, None), ("g", {}, None)]),
    ),
    "mistral, with ids": (
        "mistral",
        "Ok[TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]" + F + "[TOOL_CALLS]g[ARGS]{}",
        ("", "Ok", [("f", F_VALUE, None), ("g", {}, None)]),
    ),
    "llama, json": (
        "llama",
        '{"name": "f", "parameters": ' + F + "}",
        ("", "", [("f", F_VALUE, None)]),
    ),
    "llama, several": (
        "llama",
        '{"type": "function", "name": "f", "parameters": {"n": 1}}; {"type": "function", "function": '
        '{"name": "g", "parameters": {}}}',
        ("", "", [("f", {"n": 1}, None), ("g", {}, None)]),
    ),
    "llama, json that is the answer": ("llama", ' {"a": [1, 2]} is JSON', ("", ' {"a": [1, 2]} is JSON', [])),
    "llama, python": (
        "llama",
        "[f(s='a, b)', n=-1, l=[1, {'x': None}], o={\"y\": true}), g()]",
        ("", "", [("f", {"s": "a, b)", "n": -1, "l": [1, {"x": None}], "o": {"y": True}}, None), ("g", {}, None)]),
    ),
    "llama, a list that is the answer": ("llama", "[1, 2] and [f(x)]", ("", "[1, 2] and [f(x)]", [])),
    "llama, tag": (
        "llama",
        '<|python_tag|>{"name": "f", "parameters": {"n": 1}}',
        ("", "", [("f", {"n": 1}, None)]),
    ),
    "llama, built-in": (
        "llama",
        '<|python_tag|>brave_search.call(query="a b")',
        ("", "", [("brave_search", {"query": "a b"}, None)]),
    ),
    "functionary": (
        "functionary",
        "Hi<function=f>" + F + "</function><function=g>{}</function>",
        ("", "Hi", [("f", F_VALUE, None), ("g", {}, None)]),
    ),
    "functionary-v3.2": (
        "functionary-v3.2",
        ">>>all\nHi>>>f\n" + F + ">>>g\n{}",
        ("", "Hi", [("f", F_VALUE, None), ("g", {}, None)]),
    ),
    "granite": (
        "granite",
        '<|tool_call|>[{"name": "f", "arguments": {"n": 1}}, {"name": "g", "arguments": {}}]',
        ("", "", [("f", {"n": 1}, None), ("g", {}, None)]),
    ),
    "lfm2": (
        "lfm2",
        "<|tool_call_start|>[f(s='x', n=1), g()]<|tool_call_end|>Calling.",
        ("", "Calling.", [("f", {"s": "x", "n": 1}, None), ("g", {}, None)]),
    ),
    "lfm2, json": (
        "lfm2",
        '<|tool_call_start|>[{"name": "f", "arguments": {"n": 1}}]<|tool_call_end|>',
        ("", "", [("f", {"n": 1}, None)]),
    ),
    "nemotron": (
        "nemotron",
        '<TOOLCALL>[{"name": "f", "arguments": {"n": 1}}]</TOOLCALL>',
        ("", "", [("f", {"n": 1}, None)]),
    ),
    "command-r": (
        "command-r",
        '<|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "f", "parameters": {"n": 1}},\n'
        '    {"tool_call_id": "1", "tool_name": "g", "parameters": {}}\n]<|END_ACTION|>',
        ("", "", [("f", {"n": 1}, None), ("g", {}, None)]),
    ),
    "apertus": (
        "apertus",
        '<|tools_prefix|>[{"f": {"n": 1}}, {"g": {}}]<|tools_suffix|>',
        ("", "", [("f", {"n": 1}, None), ("g", {}, None)]),
    ),
    "gigachat": (
        "gigachat",
        'Ok<|function_call|>{"name": "f", "arguments": {"n": 1}}',
        ("", "Ok", [("f", {"n": 1}, None)]),
    ),
    "functools": ("functools", ' functools[{"name": "f", "arguments": {"n": 1}}]', ("", "", [("f", {"n": 1}, None)])),
    "solar": (
        "solar",
        "<|tool_calls|><|tool_call:begin|>abc<|tool_call:name|>f<|tool_call:args|>" + F + "<|tool_call:end|>",
        ("", "", [("f", F_VALUE, None)]),
    ),
    "gemma 3": (
        "gemma",
        "<start_function_call>call:f{s:<escape>a, {b}<escape>,n:2}<end_function_call>",
        ("", "", [("f", {"s": "a, {b}", "n": 2}, None)]),
    ),
    "gemma 4": (
        "gemma",
        '<|tool_call>call:f{l:[<|"|>p<|"|>,1.5],o:{x:true,y:None},s:<|"|>x "q"\n<|"|>}<tool_call|><|tool_call>call:g{}'
        "<tool_call|>Hi",
        ("", "Hi", [("f", {"l": ["p", 1.5], "o": {"x": True, "y": None}, "s": 'x "q"\n'}, None), ("g", {}, None)]),
    ),
    "harmony": (
        "harmony",
        "<|channel|>analysis<|message|>Think.<|end|><|start|>assistant<|channel|>commentary<|message|>Look:<|end|>"
        "<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>" + F,
        ("Think.", "Look:", [("f", F_VALUE, None)]),
    ),
    "harmony, final": (
        "harmony",
        "<|channel|>analysis<|message|>A<|end|><|start|>assistant<|channel|>analysis<|message|>B<|end|><|start|>"
        "assistant<|channel|>final<|message|>Hello <b>\n",
        ("A\n\nB", "Hello <b>\n", []),
    ),
    "harmony, recipient first": (
        "harmony",
        " to=functions.g<|channel|>commentary json<|message|>{}<|call|>",
        ("", "", [("g", {}, None)]),
    ),
    "harmony, without headers": ("harmony", "Hello.", ("", "Hello.", [])),
}
