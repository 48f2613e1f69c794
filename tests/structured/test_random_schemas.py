"""Whatever the schema and whatever the model likes, a complete text fits the schema."""

from __future__ import annotations

import json
import random
from typing import Any

import jsonschema
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st

from edgellm.errors import GrammarError
from edgellm.structured.schema import schema_grammar
from tests.structured.schemas import schemas
from tests.structured.toy import COMPILER, TABLE, legal

CLOSING = set(b'"}],:0123')
"""Tokens that bring a text nearer to its end."""


def written(schema: dict[str, Any], seed: int, most: int = 600) -> tuple[bytes, bool]:
    """A text of random legal tokens, and whether it is complete: it ends as soon as it may, half of the time."""
    constraint, rng, text = COMPILER.compile(schema_grammar(schema)), random.Random(seed), b""
    for _ in range(most):
        if constraint.finished or (constraint.complete and rng.random() < 0.5):
            return text, True
        allowed = [token for token in legal(constraint) if token not in TABLE.ends]
        nearer = [token for token in allowed if token in CLOSING]
        token = rng.choice(nearer if nearer and rng.random() < 0.5 else allowed)
        constraint.advance(token)
        text += TABLE.texts[token]
    return text, constraint.complete


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(schema=schemas(), seed=st.integers(0, 2**32))
def test_a_complete_text_fits_its_schema(schema, seed):
    try:
        COMPILER.compile(schema_grammar(schema))
    except GrammarError as error:
        event(f"refused: {str(error).split(':')[-1][:60]}")
        assume(False)
    for n in range(3):
        text, complete = written(schema, seed + n)
        if complete:
            value = json.loads(text)
            jsonschema.validate(value, schema, jsonschema.Draft202012Validator)
        event(f"complete: {complete}")
