"""Grammars at the limits compile on the smallest stack, in processes of their own: an overflow would end this one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PARENTHESES = "(" * 20 + 'r{next} "x"' + ' "y" | "z")' * 20


@pytest.mark.parametrize(
    "source",
    [
        "schema_grammar(chained(245))",
        "schema_grammar(linked(245))",
        'text_grammar(chain(990, ":", "start"))',
        'text_grammar("start: R0\\n" + "\\n".join(f\'R{i}: R{i + 1} "x"\' for i in range(990)) + \'\\nR990: "y"\')',
        f"text_grammar('start: r0\\n' + ''.join(f'r{{i}}: ' + {PARENTHESES!r}.replace('{{next}}', str(i + 1)) + '\\n'"
        " for i in range(45)) + 'r45: \"a\"')",
    ],
    ids=["definitions", "links", "rules", "terminals", "parentheses"],
)
def test_the_callers_stack_does_not_matter(source):
    code = f"""
import threading
from edgellm.structured.lark import text_grammar
from edgellm.structured.schema import schema_grammar
from tests.structured.test_grammars import chain
from tests.structured.test_schema import chained, linked
from tests.structured.toy import COMPILER

def work():
    COMPILER.compile({source}).mask()
    print("done")

threading.stack_size(256 * 1024)
thread = threading.Thread(target=work)
thread.start()
thread.join()
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr[-2000:]
