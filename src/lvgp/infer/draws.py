"""What inference returns: parameter vectors with how they were come by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from lvgp.sparse import Inducing


@dataclass(frozen=True)
class Optimization:
    """How a search for the mode went."""

    log_densities: tuple[float, ...]
    """Log density that each start reached, of a sparse model each search that was carried to the
    end; NaN where it failed."""
    refined_log_densities: tuple[float, ...]
    """The same for searches from the best mode with some latents drawn anew."""
    log_density: float
    """The best log density found, after polishing."""
    unconverged: int
    """Searches that ended at the limit of evaluations instead of at an optimum."""
    evaluations: int
    seconds: float

    TOLERANCE: ClassVar[float] = 0.01

    @property
    def starts(self) -> int:
        """How many starts there were."""
        return len(self.log_densities)

    @property
    def reached(self) -> int:
        """How many starts came within 0.01 of the best log density."""
        return self._near(self.log_densities)

    @property
    def reached_refined(self) -> int:
        """How many of the searches with latents drawn anew came within 0.01 of the best."""
        return self._near(self.refined_log_densities)

    @property
    def failed(self) -> int:
        """How many starts failed: the density was not finite there."""
        return int(np.isnan(self.log_densities).sum())

    def _near(self, log_densities: tuple[float, ...]) -> int:
        return sum(value >= self.log_density - self.TOLERANCE for value in log_densities)


@dataclass(frozen=True)
class Convergence:
    """R-hat and effective sample sizes of every identified quantity."""

    ess_bulk: np.ndarray
    ess_tail: np.ndarray
    r_hat: np.ndarray


@dataclass(frozen=True)
class Sampling:
    """How Markov chains went; arrays are (chains, draws), warm-up left out."""

    sampler: str
    warmup: int
    """Transitions of each chain before the first draw kept."""
    acceptance: np.ndarray
    steps: np.ndarray
    """Evaluations of the gradient for each draw."""
    divergent: np.ndarray
    energy: np.ndarray
    """NaN where the sampler keeps none."""
    step_sizes: tuple[float, ...]
    """Mean step of each chain."""
    length: float
    """Mean length of a trajectory; NaN for NUTS, which chooses it draw by draw."""
    most_steps: int
    """Where a trajectory is cut off."""
    ended: str
    """Why sampling ended: "converged", "draws", "time" or "interrupted"."""
    convergence: Convergence
    gradients: int
    """Evaluations of the gradient in all chains, warm-up included."""
    seconds: float
    warmup_seconds: float

    @property
    def chains(self) -> int:
        """How many chains there are."""
        return len(self.acceptance)

    @property
    def draws(self) -> int:
        """Draws in each chain."""
        return self.acceptance.shape[1]


@dataclass(frozen=True)
class Variational:
    """How the fit of a variational approximation went."""

    elbo: np.ndarray
    """Evidence lower bound, averaged over successive stretches of the optimisation."""
    settled: bool
    """Whether the bound had stopped rising at the end."""
    log_weights: np.ndarray
    """Log density minus log approximation at each draw."""
    seconds: float


@dataclass(frozen=True)
class Draws:
    """Parameter vectors standing for the posterior: many of equal weight, or one estimate."""

    method: str
    vectors: np.ndarray
    """(draws, parameters), unconstrained, in the order of `Model.names`, chain after chain."""
    log_densities: np.ndarray
    seed: int
    jitter: float = 0.0
    """Added to the noise variance because the covariance needed stabilising."""
    inducing: Inducing | None = None
    """The inducing points of a sparse approximation."""
    optimization: Optimization | None = None
    sampling: Sampling | None = None
    variational: Variational | None = None

    def by_chain(self, values: np.ndarray) -> np.ndarray:
        """Return values, one for each draw, as (chains, draws, ...)."""
        chains = self.sampling.chains if self.sampling else 1
        return values.reshape(chains, -1, *values.shape[1:])

    def thinned(self, most: int) -> np.ndarray:
        """Return the positions of at most `most` draws, evenly spaced, as many from each chain."""
        positions = self.by_chain(np.arange(len(self.vectors)))
        chains, draws = positions.shape
        each = max(1, min(draws, most // chains))
        return positions[:, np.linspace(0, draws - 1, each).round().astype(int)].ravel()

    @property
    def is_plug_in(self) -> bool:
        """Whether this is a point estimate, whose intervals ignore the latents' uncertainty."""
        return self.method in {"map", "mle"}
