"""From logits to a token: parameters, pure steps, and the chain that runs them in a visible order."""

from edgellm.sampling.chain import Sampler
from edgellm.sampling.constraint import Constraint
from edgellm.sampling.logprobs import TokenLogprobs, logprobs
from edgellm.sampling.params import SAMPLERS, LogitBias, SamplingKeywords, SamplingParams
from edgellm.sampling.processors import LogitsProcessor

__all__ = [
    "SAMPLERS",
    "Constraint",
    "LogitBias",
    "LogitsProcessor",
    "Sampler",
    "SamplingKeywords",
    "SamplingParams",
    "TokenLogprobs",
    "logprobs",
]
