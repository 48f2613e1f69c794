"""The Jinja environment of one rendering.

Jinja's immutable sandbox keeps a template away from Python's internals. On top of it this one allows
only named methods and filters, and counts and bounds all work (see `limits`). It belongs to a single
rendering, so its meter needs no lock and nothing is shared between threads.
"""

import functools
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from string import Formatter
from types import BuiltinMethodType, CodeType, MethodType
from typing import Any, NoReturn

from jinja2 import Template, nodes, pass_context
from jinja2.exceptions import SecurityError, TemplateSyntaxError
from jinja2.ext import loopcontrols
from jinja2.filters import make_attrgetter
from jinja2.lexer import TokenStream
from jinja2.meta import find_undeclared_variables
from jinja2.runtime import Context, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedEscapeFormatter, SandboxedFormatter
from jinja2.utils import Namespace

from edgellm.chat import guards
from edgellm.chat.limits import MAX_INT_BITS, Budget, LimitError, Limits
from edgellm.chat.messages import NoText
from edgellm.chat.syntax import HOOK, GenerationTag, Instrument, Position

_METHODS = (BuiltinMethodType, MethodType)
_CONTAINER_METHODS: dict[type, frozenset[str]] = {
    dict: frozenset({"get", "items", "keys", "values", "copy"}),
    list: frozenset({"index", "count", "copy"}),
    tuple: frozenset({"index", "count"}),
}
_GLOBALS = ("range", "dict", "cycler", "joiner")


class Refused(Exception):
    """The template called `raise_exception`."""


class SyntaxFault(Exception):
    """The source is no valid template."""

    def __init__(self, message: str, line: int | None = None, column: int | None = None) -> None:
        super().__init__(message)
        self.line = line
        self.column = column


class _Namespace(Namespace):
    """`namespace()` that prints as one word, because its attributes can change after they were weighed."""

    def __repr__(self) -> str:
        return "<namespace>"


class _Metered(Formatter):
    """`str.format` that pays for each field."""

    def format_field(self, value: Any, format_spec: str) -> str:
        budget: Budget = self._env.budget  # type: ignore[attr-defined]
        guards.check_format_spec(format_spec)
        budget.reserve(budget.weigh(value))
        text: str = super().format_field(value, format_spec)
        budget.charge(len(text))
        return text


class _PlainFormatter(_Metered, SandboxedFormatter):
    pass


class _MarkupFormatter(_Metered, SandboxedEscapeFormatter):
    pass


