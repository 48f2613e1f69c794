"""Size checks for the string methods and filters a template may use.

Each guard gets the arguments of the operation, refuses it if the result would be too large (or the
work out of proportion), and returns the arguments to use.
"""

import json
import re
from collections.abc import Callable, Sized
from typing import Any

from edgellm.chat.limits import Budget, LimitError

Args = tuple[Any, ...]
Guard = Callable[[Budget, Args, dict[str, Any]], Args]

# Searching backwards and stripping cost (length of text) x (length of pattern) in the worst case.
MAX_SEARCH = 200_000_000
# Widths, precisions and indents of more digits than this have no use in a prompt.
MAX_WIDTH = 999
MAX_COUNT = 100_000
# `&` becomes `&amp;`, `"` becomes `&#34;`.
ESCAPE_GROWTH = 5

_PRINTF = re.compile(r"%(?:\([^)]*\))?[#0\- +]*(\*|\d+)?(?:\.(\*|\d+))?")


def width_of(value: object) -> int:
    """A width, precision or count given by the template, checked."""
    if isinstance(value, (str, tuple, list)):
        return len(value)
    if not isinstance(value, int) or abs(value) > MAX_WIDTH:
        raise LimitError(f"a width or precision must be a whole number of at most {MAX_WIDTH}, not {value!r:.40}")
    return abs(value)


def check_format_spec(spec: str) -> None:
    """Refuse a `str.format` specification with a huge width or precision."""
    for digits in re.findall(r"\d+", spec):
        width_of(int(digits) if len(digits) < 9 else None)


def check_printf(budget: Budget, text: str, args: object) -> None:
    """Refuse a `%` formatting whose result would be too large."""
    size = len(text)
    weight = budget.weigh(args)
    named = isinstance(args, dict)
    for width, precision in _PRINTF.findall(text):
        for digits in (width, precision):
            if digits:
                size += width_of(int(digits) if digits != "*" and len(digits) < 9 else None)
        size += weight if named else 0
    budget.reserve(size + weight)


def _padded(budget: Budget, args: Args, kwargs: dict[str, Any]) -> Args:
    text, *rest = args
    width = rest[0] if rest else kwargs.get("width", 80)
    budget.reserve(max(budget.weigh(text), width if isinstance(width, int) else 0))
    return args


def _replaced(budget: Budget, args: Args, kwargs: dict[str, Any]) -> Args:
    text, *rest = args
    old, new = (rest + [kwargs.get("old", ""), kwargs.get("new", "")][len(rest) :])[:2]
    size = budget.weigh(text)
    if isinstance(text, str) and isinstance(old, str):
        found = text.count(old)
    else:
        found = size
    budget.reserve(size + found * budget.weigh(new) * (ESCAPE_GROWTH if hasattr(text, "__html__") else 1))
    return args


def _joined(budget: Budget, args: Args, kwargs: dict[str, Any], values_at: int, separator: object) -> Args:
    values = args[values_at]
    if not isinstance(values, Sized):
        values = list(budget.metered(values))
    growth = ESCAPE_GROWTH if hasattr(separator, "__html__") else 1
    budget.reserve((budget.weigh(list(values)) + len(values) * budget.weigh(separator)) * growth)
    return (*args[:values_at], values, *args[values_at + 1 :])


def _join_method(budget: Budget, args: Args, kwargs: dict[str, Any]) -> Args:
    return _joined(budget, args, kwargs, 1, args[0]) if len(args) == 2 else args


def _join_filter(budget: Budget, args: Args, kwargs: dict[str, Any]) -> Args:
    return _joined(budget, args, kwargs, 0, args[1] if len(args) > 1 else kwargs.get("d", ""))


def _searched(budget: Budget, args: Args, kwargs: dict[str, Any]) -> Args:
    text, *rest = args
    patterns = [value for value in [*rest, *kwargs.values()] if isinstance(value, str)]
    if patterns and isinstance(text, str) and len(text) * max(map(len, patterns)) > MAX_SEARCH:
        raise LimitError(f"the template searches {len(text)} characters for too long a text")
    return _text(budget, args, kwargs)


