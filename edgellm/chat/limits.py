"""What one rendering may spend, and the meter that counts it.

No step of a rendering may run long before control returns to the meter, because a thread cannot be
stopped from outside. So every operation that can make a value larger than its inputs asks first
(`Budget.reserve`) and is charged afterwards, and every loop turn, call and filter counts as a step.
"""

import time
from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")

# Nested containers deeper than this overflow the C stack when hashed, and no conversation needs them.
MAX_NESTING = 100
MAX_INT_BITS = 4096
# Characters a template may build for each character or value it was given.
CHARS_PER_INPUT = 64
# The clock is a system call, so only every n-th step looks at it.
STEPS_PER_CLOCK = 64

_CONTAINERS = (list, tuple, dict, set, frozenset, KeysView, ValuesView, ItemsView)


class LimitError(Exception):
    """The template wants more than it may have."""


@dataclass(frozen=True)
class Limits:
    """Bounds of one rendering.

    `seconds` is processor time of the rendering thread, so a busy machine fails nobody. `chars` counts all
    text and list elements the template builds, in between as well as in the end; each rendering may build
    64 more per character of its messages, tools and variables. `source` is the length of the template itself.
    """

    seconds: float = 10.0
    steps: int = 5_000_000
    chars: int = 4_000_000
    depth: int = 64
    source: int = 256_000


class Budget:
    """The meter of one rendering."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._deadline = time.thread_time() + limits.seconds
        self._steps = limits.steps
        self._chars = limits.chars
        self._depth = 0
        # id -> (the container, kept alive so that the id stays its own; weight; nesting)
        self._seen: dict[int, tuple[object, int, int]] = {}

    def admit(self, variables: Mapping[str, object]) -> None:
        """Take what the caller passes in, free of charge, and allow output in proportion to it."""
        allowed, self._chars = self._chars, 2**62
        weight = sum(self.weigh(value) for value in variables.values())
        self._chars = allowed + CHARS_PER_INPUT * weight

    def tick(self) -> None:
        """Count one step."""
        self._steps -= 1
        if self._steps < 0:
            raise LimitError(f"the template took more than {self.limits.steps} steps")
        if self._steps % STEPS_PER_CLOCK == 0:
            self.check_clock()

    def check_clock(self) -> None:
        if time.thread_time() > self._deadline:
            raise LimitError(f"the template ran longer than {self.limits.seconds:g} seconds")

    def enter(self) -> None:
        """Go one call deeper."""
        self._depth += 1
        if self._depth > self.limits.depth:
            raise LimitError(f"the template's calls are nested deeper than {self.limits.depth}")

    def leave(self) -> None:
        self._depth -= 1

    def reserve(self, chars: int) -> None:
        """Refuse an operation that would build more than is left."""
        if chars > self._chars:
            raise LimitError(f"the template builds too much text: {chars} characters where {self._chars} are left")

    def charge(self, chars: int) -> None:
        """Pay for what was built."""
        self.reserve(chars)
        self._chars -= chars

    def metered(self, values: Iterable[T]) -> Iterator[T]:
        """The same values, each one a step."""
        for value in values:
            self.tick()
            yield value

    def built(self, value: T) -> T:
        """Pay for a new value and check its size; returns it."""
        if isinstance(value, str):
            self.charge(len(value))
        elif isinstance(value, int):
            if value.bit_length() > MAX_INT_BITS:
                raise LimitError(f"a number of the template has more than {MAX_INT_BITS} bits")
        elif isinstance(value, _CONTAINERS):
            self.reserve(self.weigh(value))
        return value

    def weigh(self, value: object) -> int:
        """About how many characters `str(value)` has; a value shared n times counts n times."""
        return self.measure(value)[0]

    def measure(self, value: Any) -> tuple[int, int]:
        """The weight of a value and how deep its containers are nested."""
        if isinstance(value, str):
            return len(value) + 2, 0
        if isinstance(value, int):
            return 6 + value.bit_length() // 3, 0
        if not isinstance(value, _CONTAINERS):
            return 32, 0
        known = self._seen.get(id(value))
        if known is not None:
            return known[1], known[2]
        # Paid before the walk: a walk must not be longer than what may still be built.
        self.charge(len(value))
        self.tick()
        weight, nesting = 2, 0
        members = (part for pair in value.items() for part in pair) if isinstance(value, dict) else iter(value)
        for member in members:
            more, deeper = self.measure(member)
            weight += more + 2
            nesting = max(nesting, deeper)
        nesting += 1
        if nesting > MAX_NESTING:
            raise LimitError(f"a value of the template is nested deeper than {MAX_NESTING}")
        self._seen[id(value)] = (value, weight, nesting)
        return weight, nesting