class Sandbox(ImmutableSandboxedEnvironment):
    """Compiles templates, and renders one of them once."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, limits: Limits, clock: Callable[[], datetime] = datetime.now) -> None:
        # Not optimized: folding constants would run the template's operations while it compiles, unmetered.
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            optimized=False,
            cache_size=0,
            extensions=[loopcontrols, GenerationTag],
        )
        self.budget = Budget(limits)
        self._clock = clock
        self._position: Position | None = None
        self.finalize = self._output
        self.globals = {name: self.globals[name] for name in _GLOBALS}
        self.globals |= {"namespace": _Namespace, "raise_exception": _refuse, "strftime_now": self._strftime_now}
        self.filters = {name: self._guarded(name, self.filters[name], check) for name, check in guards.FILTERS.items()}
        self.filters |= {HOOK + name: hook for name, hook in self._hooks().items()}
        self.tests["none"] = _is_none
        self.filters |= {"tojson": self._to_json, "from_json": self._from_json, "sum": self._sum}

    def translate(self, source: str) -> CodeType:
        """Compile a template.

        Raises:
            SyntaxFault: it is too long, too deeply nested or not valid.
        """
        if len(source) > self.budget.limits.source:
            raise SyntaxFault(f"the template has {len(source)} characters, more than {self.budget.limits.source}")
        try:
            return self.compile(source)
        except TemplateSyntaxError as error:
            column = self._position.column(error.lineno) if self._position is not None else None
            raise SyntaxFault(error.message or "syntax error", error.lineno, column) from error
        except RecursionError as error:
            raise SyntaxFault("the template's expressions are nested too deeply") from error
        except Exception as error:
            raise SyntaxFault(f"the template cannot be compiled: {error}") from error

    def variables(self, source: str) -> frozenset[str]:
        """The names a template wants to be given: read, and never set, or asked whether they are defined.

        The source must be one that `translate` takes.
        """
        tree = self.parse(source)
        own = {name.name for name in tree.find_all(nodes.Name) if name.ctx != "load"}
        tests = (test for test in tree.find_all(nodes.Test) if test.name in ("defined", "undefined"))
        asked = {test.node.name for test in tests if isinstance(test.node, nodes.Name)}
        read = {name.name for name in tree.find_all(nodes.Name) if name.ctx == "load"}
        macros = {macro.name for macro in tree.find_all(nodes.Macro)}
        return frozenset((read & asked | (read - own)) - macros & find_undeclared_variables(tree))

    def run(self, code: CodeType, variables: Mapping[str, object]) -> str:
        """Render a compiled template; whatever the template raises comes through."""
        self.budget.admit(variables)
        template = Template.from_code(self, code, self.globals)
        try:
            return "".join(template.root_render_func(template.new_context(dict(variables))))
        except Exception as error:
            line = _line(error, template)
            if line is not None:
                error.add_note(f"line {line}")
            raise

    # Compiling

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        parsed = super()._parse(source, name, filename)
        if self._position is not None:
            self._position.parsed()
        tree: nodes.Template = Instrument().visit(parsed)
        tree.set_environment(self)
        return tree

    def _tokenize(
        self, source: str, name: str | None, filename: str | None = None, state: str | None = None
    ) -> TokenStream:
        self._position = Position(source)
        tokens = self._position.follow(self.lexer.tokeniter(source, name, filename, state))
        return TokenStream(self.lexer.wrap(tokens, name, filename), name, filename)

    def _load_template(self, name: Any, globals: Any) -> NoReturn:
        raise SecurityError("a chat template may not include, import or extend other templates")

    # Called by compiled templates

    def _hooks(self) -> dict[str, Callable[..., Any]]:
        return {"tick": self._tick, "built": self.budget.built, "concatenate": self._concatenate}

    def _tick(self, value: Any) -> Any:
        self.budget.tick()
        return value

    def _concatenate(self, *values: Any) -> str:
        self.budget.reserve(sum(map(self.budget.weigh, values)))
        return self.budget.built("".join(map(str, values)))

    @pass_context
    def _output(self, context: Context, value: Any) -> Any:
        # Wanting the context keeps the compiler from calling this at compile time.
        self.budget.charge(self.budget.weigh(value))
        return value

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if not super().is_safe_attribute(obj, attr, value):
            return False
        if isinstance(obj, str):
            return attr in guards.STRING_METHODS
        for kind, allowed in _CONTAINER_METHODS.items():
            if isinstance(obj, kind):
                return attr in allowed or attr in getattr(obj, "_fields", ())
        return not isinstance(obj, (type, int, float))

    def unsafe_undefined(self, obj: Any, attribute: str) -> Undefined:
        if attribute.startswith("_"):
            # Jinja would print it as empty text; nobody asks for these by accident.
            raise SecurityError(f"access to attribute {attribute!r} of {type(obj).__name__!r} object is unsafe")
        return super().unsafe_undefined(obj, attribute)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        if not isinstance(value, _METHODS) or value.__name__ not in ("format", "format_map"):
            return None
        text = value.__self__
        if not isinstance(text, str):
            return None
        formatter: _Metered
        if hasattr(text, "escape"):
            formatter = _MarkupFormatter(self, escape=text.escape)
        else:
            formatter = _PlainFormatter(self)

        def format_(*args: Any, **kwargs: Any) -> str:
            self.budget.charge(len(text))
            return type(text)(formatter.vformat(text, args, kwargs))

        def format_map(mapping: Mapping[str, Any]) -> str:
            return format_(**mapping)

        return format_ if value.__name__ == "format" else format_map

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        # Jinja's own names: keyword arguments of the template must not collide with the parameters.
        self, function = __self, __obj
        self.budget.tick()
        if isinstance(function, _METHODS):
            owner = function.__self__
            if owner is self or isinstance(owner, str):
                # Jinja adds scopes of loops and blocks to every call, which only its own objects take.
                kwargs = {name: value for name, value in kwargs.items() if not name.startswith("_")}
                return function(*args, **kwargs) if owner is self else self._call_string_method(function, args, kwargs)
        self.budget.enter()
        try:
            result = super().call(__context, function, *args, **kwargs)
        finally:
            self.budget.leave()
        # Methods of containers hand out text that was there before.
        return (
            result if isinstance(function, BuiltinMethodType) and isinstance(result, str) else self.budget.built(result)
        )

    def _call_string_method(self, method: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        text, name = method.__self__, method.__name__
        check = guards.STRING_METHODS.get(name)
        if check is None:
            raise SecurityError(f"a chat template may not call the text method {name!r}")
        _, *args_ = check(self.budget, (text, *args), kwargs)
        result = method(*args_, **kwargs)
        if isinstance(result, (list, tuple)):
            self.budget.charge(len(text))
        return self.budget.built(result)

    def call_binop(self, context: Context | None, operator: str, left: Any, right: Any) -> Any:
        self.budget.tick()
        if operator == "%" and isinstance(left, str):
            guards.check_printf(self.budget, left, right)
        elif operator == "*":
            self._check_product(left, right)
        elif operator == "**" and isinstance(left, int) and isinstance(right, int):
            if left.bit_length() * right > MAX_INT_BITS:
                raise LimitError(f"a power of the template has more than {MAX_INT_BITS} bits")
        elif operator == "+" and isinstance(left, (str, list, tuple)):
            growth = guards.ESCAPE_GROWTH if hasattr(left, "__html__") or hasattr(right, "__html__") else 1
            self.budget.reserve(growth * (len(left) + self.budget.weigh(right)))
        return self.budget.built(self.binop_table[operator](left, right))

    def _check_product(self, left: Any, right: Any) -> None:
        for sequence, times in ((left, right), (right, left)):
            if isinstance(sequence, (str, list, tuple)) and isinstance(times, int):
                self.budget.reserve(self.budget.weigh(sequence) * max(times, 0))

    def _guarded(self, name: str, function: Callable[..., Any], check: guards.Guard) -> Callable[..., Any]:
        injected = 1 if hasattr(function, "jinja_pass_arg") else 0
        pays = name not in guards.PASSING_FILTERS

        @functools.wraps(function)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            self.budget.tick()
            values = check(self.budget, args[injected:], kwargs)
            result = function(*args[:injected], *values, **kwargs)
            return self.budget.built(result) if pays else result

        return guarded

    def _to_json(self, value: Any, *args: Any, **kwargs: Any) -> str:
        self.budget.tick()
        return self.budget.built(guards.to_json(self.budget, value, *args, **kwargs))

    def _from_json(self, text: str) -> Any:
        self.budget.tick()
        return self.budget.built(guards.from_json(self.budget, text))

    def _sum(self, values: Iterable[Any], attribute: str | int | None = None, start: Any = 0) -> Any:
        # By the guarded operator: the sum of lists would copy its intermediate values unpaid.
        pick = make_attrgetter(self, attribute) if attribute is not None else lambda value: value
        return functools.reduce(lambda total, value: self.call_binop(None, "+", total, pick(value)), values, start)

    def _strftime_now(self, format: str) -> str:
        self.budget.reserve(64 * len(format))
        return self._clock().strftime(format)


def _refuse(message: object) -> NoReturn:
    raise Refused(str(message))


def _is_none(value: object) -> bool:
    return value is None or isinstance(value, NoText)


def _line(error: BaseException, template: Template) -> int | None:
    """The template's innermost line on the way to the error."""
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_globals.get("__jinja_template__") is template:
            line = template.get_corresponding_lineno(trace.tb_lineno)
        trace = trace.tb_next
    return line