def _text(budget: Budget, args: Args, kwargs: dict[str, Any]) -> Args:
    budget.reserve(budget.weigh(args[0]))
    return args


def _escaped(budget: Budget, args: Args, kwargs: dict[str, Any]) -> Args:
    budget.reserve(ESCAPE_GROWTH * budget.weigh(args[0]))
    return args


def _indented(budget: Budget, args: Args, kwargs: dict[str, Any]) -> Args:
    text, *rest = args
    width = width_of(rest[0] if rest else kwargs.get("width", 4))
    lines = text.count("\n") + 1 if isinstance(text, str) else budget.weigh(text)
    budget.reserve(budget.weigh(text) + lines * width)
    return args


def _counted(budget: Budget, args: Args, kwargs: dict[str, Any]) -> Args:
    for count in [*args[1:2], *kwargs.values()]:
        if isinstance(count, int) and count > MAX_COUNT:
            raise LimitError(f"the template asks for {count} pieces, more than {MAX_COUNT}")
    return args


def _rounded(budget: Budget, args: Args, kwargs: dict[str, Any]) -> Args:
    width_of(args[1] if len(args) > 1 else kwargs.get("precision", 0))
    return args


def _printf_filter(budget: Budget, args: Args, kwargs: dict[str, Any]) -> Args:
    if args and isinstance(args[0], str):
        check_printf(budget, args[0], kwargs or args[1:])
    return args


def _free(budget: Budget, args: Args, kwargs: dict[str, Any]) -> Args:
    return args


def _names(names: str, guard: Guard) -> dict[str, Guard]:
    return dict.fromkeys(names.split(), guard)


# A method that is not here is refused: most of the others (encode, translate, expandtabs…) make large
# values from small ones, and prompts do not need them. `format` has a guard of its own in the sandbox.
STRING_METHODS: dict[str, Guard] = {
    **_names("upper lower title capitalize casefold swapcase splitlines split partition count find index", _text),
    **_names("startswith endswith removeprefix removesuffix isalnum isalpha isascii isdecimal isdigit", _free),
    **_names("isidentifier islower isnumeric isprintable isspace istitle isupper", _free),
    **_names("strip lstrip rstrip rsplit rpartition rfind rindex", _searched),
    **_names("center ljust rjust zfill", _padded),
    "replace": _replaced,
    "join": _join_method,
}

# Filters that hand out a value they were given; all others build one, which is paid for.
PASSING_FILTERS = frozenset({"attr", "default", "d", "first", "last", "length", "count", "max", "min", "abs", "float"})

FILTERS: dict[str, Guard] = {
    **_names("attr default d first last length count max min abs int float", _free),
    **_names("list map select reject selectattr rejectattr sort unique groupby reverse items dictsort", _free),
    **_names("string lower upper title capitalize truncate wordcount safe", _text),
    **_names("escape e forceescape", _escaped),
    **_names("batch slice", _counted),
    "trim": _searched,
    "replace": _replaced,
    "join": _join_filter,
    "center": _padded,
    "indent": _indented,
    "round": _rounded,
    "format": _printf_filter,
}


def to_json(
    budget: Budget,
    value: object,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as chat templates are written for: no HTML escaping, and text other than ASCII stays itself."""
    weight, nesting = budget.measure(value)
    lines = weight // 4
    size = weight * (6 if ensure_ascii else 1)
    if separators is not None:
        size += lines * sum(map(width_of, separators))
    if indent is not None:
        size += lines * nesting * width_of(indent)
    budget.reserve(size)
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def from_json(budget: Budget, text: str) -> Any:
    """The value of a JSON text, as some templates want for tool arguments."""
    budget.reserve(len(text))
    return json.loads(text)
