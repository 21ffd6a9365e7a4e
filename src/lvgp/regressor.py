"""LVGPRegressor: the scikit-learn face of the model."""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from lvgp import compute, export, options, store
from lvgp.diagnostics import Diagnostics, diagnose
from lvgp.effects import main_effects
from lvgp.errors import (
    ConvergenceWarning,
    InputError,
    ModelFileError,
    PlugInIntervalWarning,
    warn,
)
from lvgp.infer.draws import Optimization
from lvgp.infer.run import Plan, infer
from lvgp.infer.sample import Budget
from lvgp.interpret import LatentMap, latent_map
from lvgp.kernels import KERNELS
from lvgp.leave_one_out import leave_one_out
from lvgp.model import Model, pack_rows
from lvgp.posterior import Posterior, Summary
from lvgp.priors import Priors
from lvgp.space import Encoded, Level, Space, build_space
from lvgp.table import as_table, check_response

_METHODS = ("bayes", "vi", "map", "mle")


class LVGPRegressor(RegressorMixin, BaseEstimator):
    """Gaussian-process regression on tables whose columns are partly categories.

    Each level of a categorical column is placed in a small latent space learned from the data, so
    that an ordinary kernel can measure how alike two levels are.

    Parameters
    ----------
    method : {"bayes", "vi", "map", "mle"}
        "bayes" integrates over all parameters by Markov chains: intervals that can be believed.
        "vi" approximates that by independent normals around the best mode: quick, rougher.
        "map" maximises the posterior density in the unconstrained coordinates (log-scales, raw
        latents), "mle" the likelihood alone; their intervals are too narrow.
    sampler : {"auto", "microcanonical", "nuts"}
        What samples for method="bayes". "auto" takes the Metropolis-adjusted microcanonical
        sampler, which measured faster than NUTS, the paper's.
    chains, warmup, draws, target_accept, time_limit, converge
        For method="bayes". Each of `chains` makes `warmup` transitions to adapt, then samples
        until R-hat is below 1.01 and the effective sample size at least 400 for all quantities
        that predictions and latent maps rest on (converge="predictions": predictions only), or
        until `draws` of each chain, or `time_limit` seconds, end it. A time limit makes results
        depend on the speed of the machine.
    latent_dim : int or {column: int}
        Dimensions of the latent space of each categorical column.
    kernel : {"rbf", "matern52", "matern32"}
        Family of the correlation.
    approximation, n_inducing
        None for the exact model, whose cost grows with the cube of the distinct rows; "fitc" or
        "vfe" for a sparse one through `n_inducing` points, linear in the rows.
    categorical : list of column names, optional
        Columns to treat as categories (positions for an array); by default all not numeric.
    levels : {column: list of levels}, optional
        All levels of a column, when the training table does not hold them all.
    bounds : {column: (low, high)}, optional
        Range that a numeric column is scaled by; by default the range in the training table.
    priors : Priors or str
        Prior distributions, or the name of a preset ("paper", "noisy").
    restarts : int
        Starts of the optimiser, which method="bayes" uses with an approximation only.
    unknown_levels : {"error", "prior"}
        What to do with a level at prediction that was never declared: refuse it, or give it
        latents drawn from their prior, so that its intervals are wide.
    random_state : int, RandomState or None
        Seed of everything random.
    progress : bool
        Show a progress bar on a terminal or in a notebook; elsewhere write a line now and then.

    Attributes
    ----------
    space_ : Space
        The columns as understood.
    response_ : str or None
        The name of y, when it was a Series with one.
    posterior_ : Posterior
        Training rows and draws, as everything that reads the fit takes them.
    draws_ : Draws
        The parameter vectors; predictions are made from 1000 of them, evenly spaced.
    diagnostics_ : Diagnostics
        Whether the fit can be trusted: a verdict, sentences, and a table.
    optimization_ : Optimization or None
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
        time_limit: float | None = None,
        converge: str = "all",
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
        self.time_limit = time_limit
        self.converge = converge
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
        priors, budget = self._checked_options()
        table, named = as_table(X)
        response = check_response(y, len(table))
        space = build_space(X, self.categorical, self.levels, self.bounds)
        model = Model(
            n_quantitative=len(space.quantitative),
            n_levels=tuple(len(column.levels) for column in space.qualitative),
            latent_dims=options.latent_dims(self.latent_dim, space, table, named),
            kernel=self.kernel,
            plug_in_likelihood=self.method == "mle",
            approximation=self.approximation,
        )
        y_mean, y_scale = float(response.mean()), float(response.std(ddof=1))
        # rounding lets y in other units, which standardises to the same but for its last bits, give
        # the same fit: chains would turn those bits into other draws
        standardised = np.round((response - y_mean) / y_scale, 10)
        training = space.encode(X)
        options.warn_of_many_levels(space, model, self.method, len(response))
        points = options.inducing(self.approximation, self.n_inducing, training)
        seed = options.seed(self.random_state)
        with compute.scope():
            rows = pack_rows(training.x, training.t, standardised)
            plan = Plan(self.method, budget, self.restarts, points, self.progress)
            draws = infer(model, rows, priors, plan, seed)
        name = getattr(y, "name", None)
        self.response_ = None if name is None else str(name)
        self._set_fitted(
            space, Posterior(model, priors, draws, training, standardised, y_mean, y_scale)
        )
        if not draws.is_plug_in and self.diagnostics_.verdict != "ok":
            warn(f"the fit is not ok: {self.diagnostics_}", ConvergenceWarning)
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
            return self.posterior_.mean_and_covariance(encoded)
        found = self._summary(encoded, np.empty(0))
        return (found.mean, found.sd) if return_std else found.mean

    def predict_interval(
        self, X: Any, coverage: float = 0.95, include_noise: bool = False
    ) -> pd.DataFrame:
        """Return mean and central interval at each row of X, as columns mean, lower, upper.

        The interval is for f, the noise-free response; with `include_noise`, for a new response.
        """
        check_is_fitted(self)
        tail = options.tail(coverage)
        encoded = self._encode(X)
        self._warn_if_overconfident()
        found = self._summary(encoded, np.array([tail, 1.0 - tail]), include_noise)
        lower, upper = found.quantiles.T
        columns = {"mean": found.mean, "lower": lower, "upper": upper}
        return pd.DataFrame(columns, index=_index(X))

    def predict_quantiles(
        self, X: Any, quantiles: Sequence[float], include_noise: bool = False
    ) -> pd.DataFrame:
        """Return the quantiles of f (of a new response with `include_noise`) at each row of X."""
        check_is_fitted(self)
        probabilities = options.probabilities(quantiles)
        encoded = self._encode(X)
        self._warn_if_overconfident()
        values = self._summary(encoded, probabilities, include_noise).quantiles
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
        options.count("n_samples", n_samples)
        encoded = self._encode(X)
        return self.posterior_.sample(encoded, n_samples, options.seed(random_state), include_noise)

    @property
    def diagnostics_(self) -> Diagnostics:
        """Whether the fit can be trusted, and why."""
        check_is_fitted(self)
        return self._diagnostics

    def loo(self, coverage: float = 0.95, include_noise: bool = True) -> pd.DataFrame:
        """Return each training row predicted from the others: mean, sd, lower, upper, pareto_k.

        By default for the response as measured, noise included. Rows are numbered as in the
        training table. Where `pareto_k` exceeds 0.7 the row is so influential that this shortcut
        is unreliable for it; with a point estimate the parameters are kept and it is NaN.
        """
        check_is_fitted(self)
        tail = options.tail(coverage)
        self._warn_if_overconfident()
        return leave_one_out(self.posterior_, include_noise).table(tail)

    def to_arviz(self) -> Any:
        """Return an `arviz.InferenceData` with all draws, named and scaled as the table is."""
        check_is_fitted(self)
        return export.to_arviz(self.posterior_, self.space_)

    @property
    def parameters_(self) -> dict[str, Any]:
        """The parameters on the user's scale: the estimate, or the mean over the draws.

        mean, signal_sd, noise_sd: of the process, in units of y; lengthscales: {numeric column:
        in its units, or in steps between the two levels}; latent_precision: {categorical column:
        gamma}; for a point estimate also latents: {categorical column: DataFrame of coordinates},
        in an arbitrary frame. All draws are in `to_arviz()`.
        """
        check_is_fitted(self)
        return export.user_parameters(self.posterior_, self.space_)

    def main_effect(self, column: Hashable, coverage: float = 0.95) -> pd.DataFrame:
        """Return how f changes with one column, averaged over training rows (partial dependence).

        Columns value, mean, lower, upper: the levels of a category, or points along a number.
        """
        check_is_fitted(self)
        coverage = 1.0 - 2.0 * options.tail(coverage)
        found = main_effects(self.posterior_, self.space_, [column], coverage, self.progress)
        if column not in found:
            raise InputError(f"column {column!r}: not an input that varies; of {self.space_.names}")
        return found[column]

    def latent_map(self, column: Hashable) -> LatentMap:
        """Return the map of a categorical column's levels, with its uncertainty.

        The representative map of the draws (paper), or of a point estimate its latents; made anew
        by each call, always the same.
        """
        check_is_fitted(self)
        names = [qualitative.name for qualitative in self.space_.qualitative]
        if column not in names:
            raise InputError(
                f"column {column!r} has no latent map: only categories with three levels or more "
                f"do, here {names}"
            )
        at = names.index(column)
        found = self.space_.qualitative[at]
        latents = np.asarray(self.posterior_.parameters.latents[at])
        kernel = self.posterior_.model.kernel
        return latent_map(kernel, column, found.levels, found.counts, latents)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to one file of arrays and JSON; `lvgp.load` reads it."""
        check_is_fitted(self)
        chosen = self.get_params(deep=False) | {
            "priors": asdict(self.priors_),
            "random_state": self.seed_,
        }
        saved = store.Saved(self.space_, self.posterior_, chosen, version("lvgp"), self.response_)
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
        self.posterior_ = posterior
        self._diagnostics = diagnose(
            posterior.draws, posterior.model, space, posterior.watched, self.converge == "all"
        )

    def _checked_options(self) -> tuple[Priors, Budget]:
        options.one_of("method", self.method, _METHODS)
        options.one_of("kernel", self.kernel, tuple(KERNELS))
        options.one_of("approximation", self.approximation, (None, "fitc", "vfe"))
        options.one_of("unknown_levels", self.unknown_levels, ("error", "prior"))
        options.count("restarts", self.restarts)
        budget = options.budget(
            self.sampler,
            self.chains,
            self.warmup,
            self.draws,
            self.target_accept,
            self.time_limit,
            self.converge,
            self.method,
        )
        return options.checked_priors(self.priors, self.approximation is not None), budget

    def _encode(self, X: Any) -> Encoded:
        return self.space_.encode(X, type(self).__name__, self.unknown_levels == "prior")

    def _summary(
        self, encoded: Encoded, probabilities: np.ndarray, include_noise: bool = False
    ) -> Summary:
        return self.posterior_.summary(encoded, probabilities, include_noise, self.progress)

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
    chosen = saved.options | {"priors": saved.posterior.priors}
    foreign = set(chosen) - set(LVGPRegressor().get_params(deep=False))
    if foreign:
        raise ModelFileError(f"{path}: holds options this library does not know: {sorted(foreign)}")
    model = LVGPRegressor(**chosen)
    model.response_ = saved.response
    model._set_fitted(saved.space, saved.posterior)
    return model


def _index(X: Any) -> pd.Index | None:
    return X.index if isinstance(X, pd.DataFrame) else None
