"""The order of the steps, and the sampler that runs them.

    mask → logit bias → penalties → top_k → top_p → min_p → temperature → draw

- Bias and penalties change logits, so they see every token and come before whatever removes tokens. Bias comes
  first, as in llama.cpp: it corrects the model, the penalties then act on the corrected model.
- The mask of a constraint comes before everything, so that the filters choose among legal tokens. After them, it
  could find all tokens gone that it allows.
- The filters judge the model's own distribution and temperature comes last, as in llama.cpp (Transformers has it
  first): a high temperature then spreads the choice over plausible tokens and never lets implausible ones in, and
  settings tuned on other GGUF runtimes keep their meaning.
- Greedy choice needs no filter: none of them removes the most likely token.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from edgellm.errors import ArgumentError, GrammarError, NumericalError, VocabularyError
from edgellm.sampling import steps
from edgellm.sampling.constraint import Constraint, Guard, Mask, Submit
from edgellm.sampling.history import TokenWindow
from edgellm.sampling.params import MAX_SEED, SamplingParams
from edgellm.sampling.rng import fresh_seed, uniform
from edgellm.sampling.steps import Candidates

Step = Callable[[Candidates], Candidates]


def edits(params: SamplingParams, window: TokenWindow) -> list[Step]:
    """The steps that change logits, in order; neutral settings add none."""
    chain: list[Step] = []
    if params.logit_bias:
        pairs = dict(params.logit_bias)
        ids = np.array(list(pairs), np.int64)
        chain.append(partial(steps.logit_bias, ids=ids, bias=np.array(list(pairs.values()), np.float64)))
    if params.penalizes:
        chain.append(
            partial(
                steps.penalties,
                window=window,
                repetition=params.repetition_penalty,
                frequency=params.frequency_penalty,
                presence=params.presence_penalty,
            )
        )
    return chain


def filters(params: SamplingParams, n_vocab: int) -> list[Step]:
    """The steps that remove tokens, then temperature, in order; neutral settings add none."""
    chain: list[Step] = []
    if 0 < params.top_k < n_vocab:
        chain.append(partial(steps.top_k, k=params.top_k))
    if params.top_p < 1.0:
        chain.append(partial(steps.top_p, p=params.top_p))
    if params.min_p > 0.0:
        chain.append(partial(steps.min_p, p=params.min_p))
    if params.temperature != 1.0:
        chain.append(partial(steps.temperature, t=params.temperature))
    return chain


class Sampler:
    """Chooses the tokens of one sequence, one `sample` per token, and remembers what `accept` tells it.

    params: the settings. n_vocab: length of the logits. prompt_ids: the tokens so far, which penalties count
    like generated ones. state: what `state` of another sampler returned, to go on where that one was: with the
    same params and all tokens so far as prompt_ids, the choices are those it would have made. constraint: decides
    which tokens are legal; it sees accepted tokens, not the prompt.

    Raises ArgumentError for a bias on a token that does not exist, VocabularyError for such a token in prompt_ids.
    """

    def __init__(
        self,
        params: SamplingParams,
        n_vocab: int,
        prompt_ids: Sequence[int] = (),
        state: Mapping[str, int] | None = None,
        constraint: Constraint | None = None,
    ) -> None:
        self._guard = None if constraint is None else Guard(constraint)
        self.params = params
        self.n_vocab = n_vocab
        self.seed, self._draws = _start(params, state)
        for token in dict(params.logit_bias or ()):
            if int(token) >= n_vocab:
                raise ArgumentError(f"logit_bias: token {token} does not exist, ids go from 0 to {n_vocab - 1}")
        self._filters = filters(params, n_vocab)
        self._window = TokenWindow(params.penalty_last_n)
        self._edits = edits(params, self._window)
        last_n = params.penalty_last_n
        for token in prompt_ids if last_n < 0 else prompt_ids[-last_n:] if last_n else ():
            self._count(token)

    @property
    def finished(self) -> bool:
        """Whether the constraint, if there is one, has nothing left to ask for: the text is complete."""
        return self._guard is not None and self._guard.finished

    def prepare(self, submit: Submit) -> None:
        """Begin what the next `sample` needs besides logits, by `submit`, in another thread."""
        if self._guard is not None:
            self._guard.prepare(submit)

    def sample(self, logits: NDArray[np.float32]) -> int:
        """Choose a token. It counts for penalties and constraint only once it is accepted.

        logits: float32[n_vocab], not changed.
        Every call that returns uses up one random number, whatever the settings. Raises NumericalError, naming
        the step, if the logits hold NaN or +inf or leave no token possible; GrammarError if the constraint fails or
        allows none of the possible tokens; ArgumentError for a wrong shape.
        """
        if logits.shape != (self.n_vocab,) or logits.dtype != np.float32:
            raise ArgumentError(f"logits must be float32[{self.n_vocab}], not {logits.dtype}{list(logits.shape)}")
        best = int(logits.argmax())
        self._check(float(logits[best]))
        mask = None if self._guard is None else self._guard.mask()
        if self._edits or mask is not None or not self.params.greedy:
            best = self._choose(Candidates.all(logits), mask)
        self._draws += 1
        return best

    def _choose(self, candidates: Candidates, mask: Mask) -> int:
        if mask is not None:
            candidates = steps.allow(candidates, mask)
        for step in self._edits:
            candidates = step(candidates)
        if mask is not None and candidates.logits.max() == -np.inf:
            raise GrammarError(f"step {self._draws}: none of the tokens that may follow by the grammar is possible")
        self._check(float(candidates.logits.max()))
        if self.params.greedy:
            return steps.greedy(candidates)
        for step in self._filters:
            candidates = step(candidates)
        return steps.draw(candidates, uniform(self.seed, self._draws))

    def _check(self, peak: float) -> None:
        """Refuse logits by their first maximum, which is NaN if there is any."""
        if peak == -np.inf:
            raise NumericalError(f"step {self._draws}: no token is possible, all of them have the logit -inf")
        if not np.isfinite(peak):
            raise NumericalError(f"step {self._draws}: the model gave a logit of {peak}")

    def accept(self, token: int) -> None:
        """Count a token. Raises VocabularyError if it does not exist, GrammarError if the constraint fails."""
        self._count(token)
        if self._guard is not None:
            self._guard.advance(int(token))

    def _count(self, token: int) -> None:
        if not 0 <= token < self.n_vocab:
            raise VocabularyError(f"token {token} is outside the vocabulary of {self.n_vocab}")
        if self.params.penalizes:
            self._window.push(int(token))

    def state(self) -> dict[str, int]:
        """What a new sampler needs, besides params and the tokens so far, to go on from here."""
        return {"seed": self.seed, "draws": self._draws}


def _start(params: SamplingParams, state: Mapping[str, int] | None) -> tuple[int, int]:
    """The seed and the number of draws already made."""
    if state is None:
        wish = params.seed
        return fresh_seed() if wish is None or wish < 0 else wish, 0
    seed, draws = state.get("seed", -1), state.get("draws", -1)
    if not 0 <= seed <= MAX_SEED or draws < 0:
        raise ArgumentError(f"not the state of a sampler: {dict(state)!r}")
    return seed, draws
