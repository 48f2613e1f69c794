from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgellm.sampling.repeats import Repeats

TOKENS = st.lists(st.integers(0, 3), max_size=60)


def lengthened(repeats: Repeats, shortest: int = 1) -> dict[int, int]:
    tokens, lengths = repeats.lengthened(shortest)
    return dict(zip(tokens.tolist(), lengths.tolist(), strict=True))


def definition(tokens: Sequence[int], size: int, breakers: Sequence[Sequence[int]], shortest: int) -> dict[int, int]:
    """Compare every earlier place with the end, token by token."""
    recent = tokens if size < 0 else tokens[max(0, len(tokens) - size) :]
    since = len(tokens)
    for breaker in breakers:
        for end in range(len(breaker), len(tokens) + 1):
            if tuple(tokens[end - len(breaker) : end]) == tuple(breaker):
                since = min(since, len(tokens) - end)
    found: dict[int, int] = {}
    for end in range(1, len(recent)):
        length = 0
        while length < min(end, since) and recent[end - 1 - length] == recent[-1 - length]:
            length += 1
        if length >= shortest and (recent[end],) not in map(tuple, breakers):
            found[recent[end]] = max(found.get(recent[end], 0), length)
    return found


@pytest.mark.parametrize(
    ("tokens", "size", "breakers", "expected"),
    [
        ([], -1, [], {}),
        ([1], -1, [], {}),
        ([1, 2, 3, 1, 2], -1, [], {3: 2}),
        ([1, 2, 3, 9, 2, 4, 1, 2], -1, [], {3: 2, 4: 1}),
        ([7, 7, 7, 7], -1, [], {7: 3}),
        ([1, 2, 3, 1, 2], 4, [], {3: 1}),
        ([1, 2, 3, 1, 2], 2, [], {}),
        ([5, 1, 2, 3, 5, 1, 2], -1, [[5]], {3: 2}),
        ([1, 5, 2, 3, 1, 5, 2], -1, [[5]], {3: 1}),
        ([1, 5, 6, 2, 3, 1, 5, 6, 2], -1, [[5, 6]], {3: 1}),
        ([1, 5, 6, 2, 3, 1, 5, 6, 2], -1, [[6, 5]], {3: 4}),
        ([1, 2, 3, 1, 2, 3], -1, [[3]], {}),
        ([1, 2, 5, 1, 2], -1, [[5]], {}),
        ([1, 2, 5, 6, 1, 2], -1, [[5, 6]], {5: 2}),
    ],
)
def test_known_histories(tokens: list[int], size: int, breakers: list[list[int]], expected: dict[int, int]) -> None:
    assert lengthened(Repeats(tokens, size, breakers)) == expected
    assert definition(tokens, size, breakers, 1) == expected


@given(
    TOKENS,
    TOKENS,
    st.integers(-1, 40),
    st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=3), max_size=2),
    st.integers(1, 4),
)
def test_every_history_agrees_with_the_definition_however_it_was_taken(
    prompt: list[int], pushed: list[int], size: int, breakers: list[list[int]], shortest: int
) -> None:
    repeats = Repeats(prompt, size, breakers)
    assert lengthened(repeats, shortest) == definition(prompt, size, breakers, shortest)
    for token in pushed:
        repeats.push(token)
    assert lengthened(repeats, shortest) == definition(prompt + pushed, size, breakers, shortest)


@pytest.mark.parametrize("size", [-1, 8, 100])
def test_long_histories_keep_only_what_counts(size: int) -> None:
    repeats = Repeats([], size)
    tokens = [i * i % 7 for i in range(400)]
    for token in tokens:
        repeats.push(token)
    assert lengthened(repeats) == definition(tokens, size, [], 1)
    assert size < 0 or repeats._ids.size <= max(64, 4 * size)


def test_a_long_prompt_of_one_token_is_taken_in_linear_time() -> None:
    assert lengthened(Repeats([4] * 100_000, -1)) == {4: 99_999}
