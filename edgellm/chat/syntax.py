"""What is done to a template's source before it is compiled.

The parsed tree is rewritten so that everything able to grow or repeat passes through the sandbox:
Jinja lets an environment intercept calls, filters and arithmetic, but not loops, literals, slices or `~`.
"""

from collections.abc import Iterator
from typing import cast

from jinja2 import nodes
from jinja2.exceptions import TemplateSyntaxError
from jinja2.ext import Extension
from jinja2.lexer import newline_re
from jinja2.parser import Parser
from jinja2.visitor import NodeTransformer

# Starts the names of the filters that the rewritten tree calls.
HOOK = "*"


class GenerationTag(Extension):
    """`{% generation %}` marks text to train on. For inference it is as if the tag were not there."""

    tags = {"generation"}  # noqa: RUF012 - the name and type Jinja prescribes

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class Instrument(NodeTransformer):
    """Routes loops, concatenation, literals, slices and fixed text through filters of the sandbox."""

    def visit_For(self, node: nodes.For) -> nodes.For:
        self.generic_visit(node)
        nothing = nodes.Const(None, lineno=node.lineno)
        # In the body as well as in the filter: either one alone may be what runs for every element.
        node.body.insert(0, nodes.ExprStmt(_hook("tick", [nothing], node), lineno=node.lineno))
        if node.test is not None:
            node.test = _hook("tick", [cast(nodes.Expr, node.test)], node)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Filter:
        self.generic_visit(node)
        return _hook("concatenate", node.nodes, node)

    def visit_List(self, node: nodes.List) -> nodes.Node:
        return self._literal(node, node.items)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:
        if node.ctx != "load":
            return self.generic_visit(node)
        return self._literal(node, node.items)

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:
        return self._literal(node, node.items)

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Expr:
        self.generic_visit(node)
        return _hook("built", [node], node) if isinstance(node.arg, nodes.Slice) else node

    def visit_TemplateData(self, node: nodes.TemplateData) -> nodes.Const:
        # Fixed text is written without asking the sandbox; as a constant it is paid for like any output.
        return nodes.Const(node.data, lineno=node.lineno)

    def _literal(self, node: nodes.Expr, items: "list[nodes.Expr] | list[nodes.Pair]") -> nodes.Node:
        # A literal of constants is no longer than the source it stands in.
        constant = all(isinstance(item, nodes.Const) for item in items)
        self.generic_visit(node)
        return node if constant else _hook("built", [node], node)


def _hook(name: str, args: list[nodes.Expr], node: nodes.Node) -> nodes.Filter:
    # Filters compile to the plainest call there is, and no template can spell this name.
    return nodes.Filter(args[0], HOOK + name, args[1:], [], None, None, lineno=node.lineno)


class Position:
    """Follows the lexer through the source, to say where in a line the parser stopped."""

    def __init__(self, source: str) -> None:
        # The lexer numbers lines after the same normalization.
        self._source = "\n".join(newline_re.split(source)[::2])
        self._start = self._end = 0

    def follow(self, tokens: Iterator[tuple[int, str, str]]) -> Iterator[tuple[int, str, str]]:
        """The same tokens, watched."""
        try:
            for token in tokens:
                if token[2]:
                    # Trimming may have dropped white space before the token.
                    found = self._source.find(token[2], self._end)
                    self._start = found if found >= 0 else self._end
                    self._end = self._start + len(token[2])
                yield token
        except TemplateSyntaxError:
            # The lexer itself is at a loss, with what comes next.
            rest = self._source[self._end :]
            self._start = self._end + len(rest) - len(rest.lstrip())
            raise
        self._start = self._end

    def parsed(self) -> None:
        """The parser is through: what fails from now on does not fail at the last token."""
        self._start = 0

    def column(self, line: int) -> int:
        """Column, from 1, of the token at which parsing stopped, or else of the first character in `line`."""
        before = self._source[: self._start]
        if before.count("\n") + 1 == line and self._start:
            return len(before) - (before.rfind("\n") + 1) + 1
        lines = self._source.split("\n")
        text = lines[line - 1] if 0 < line <= len(lines) else ""
        return len(text) - len(text.lstrip()) + 1
