"""The priors of the model as one frozen value, with the paper's settings as defaults."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from numbers import Real

from lvgp.errors import InputError


@dataclass(frozen=True)
class Priors:
    """What is believed of the parameters before data (y standardised, numeric columns in [0, 1]).

    Parameters
    ----------
    mean_sd
        mu ~ N(0, mean_sd^2), the constant mean of the process.
    log_variance_mean, log_variance_sd
        log sigma^2 ~ N(mean, sd^2), the process variance.
    noise_scale, noise_floor
        noise variance = noise_floor + HalfCauchy(noise_scale).
    lengthscale_low, lengthscale_high, lengthscale_tail_sd
        log omega_i uniform on [log low, log high] with Gaussian tails of that sd on the log scale.
    alpha
        gamma_j ~ Gamma(alpha, rate alpha - 1), mode 1: the precision of the latents. The raw
        latents given gamma_j are N(0, 1 / (L_j gamma_j)).
    """

    mean_sd: float = 1.0
    log_variance_mean: float = 0.0
    log_variance_sd: float = 1.0
    noise_scale: float = 0.01
    noise_floor: float = 1e-6
    lengthscale_low: float = 0.1
    lengthscale_high: float = 10.0
    lengthscale_tail_sd: float = 0.1
    alpha: float = 2.0

    @staticmethod
    def preset(name: str) -> Priors:
        """Return the priors called `name`: "paper", or "noisy" for measured responses."""
        if name not in PRESETS:
            known = ", ".join(repr(preset) for preset in PRESETS)
            raise InputError(f"priors: expected a Priors value or one of {known}, got {name!r}")
        return PRESETS[name]

    def check(self) -> Priors:
        """Return self, or say which field is out of its range."""
        for entry in fields(self):
            value = getattr(self, entry.name)
            if not isinstance(value, Real) or isinstance(value, bool):
                raise InputError(f"priors.{entry.name}: expected a number, got {value!r}")
        for field in ("mean_sd", "log_variance_sd", "noise_scale", "lengthscale_tail_sd"):
            self._require(field, getattr(self, field) > 0, "a positive number")
        self._require("log_variance_mean", True, "a finite number")
        self._require("noise_floor", self.noise_floor >= 0, "zero or a positive number")
        self._require("lengthscale_low", self.lengthscale_low > 0, "a positive number")
        above = self.lengthscale_high > self.lengthscale_low
        self._require("lengthscale_high", above, "a number above lengthscale_low")
        self._require("alpha", self.alpha > 1, "a number above 1 (the mode of gamma is kept at 1)")
        return self

    def _require(self, field: str, holds: bool, expected: str) -> None:
        value = getattr(self, field)
        if not (holds and math.isfinite(value)):
            raise InputError(f"priors.{field}: expected {expected}, got {value!r}")


PRESETS = {"paper": Priors(), "noisy": Priors(noise_scale=0.3)}
