"""Programs: a model as a verified, linear list of ops."""

from edgellm.program.builder import ProgramBuilder
from edgellm.program.ops import KVState, Op, RopeSpec
from edgellm.program.program import Pooling, Program, Value
from edgellm.program.recurrent import RecurrentState

__all__ = ["KVState", "Op", "Pooling", "Program", "ProgramBuilder", "RecurrentState", "RopeSpec", "Value"]
