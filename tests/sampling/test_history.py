from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from edgellm.sampling.history import TokenWindow


def counted(window: TokenWindow) -> dict[int, int]:
    ids, counts = window.counts()
    return dict(zip(ids.tolist(), counts.tolist(), strict=True))


@given(st.lists(st.integers(0, 200), max_size=500), st.sampled_from([-1, 0, 1, 2, 64, 1000]))
def test_counts_are_those_of_the_last_tokens(tokens: list[int], size: int) -> None:
    window = TokenWindow(size)
    for token in tokens:
        window.push(token)
    recent = tokens if size < 0 else tokens[max(0, len(tokens) - size) :]
    assert counted(window) == dict(Counter(recent))
