"""What inference returns: parameter vectors with how they were come by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np


@dataclass(frozen=True)
class Optimization:
    """How a search for the mode went."""

    log_densities: tuple[float, ...]
    """Log density that each start reached; NaN where it failed."""
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
class Draws:
    """Parameter vectors standing for the posterior: many of equal weight, or one estimate."""

    method: str
    vectors: np.ndarray
    """(draws, parameters), unconstrained, in the order of `Model.names`."""
    log_densities: np.ndarray
    seed: int
    jitter: float = 0.0
    """Added to the noise variance because the covariance needed stabilising."""
    optimization: Optimization | None = None

    @property
    def is_plug_in(self) -> bool:
        """Whether this is a point estimate, whose intervals ignore the latents' uncertainty."""
        return self.method in {"map", "mle"}
