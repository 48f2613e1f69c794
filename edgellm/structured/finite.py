"""Whether a schema can be satisfied by a text that ends: one that requires itself cannot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edgellm.structured.keywords import Path, target


def endless(root: Any, nodes: Sequence[tuple[Path, Any]]) -> Path | None:
    """The path of a schema that requires itself, if that leaves no finite value for `root`; else None.

    nodes: every schema that `root` uses, with its path, checked.
    """
    finite: set[int] = set()
    before = -1
    # Those that are used tend to come later, so that most schemas are settled in one pass.
    while len(finite) != before:
        before = len(finite)
        for _, node in reversed(nodes):
            if id(node) not in finite and all(any(_ends(one, finite) for one in group) for group in _needs(root, node)):
                finite.add(id(node))
    if _ends(root, finite):
        return None
    return _way_back(root, {id(node): path for path, node in nodes}, finite)


def _ends(node: Any, finite: set[int]) -> bool:
    return node if isinstance(node, bool) else id(node) in finite


def _needs(root: Any, node: Any) -> list[list[Any]]:
    """Groups of schemas: a value of `node` needs a value of one of each group, within it or instead of it."""
    if isinstance(node, bool):
        return [[node]]
    groups: list[list[Any]] = [[part] for part in node.get("allOf", ())]
    groups += [node[key] for key in ("anyOf", "oneOf") if key in node]
    found = target(root, node.get("$ref"))
    if found is not None:
        groups.append([found[1]])
    if node.get("type") in ("object", ["object"]):
        properties = node.get("properties", {})
        groups += [[properties[name]] for name in node.get("required", ()) if name in properties]
    if node.get("type") in ("array", ["array"]):
        least, first = node.get("minItems", 0), node.get("prefixItems", [])
        groups += [[item] for item in first[:least]]
        if least > len(first) and "items" in node:
            groups.append([node["items"]])
    return groups


def _way_back(root: Any, paths: dict[int, Path], finite: set[int]) -> Path:
    node, seen = root, set[int]()
    while id(node) not in seen and id(node) in paths:
        seen.add(id(node))
        stuck = [group for group in _needs(root, node) if not any(_ends(one, finite) for one in group)]
        following = next((one for group in stuck for one in group if not isinstance(one, bool)), None)
        if following is None:
            break
        node = following
    return paths.get(id(node), ())
