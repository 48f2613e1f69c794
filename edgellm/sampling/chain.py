"""The sampler: the steps in their order, and what they remember.

    processors → mask → logit bias → `SamplingParams.samplers` → draw

    penalties → dry → top_n_sigma → top_k → typical_p → top_p → min_p → xtc → temperature → mirostat → adaptive_p

- The caller's processors see the model's own logits. They come before the mask, so that they cannot break a grammar.
- The mask of a constraint comes before all else, so that the filters choose among legal tokens. After them, it
  could find all tokens gone that it allows.
- Bias and penalties change logits, so they come before whatever removes tokens. Bias comes first, as in llama.cpp: it
  corrects the model, the penalties then act on the corrected model.
- The filters judge the model's own distribution and temperature comes after them, as in llama.cpp (Transformers has it
  first): a high temperature then spreads the choice over plausible tokens and never lets implausible ones in, and
  settings tuned on other GGUF runtimes keep their meaning.
- Greedy choice needs no filter: none of them but XTC removes the most likely token, and a choice that is greedy has no
  use for that.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from edgellm.errors import ArgumentError, GrammarError, NumericalError, VocabularyError
from edgellm.sampling import edits, order
from edgellm.sampling.candidates import Candidates, draw, greedy
from edgellm.sampling.constraint import Constraint, Guard, Mask, Submit
from edgellm.sampling.memory import Memory
from edgellm.sampling.native import shortcut
from edgellm.sampling.params import SamplingParams
from edgellm.sampling.processors import LogitsProcessor, Processors


class Sampler:
    """Chooses the tokens of one sequence, one `sample` per token, and remembers what `accept` tells it.

    params: the settings. n_vocab: length of the logits. prompt_ids: the tokens so far, which penalties count
    like generated ones. state: what `state` of another sampler returned, to go on where that one was: with the
    same params and all tokens so far as prompt_ids, the choices are those it would have made. constraint: decides
    which tokens are legal; it sees accepted tokens, not the prompt. breakers: the token sequences that
    `SamplingParams.dry_breakers` stand for. processors: see `LogitsProcessor`.

    Raises ArgumentError for a bias on a token that does not exist, VocabularyError for such a token in prompt_ids.
    """

    def __init__(
        self,
        params: SamplingParams,
        n_vocab: int,
        prompt_ids: Sequence[int] = (),
        state: Mapping[str, float] | None = None,
        constraint: Constraint | None = None,
        breakers: Iterable[Sequence[int]] = (),
        processors: Sequence[LogitsProcessor] = (),
    ) -> None:
        self.params = params
        self.n_vocab = n_vocab
        for token in dict(params.logit_bias or ()):
            if int(token) >= n_vocab:
                raise ArgumentError(f"logit_bias: token {token} does not exist, ids go from 0 to {n_vocab - 1}")
        if prompt_ids:
            self._check_token(min(prompt_ids))
            self._check_token(max(prompt_ids))
        self._guard = None if constraint is None else Guard(constraint)
        self._memory = Memory(params, prompt_ids, breakers, state)
        self._processors = Processors(processors, prompt_ids) if processors else None
        self._bias = order.bias(params)
        steps = order.chain(params, self._memory)
        self._steps = list(steps.values())
        self._shortcut = None
        if constraint is None and not processors:
            self._shortcut = shortcut(params, n_vocab, self._memory, self._bias, steps)

    @property
    def seed(self) -> int:
        """The seed in use, whether it was given or drawn."""
        return self._memory.seed

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
        allows none of the possible tokens; ArgumentError for a wrong shape; CallbackError if a processor fails.
        """
        if logits.shape != (self.n_vocab,) or logits.dtype != np.float32:
            raise ArgumentError(f"logits must be float32[{self.n_vocab}], not {logits.dtype}{list(logits.shape)}")
        if self._shortcut is not None:
            token = self._shortcut.choose(logits, self._memory.choice())
            if token is not None:
                self._memory.draws += 1
                return token
        best = int(logits.argmax())
        self._check("the model gave", float(logits[best]))
        if self._processors is not None:
            logits = self._processors.apply(logits)
            best = int(logits.argmax())
            self._check("the logits processors left", float(logits[best]))
        mask = None if self._guard is None else self._guard.mask()
        if self._bias or self._steps or mask is not None or not self.params.greedy:
            best = self._choose(logits, mask)
        self._memory.draws += 1
        return best

    def _choose(self, logits: NDArray[np.float32], mask: Mask) -> int:
        candidates: Candidates | None = Candidates.all(logits)
        if mask is not None:
            candidates = edits.allow(Candidates.all(logits), mask)
        if candidates is not None and self._bias is not None:
            candidates = self._bias(candidates)
        if mask is not None and (candidates is None or candidates.logits.max() == -np.inf):
            raise GrammarError(f"step {self._memory.draws}: no token that the grammar allows here is possible")
        assert candidates is not None  # only a mask leaves none
        if self._bias is not None:
            self._check("logit_bias left", float(candidates.logits.max()))
        for step in self._steps:
            candidates = step(candidates)
        return greedy(candidates) if self.params.greedy else draw(candidates, self._memory.choice())

    def _check(self, whose: str, peak: float) -> None:
        """Refuse logits by their first maximum, which is NaN if there is any."""
        if peak == -np.inf:
            raise NumericalError(f"step {self._memory.draws}: {whose} no possible token, all logits are -inf")
        if not np.isfinite(peak):
            raise NumericalError(f"step {self._memory.draws}: {whose} a logit of {peak}")

    def accept(self, token: int) -> None:
        """Count a token. Raises VocabularyError if it does not exist, GrammarError if the constraint fails."""
        self._check_token(token)
        self._memory.accept(int(token))
        if self._processors is not None:
            self._processors.accept(int(token))
        if self._guard is not None:
            self._guard.advance(int(token))

    def _check_token(self, token: int) -> None:
        if not 0 <= token < self.n_vocab:
            raise VocabularyError(f"token {token} is outside the vocabulary of {self.n_vocab}")

    def state(self) -> dict[str, float]:
        """What a new sampler needs, besides params and the tokens so far, to go on from here."""
        return self._memory.state()
