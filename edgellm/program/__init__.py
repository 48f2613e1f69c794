"""Programs: a model as a verified, linear list of ops."""

from edgellm.program.ops import KVState, Op, RopeSpec
from edgellm.program.program import Program, ProgramBuilder, Value

__all__ = ["KVState", "Op", "Program", "ProgramBuilder", "RopeSpec", "Value"]
