"""What the steps of a sampler remember of the sequence."""

from collections.abc import Iterable, Mapping, Sequence

from edgellm.errors import ArgumentError
from edgellm.sampling.candidates import Candidates
from edgellm.sampling.history import TokenWindow
from edgellm.sampling.params import MAX_SEED, SamplingParams
from edgellm.sampling.repeats import Repeats
from edgellm.sampling.rng import fresh_seed, uniform

_XTC = 1
"""The stream of random numbers for whether XTC applies; the choice of the token has stream 0."""


class Memory:
    """Seed and draws, recent tokens, and the two running values that steer Mirostat and adaptive-p."""

    def __init__(
        self,
        params: SamplingParams,
        tokens: Sequence[int],
        breakers: Iterable[Sequence[int]],
        state: Mapping[str, float] | None,
    ) -> None:
        self._params = params
        wish = params.seed
        self.seed = fresh_seed() if wish is None or wish < 0 else wish
        self.draws = 0
        self.limit = 2.0 * params.mirostat_tau
        """Bits of surprise that Mirostat allows now."""
        self.average = params.adaptive_target
        """Running average of the probabilities of the tokens chosen, for adaptive-p."""
        self.limited: Candidates | None = None
        """What Mirostat left of the tokens, until one is accepted."""
        self.unshaped: Candidates | None = None
        """What adaptive-p found, until one is accepted."""
        if state is not None:
            self._restore(state)
        self.window = TokenWindow(params.penalty_last_n)
        if params.penalizes:
            for token in recent(tokens, params.penalty_last_n):
                self.window.push(token)
        self.repeats: Repeats | None = None
        if params.breaks_repetition:
            self.repeats = Repeats(recent(tokens, params.dry_last_n), params.dry_last_n, breakers)

    def accept(self, token: int) -> None:
        """Take the next token of the sequence."""
        params = self._params
        if params.penalizes:
            self.window.push(token)
        if self.repeats is not None:
            self.repeats.push(token)
        if self.limited is not None:
            observed = self.limited.surprise(token)
            if observed is not None:
                self.limit -= params.mirostat_eta * (observed - params.mirostat_tau)
        if self.unshaped is not None:
            share = self.unshaped.probability(token)
            if share is not None:
                self.average = params.adaptive_decay * self.average + (1.0 - params.adaptive_decay) * share
        self.limited = self.unshaped = None

    def target(self) -> float:
        """The probability that adaptive-p aims at now: as far beyond its target as the average is before it."""
        return min(max(2.0 * self._params.adaptive_target - self.average, 0.0), 1.0)

    def chance(self) -> float:
        """The random number that decides about XTC."""
        return uniform(self.seed, self.draws, _XTC)

    def choice(self) -> float:
        """The random number that picks the token."""
        return uniform(self.seed, self.draws)

    def state(self) -> dict[str, float]:
        """All but the tokens, as numbers."""
        return {"seed": self.seed, "draws": self.draws, "limit": self.limit, "average": self.average}

    def _restore(self, state: Mapping[str, float]) -> None:
        try:
            seed, draws = state["seed"], state["draws"]
            self.limit, self.average = float(state["limit"]), float(state["average"])
        except (KeyError, TypeError, ValueError):
            raise ArgumentError(f"not the state of a sampler: {dict(state)!r}") from None
        if not (isinstance(seed, int) and 0 <= seed <= MAX_SEED and isinstance(draws, int) and draws >= 0):
            raise ArgumentError(f"not the state of a sampler: {dict(state)!r}")
        self.seed, self.draws = seed, draws


def recent(tokens: Sequence[int], size: int) -> Sequence[int]:
    """The last `size` tokens, all for -1."""
    return tokens if size < 0 else tokens[len(tokens) - min(size, len(tokens)) :]
