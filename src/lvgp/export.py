"""The draws as an ArviZ InferenceData, with the names and units of the user's table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from lvgp.interpret import correlations
from lvgp.leave_one_out import pointwise
from lvgp.model import Parameters
from lvgp.posterior import Posterior
from lvgp.space import Space


def to_arviz(posterior: Posterior, space: Space) -> Any:
    """Return all draws by chain: parameters, sample statistics, pointwise log densities.

    posterior: mean, signal_sd, noise_sd in units of y, lengthscale in units of each column,
    latent_precision, and correlation_<column> between levels. log_likelihood holds
    log p(y_i | the other rows, draw), the density that `arviz.loo` needs for a Gaussian process.
    unconstrained_posterior holds the latents, whose frame of reference is arbitrary in each draw.
    """
    import arviz

    draws, names = posterior.draws, _Names(space)
    parameters = posterior.parameters_at(draws.vectors)
    loo = pointwise(posterior, draws.vectors)
    groups: dict[str, Any] = {
        "posterior": _user_scale(posterior, space, parameters, loo, names),
        "sample_stats": _statistics(posterior),
        "log_likelihood": {"y": loo.log_densities(posterior.y) - np.log(posterior.y_scale)},
    }
    by_chain: dict[str, Any] = {
        group: {name: draws.by_chain(np.asarray(part)) for name, part in variables.items()}
        for group, variables in groups.items()
    }
    observed = {"y": posterior.y_mean + posterior.y_scale * posterior.y}
    named: dict[str, Any] = {"coords": names.coordinates, "dims": names.dims}
    attributes = {"inference_library": "lvgp", "method": draws.method, "seed": draws.seed}
    data = arviz.from_dict(**by_chain, observed_data=observed, attrs=attributes, **named)
    if space.qualitative:
        latents = {
            f"latent_{names.of(column.name)}": draws.by_chain(np.asarray(part))
            for column, part in zip(space.qualitative, parameters.latents, strict=True)
        }
        data.add_groups(unconstrained_posterior=latents, **named)
    return data


class _Names:
    """Dimensions and coordinates: the table's columns and levels."""

    def __init__(self, space: Space) -> None:
        self.dims = {
            "y": ["row"],
            "lengthscale": ["numeric_column"],
            "latent_precision": ["categorical_column"],
        }
        self.coordinates: dict[str, list[Any]] = {
            "numeric_column": [self.of(column.name) for column in space.quantitative],
            "categorical_column": [self.of(column.name) for column in space.qualitative],
        }
        for column in space.qualitative:
            name = self.of(column.name)
            levels = [str(level) for level in column.levels]
            self.coordinates |= {f"{name}_level": levels, f"{name}_other_level": levels}
            self.dims[f"correlation_{name}"] = [f"{name}_level", f"{name}_other_level"]
            self.dims[f"latent_{name}"] = [f"{name}_level", f"{name}_dimension"]

    @staticmethod
    def of(column: Any) -> str:
        return str(column)


def _user_scale(
    posterior: Posterior, space: Space, parameters: Parameters, loo: Any, names: _Names
) -> dict[str, Any]:
    rng = np.random.default_rng([posterior.draws.seed, 5])
    # mu was integrated out; given the other parameters it is normal
    mean = loo.process_mean + np.sqrt(loo.process_mean_variance) * rng.standard_normal(
        len(loo.process_mean)
    )
    variables = {
        "mean": posterior.y_mean + posterior.y_scale * mean,
        "signal_sd": posterior.y_scale * np.sqrt(parameters.variance),
        "noise_sd": posterior.y_scale * np.sqrt(loo.noise),
    }
    if space.quantitative:
        widths = np.array([column.width for column in space.quantitative])
        variables["lengthscale"] = parameters.lengthscales * widths
    if space.qualitative:
        variables["latent_precision"] = parameters.precisions
    for column, latents in zip(space.qualitative, parameters.latents, strict=True):
        correlation, _ = correlations(posterior.model.kernel, np.asarray(latents))
        variables[f"correlation_{names.of(column.name)}"] = correlation
    return variables


def _statistics(posterior: Posterior) -> dict[str, np.ndarray]:
    draws, sampling = posterior.draws, posterior.draws.sampling
    statistics = {"lp": draws.log_densities}
    if sampling is not None:
        statistics |= {
            "diverging": sampling.divergent.ravel(),
            "acceptance_rate": sampling.acceptance.ravel(),
            "n_steps": sampling.steps.ravel(),
        }
        if not np.isnan(sampling.energy).any():
            statistics["energy"] = sampling.energy.ravel()
    return statistics


def hyperparameters(posterior: Posterior, space: Space) -> pd.DataFrame:
    """Return mean and 95 % interval over the draws kept, by name in words, on the user's scale."""
    values, scale = posterior.parameters, posterior.y_scale
    rows = {
        "mean of the process": posterior.y_mean + scale * posterior.process_mean[0],
        "sd of the signal": scale * np.sqrt(values.variance),
        "sd of the noise": scale * np.sqrt(posterior.noise),
    }
    for position, column in enumerate(space.quantitative):
        draws = np.asarray(values.lengthscales)[:, position] * column.width
        rows[f"lengthscale of {column.name}"] = draws
    for position, column in enumerate(space.qualitative):
        draws = np.asarray(values.precisions)[:, position]
        rows[f"precision of the latents of {column.name}"] = draws
    tails = {name: np.quantile(draws, [0.025, 0.975]) for name, draws in rows.items()}
    columns = {
        "mean": [float(np.mean(draws)) for draws in rows.values()],
        "lower": [float(lower) for lower, _ in tails.values()],
        "upper": [float(upper) for _, upper in tails.values()],
    }
    return pd.DataFrame(columns, index=list(rows))


def user_parameters(posterior: Posterior, space: Space) -> dict[str, Any]:
    """Return the estimate, or the mean over the draws kept, on the user's scale."""
    values, scale = posterior.parameters, posterior.y_scale
    found: dict[str, Any] = {
        "mean": posterior.y_mean + scale * float(posterior.process_mean[0].mean()),
        "signal_sd": scale * float(np.sqrt(values.variance).mean()),
        "noise_sd": scale * float(np.sqrt(posterior.noise).mean()),
        "lengthscales": {
            column.name: float(value) * column.width
            for column, value in zip(space.quantitative, values.lengthscales.mean(0), strict=True)
        },
        "latent_precision": {
            column.name: float(value)
            for column, value in zip(space.qualitative, values.precisions.mean(0), strict=True)
        },
    }
    if posterior.draws.is_plug_in:
        found["latents"] = {
            column.name: pd.DataFrame(latents[0], index=list(column.levels))
            for column, latents in zip(space.qualitative, values.latents, strict=True)
        }
    return found
