"""Write docs/architectures.md from the table of architectures and the results of their conformance tests.

    EDGELLM_CONFORMANCE=all python -m pytest tests/architectures/test_conformance_all.py \
        tests/architectures/test_encoders.py --junitxml results.xml
    python docs/make_architectures.py results.xml

The recipes of all but the encoders are shared between projects; the environment variable EDGELLM_VECTORS says where.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from edgellm.architectures import registry  # noqa: E402
from tests.architectures.test_conformance_all import UNSUPPORTED, WHOLE  # noqa: E402
from tests.architectures.test_encoders import DATA as ENCODERS  # noqa: E402
from tests.support import conformance  # noqa: E402

HEAD = """# Architectures

EdgeLLM runs the GGUF files of {known} architectures. Each was compared with llama.cpp on tiny models with random
weights: {passed} of {total} agree, their logits (of encoders the vectors of their tokens) to a normalized mean squared
error below 1e-8, with all metadata keys and with only those that matter, with the prompt at once and token by token, on
the `reference` and the `native` backend. `make_architectures.py` writes this page from the results of these tests.

*Text* is what continues texts, *vectors* what only embeds them, *masks* what fills in masked tokens and sees both
sides: such models score and embed, but `generate` refuses them. The first kind embeds, too.

To teach EdgeLLM another one see [adding an architecture](adding-an-architecture.md).

| `general.architecture` | models | makes | experts | tested as | passed |
|---|---|---|---|---|---|
"""


def main(results: str) -> None:
    """Read pytest's XML and write the page."""
    passed, failed = _read(Path(results))
    by_architecture = defaultdict(list)
    encoders = {path.stem for path in (ENCODERS / "recipes").glob("*.json")}
    for recipe in sorted({*passed, *failed}):
        folder = ENCODERS if recipe in encoders else conformance.folder_of(recipe)
        metadata = conformance.recipe(recipe, folder=folder).metadata
        by_architecture[metadata["general.architecture"]].append(recipe)
    lines = []
    for name in registry.names():
        row = registry._TABLE[name]
        recipes = by_architecture[name]
        ran = sum(passed[r] + failed[r] for r in recipes)
        state = f"{sum(passed[r] for r in recipes)} of {ran}" if recipes else "not tested"
        experts = "yes" if row.experts else ""
        makes = "text" if row.causal else "masks" if WHOLE & set(recipes) else "vectors"
        lines.append(f"| `{name}` | {_about(row.build)} | {makes} | {experts} | {', '.join(recipes)} | {state} |")
    good = [recipe for recipe in passed if not failed[recipe]]
    text = HEAD.format(known=len(registry.names()), passed=len(good), total=len({*passed, *failed, *UNSUPPORTED}))
    text += "\n".join(lines) + "\n\n## Not supported\n\n| tested as | because |\n|---|---|\n"
    text += "\n".join(f"| {recipe} | {reason} |" for recipe, reason in sorted(UNSUPPORTED.items())) + "\n"
    (ROOT / "docs" / "architectures.md").write_text(text)


def _read(path: Path) -> tuple[defaultdict[str, int], defaultdict[str, int]]:
    """Return how many cases of each recipe passed, and how many did not."""
    passed: defaultdict[str, int] = defaultdict(int)
    failed: defaultdict[str, int] = defaultdict(int)
    for case in ElementTree.parse(path).iter("testcase"):
        name = case.get("name", "")
        found = re.fullmatch(r"test_logits_match_llama_cpp\[(.+)-(full|lean)-(batch|steps)-\w+\]", name)
        found = found or re.fullmatch(r"test_vectors_match_llama_cpp\[(.+)-(True|False)\]", name)
        if found:
            (failed if len(case) else passed)[found[1]] += 1
    return passed, failed


def _about(build: object) -> str:
    """Return the first line of what the file or the function says of itself."""
    module = sys.modules[getattr(build, "__module__", "")]
    alone = len({row.build for row in registry._TABLE.values() if row.build.__module__ == module.__name__}) == 1
    text = (module.__doc__ if alone else build.__doc__) or ""
    return text.strip().splitlines()[0].rstrip(".") if text.strip() else ""


if __name__ == "__main__":
    main(sys.argv[1])
