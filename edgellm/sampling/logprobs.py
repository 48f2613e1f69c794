"""Log-probabilities of the chosen token and of its strongest rivals."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgellm.errors import NumericalError, VocabularyError
from edgellm.sampling.candidates import largest, weights


class TokenLogprobs(NamedTuple):
    """Natural logarithms of probabilities by the model's own logits, before processors, masks, bias and samplers.

    -inf stands for impossible; it occurs for tokens of prompts only, never in `top`.
    """

    token: int
    """The token that was chosen, or that the prompt has here."""
    logprob: float
    top: tuple[tuple[int, float], ...]
    """The ids and log-probabilities of the most likely tokens, most likely first, the token itself among them or
    not; fewer than asked for where fewer are possible."""


def logprobs(logits: NDArray[np.float32], chosen: int, top: int = 0) -> TokenLogprobs:
    """Log-softmax of token `chosen` and of the `top` most likely tokens, most likely first.

    logits: float32[n_vocab]. Raises VocabularyError for an id outside of it, NumericalError if the logits hold
    NaN, +inf or nothing but -inf.
    """
    if not 0 <= chosen < logits.size:
        raise VocabularyError(f"token {chosen} is outside the vocabulary of {logits.size}")
    peak = float(logits[logits.argmax()])
    if not math.isfinite(peak):
        raise NumericalError(f"the largest logit is {peak}: there are no probabilities")
    total = peak + math.log(float(weights(logits).sum()))
    rivals = largest(logits, top) if top else ()
    return TokenLogprobs(
        chosen,
        float(logits[chosen]) - total,
        tuple((int(token), float(logits[token]) - total) for token in rivals),
    )
