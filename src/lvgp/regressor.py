"""LVGPRegressor: the scikit-learn face of the model."""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from numbers import Integral, Real
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from lvgp import compute, store
from lvgp.errors import (
    DataWarning,
    InputError,
    ModelFileError,
    PlugInIntervalWarning,
    warn,
)
from lvgp.infer.draws import Optimization
from lvgp.infer.optimize import find_mode
from lvgp.kernels import KERNELS
from lvgp.model import Model, pack_rows
from lvgp.posterior import Posterior
from lvgp.priors import Priors
from lvgp.space import Encoded, Level, Space, build_space
from lvgp.table import as_table, check_response, column_keys

_METHODS = ("bayes", "vi", "map", "mle")


class LVGPRegressor(RegressorMixin, BaseEstimator):
    """Gaussian-process regression on tables whose columns are partly categories.

    Each level of a categorical column is placed in a small latent space learned from the data, so
    that an ordinary kernel can measure how alike two levels are.

    Parameters
    ----------
    method : {"bayes", "vi", "map", "mle"}
        "map" maximises the posterior density in the unconstrained coordinates (log-scales, raw
        latents), "mle" the likelihood alone. "bayes" and "vi" are not available yet.
    sampler, chains, warmup, draws, target_accept
        Settings of method="bayes" only.
    latent_dim : int or {column: int}
        Dimensions of the latent space of each categorical column.
    kernel : {"rbf", "matern52", "matern32"}
        Family of the correlation.
    approximation, n_inducing
        Sparse approximation, and its number of inducing points. Not available yet.
    categorical : list of column names, optional
        Columns to treat as categories; by default every column that is not numeric. Positions are
        taken too when X is an array.
    levels : {column: list of levels}, optional
        All levels of a column, when the training table does not hold them all.
    bounds : {column: (low, high)}, optional
        Range that a numeric column is scaled by; by default the range in the training table.
    priors : Priors or str
        Prior distributions, or the name of a preset ("paper", "noisy").
    restarts : int
        Starts of the optimiser.
    unknown_levels : {"error"}
        What to do with a level at prediction that was never declared.
    random_state : int, RandomState or None
        Seed of everything random.
    progress : bool
        Show a progress bar when working on a terminal.

    Attributes
    ----------
    space_ : Space
        The columns as understood.
    draws_ : Draws
        The parameter vectors that predictions are made from.
    optimization_ : Optimization
        How the search for the mode went: best log density, starts that reached it, that failed.
    priors_ : Priors
        The priors used.
    seed_ : int
        The seed actually used; equal to a fit with `random_state` None repeated with it.
    n_features_in_, feature_names_in_
        As everywhere in scikit-learn.
    """

    def __init__(
        self,
        method: str = "bayes",
        *,
        sampler: str = "auto",
        latent_dim: int | Mapping[Hashable, int] = 2,
        kernel: str = "rbf",
        approximation: str | None = None,
        n_inducing: int = 50,
        categorical: Sequence[Hashable] | None = None,
        levels: Mapping[Hashable, Sequence[Level]] | None = None,
        bounds: Mapping[Hashable, tuple[float, float]] | None = None,
        priors: Priors | str = "paper",
        chains: int = 4,
        warmup: int | None = None,
        draws: int | None = None,
        target_accept: float | None = None,
        restarts: int = 16,
        unknown_levels: str = "error",
        random_state: int | np.random.RandomState | None = None,
        progress: bool = True,
    ) -> None:
        self.method = method
        self.sampler = sampler
        self.latent_dim = latent_dim
        self.kernel = kernel
        self.approximation = approximation
        self.n_inducing = n_inducing
        self.categorical = categorical
        self.levels = levels
        self.bounds = bounds
        self.priors = priors
        self.chains = chains
        self.warmup = warmup
        self.draws = draws
        self.target_accept = target_accept
        self.restarts = restarts
        self.unknown_levels = unknown_levels
        self.random_state = random_state
        self.progress = progress

    def fit(self, X: Any, y: Any) -> LVGPRegressor:
        """Fit the model to a table and a numeric response, and return self.

        Parameters
        ----------
        X : DataFrame or 2-d array
            One row an observation; columns numeric or categorical.
        y : 1-d array or Series
            The response.
        """
        priors = self._checked_options()
        table, named = as_table(X)
        response = check_response(y, len(table))
        space = build_space(X, self.categorical, self.levels, self.bounds)
        model = self._model(space, table, named)
        y_mean, y_scale = float(response.mean()), float(response.std(ddof=1))
        standardised = (response - y_mean) / y_scale
        training = space.encode(X)
        seed = _seed(self.random_state)
        with compute.scope():
            rows = pack_rows(*training, standardised)
            draws = find_mode(model, rows, priors, self.restarts, seed, self.progress)
        self._set_fitted(
            space, Posterior(model, priors, draws, training, standardised, y_mean, y_scale)
        )
        return self

    def predict(
        self, X: Any, return_std: bool = False, return_cov: bool = False
    ) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Return the mean of f at the rows of X, with its sd or its covariance when asked for."""
        check_is_fitted(self)
        if return_std and return_cov:
            raise InputError("return_std and return_cov: ask for one of them, not for both")
        encoded = self._encode(X)
        if return_cov:
            return self._posterior.mean_and_covariance(encoded)
        mean, sd = self._posterior.mean_and_sd(encoded)
        return (mean, sd) if return_std else mean

    def predict_interval(
        self, X: Any, coverage: float = 0.95, include_noise: bool = False
    ) -> pd.DataFrame:
        """Return mean and central interval at each row of X, as columns mean, lower, upper.

        The interval is for f, the noise-free response; with `include_noise`, for a new response.
        """
        check_is_fitted(self)
        if not (isinstance(coverage, Real) and 0 < coverage < 1):
            raise InputError(f"coverage: expected a number between 0 and 1, got {coverage!r}")
        encoded = self._encode(X)
        tail = 0.5 * (1.0 - coverage)
        self._warn_if_overconfident()
        mean, _ = self._posterior.mean_and_sd(encoded)
        ends = self._posterior.quantiles(encoded, np.array([tail, 1.0 - tail]), include_noise)
        columns = {"mean": mean, "lower": ends[:, 0], "upper": ends[:, 1]}
        return pd.DataFrame(columns, index=_index(X))

    def predict_quantiles(
        self, X: Any, quantiles: Sequence[float], include_noise: bool = False
    ) -> pd.DataFrame:
        """Return the quantiles of f (of a new response with `include_noise`) at each row of X."""
        check_is_fitted(self)
        try:
            probabilities = np.atleast_1d(np.asarray(quantiles, dtype=float))
        except (TypeError, ValueError):
            probabilities = np.array([np.nan])
        if probabilities.ndim != 1 or not ((probabilities > 0) & (probabilities < 1)).all():
            raise InputError(f"quantiles: expected numbers between 0 and 1, got {quantiles!r}")
        encoded = self._encode(X)
        self._warn_if_overconfident()
        values = self._posterior.quantiles(encoded, probabilities, include_noise)
        return pd.DataFrame(values, index=_index(X), columns=[float(p) for p in probabilities])

    def sample_y(
        self,
        X: Any,
        n_samples: int = 1,
        random_state: int | np.random.RandomState | None = None,
        include_noise: bool = False,
    ) -> np.ndarray:
        """Return (rows, n_samples) joint draws of f at the rows of X (of responses with noise)."""
        check_is_fitted(self)
        _check_count("n_samples", n_samples)
        encoded = self._encode(X)
        return self._posterior.sample(encoded, n_samples, _seed(random_state), include_noise)

    @property
    def parameters_(self) -> dict[str, Any]:
        """The estimated parameters on the user's scale.

        mean, signal_sd, noise_sd: of the process, in units of y; lengthscales: {numeric column:
        in its units, or in steps between the two levels}; latent_precision: {categorical column:
        gamma}; latents: {categorical column: DataFrame of coordinates}, in an arbitrary frame.
        """
        check_is_fitted(self)
        posterior = self._posterior
        values = posterior.parameters
        quantitative, qualitative = self.space_.quantitative, self.space_.qualitative
        mean = posterior.process_mean[0]
        return {
            "mean": posterior.y_mean + posterior.y_scale * float(mean[0]),
            "signal_sd": posterior.y_scale * float(np.sqrt(values.variance[0])),
            "noise_sd": posterior.y_scale * float(np.sqrt(values.noise[0] + self.draws_.jitter)),
            "lengthscales": {
                column.name: float(value) * column.width
                for column, value in zip(quantitative, values.lengthscales[0], strict=True)
            },
            "latent_precision": {
                column.name: float(value)
                for column, value in zip(qualitative, values.precisions[0], strict=True)
            },
            "latents": {
                column.name: pd.DataFrame(latents[0], index=list(column.levels))
                for column, latents in zip(qualitative, values.latents, strict=True)
            },
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to one file of arrays and JSON; `lvgp.load` reads it."""
        check_is_fitted(self)
        options = self.get_params(deep=False) | {
            "priors": asdict(self.priors_),
            "random_state": self.seed_,
        }
        saved = store.Saved(self.space_, self._posterior, options, version("lvgp"))
        store.write(path, saved)

    def _set_fitted(self, space: Space, posterior: Posterior) -> None:
        self.space_ = space
        self.priors_ = posterior.priors
        self.draws_ = posterior.draws
        self.seed_ = posterior.draws.seed
        self.optimization_: Optimization | None = posterior.draws.optimization
        self.n_features_in_ = len(space.columns)
        if space.named and all(isinstance(name, str) for name in space.names):
            self.feature_names_in_ = np.array(space.names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        self._posterior = posterior

    def _checked_options(self) -> Priors:
        _one_of("method", self.method, _METHODS)
        _one_of("kernel", self.kernel, tuple(KERNELS))
        _one_of("approximation", self.approximation, (None, "fitc", "vfe"))
        _one_of("unknown_levels", self.unknown_levels, ("error", "prior"))
        if self.method in ("bayes", "vi"):
            raise NotImplementedError(
                f'method="{self.method}" is not available yet; use method="map" or "mle"'
            )
        if self.approximation is not None:
            raise NotImplementedError("sparse approximations are not available yet")
        if self.unknown_levels == "prior":
            raise NotImplementedError('unknown_levels="prior" is not available yet')
        _check_count("restarts", self.restarts)
        priors = Priors.preset(self.priors) if isinstance(self.priors, str) else self.priors
        if not isinstance(priors, Priors):
            raise InputError(f"priors: expected a Priors value or a name, got {priors!r}")
        return priors.check()

    def _model(self, space: Space, table: pd.DataFrame, named: bool) -> Model:
        names = [column.name for column in space.qualitative]
        wanted: dict[Hashable, Any] = dict.fromkeys(names, 2)
        if isinstance(self.latent_dim, Mapping):
            wanted |= dict(column_keys(table, named, self.latent_dim, "latent_dim"))
            without = [name for name in wanted if name not in names]
            if without:
                raise InputError(
                    f"latent_dim: column {without[0]!r} has no latents: only categories with three "
                    f"levels or more do, here {names}"
                )
        else:
            wanted = dict.fromkeys(names, self.latent_dim)
        dims = []
        for column in space.qualitative:
            dim = wanted[column.name]
            if not _is_count(dim):
                raise InputError(
                    f"latent_dim: column {column.name!r} needs a positive integer, got {dim!r}"
                )
            if dim > len(column.levels) - 1:
                warn(
                    f"latent_dim: column {column.name!r} has {len(column.levels)} levels, which "
                    f"span at most {len(column.levels) - 1} dimensions; {dim} is lowered to that",
                    DataWarning,
                )
                dim = len(column.levels) - 1
            dims.append(int(dim))
        return Model(
            n_quantitative=len(space.quantitative),
            n_levels=tuple(len(column.levels) for column in space.qualitative),
            latent_dims=tuple(dims),
            kernel=self.kernel,
            plug_in_likelihood=self.method == "mle",
        )

    def _encode(self, X: Any) -> Encoded:
        return self.space_.encode(X, type(self).__name__)

    def _warn_if_overconfident(self) -> None:
        if self.draws_.is_plug_in and self.space_.qualitative:
            warn(
                f'method="{self.draws_.method}" plugs in one estimate of the latents, and its '
                "intervals ignore that they are uncertain: expect them to be too narrow, often "
                'by far with few rows a level. method="bayes" integrates over the latents',
                PlugInIntervalWarning,
            )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        return tags


def load(path: str | os.PathLike[str]) -> LVGPRegressor:
    """Return the fitted model that `LVGPRegressor.save` wrote to `path`."""
    saved = store.read(path)
    options = saved.options | {"priors": saved.posterior.priors}
    foreign = set(options) - set(LVGPRegressor().get_params(deep=False))
    if foreign:
        raise ModelFileError(f"{path}: holds options this library does not know: {sorted(foreign)}")
    model = LVGPRegressor(**options)
    model._set_fitted(saved.space, saved.posterior)
    return model


def _one_of(option: str, value: Any, allowed: tuple[Any, ...]) -> None:
    if value not in allowed:
        raise InputError(
            f"{option}: expected one of {', '.join(map(repr, allowed))}, got {value!r}"
        )


def _check_count(option: str, value: Any) -> None:
    if not _is_count(value):
        raise InputError(f"{option}: expected a positive integer, got {value!r}")


def _is_count(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 1


def _seed(random_state: int | np.random.RandomState | None) -> int:
    if isinstance(random_state, int | np.integer) and random_state >= 0:
        return int(random_state)
    if random_state is None:
        return int(np.random.SeedSequence().generate_state(1)[0])
    try:
        return int(check_random_state(random_state).randint(2**31 - 1))
    except ValueError:
        raise InputError(
            f"random_state: expected a non-negative integer, a RandomState or None, got "
            f"{random_state!r}"
        ) from None


def _index(X: Any) -> pd.Index | None:
    return X.index if isinstance(X, pd.DataFrame) else None
