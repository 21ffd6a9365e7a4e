"""The draws as an ArviZ InferenceData, with the names and units of the user's table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from lvgp.infer.convergence import import_arviz
from lvgp.interpret import correlations
from lvgp.leave_one_out import pointwise
from lvgp.mixture import Components, mixture_quantile
from lvgp.model import Parameters
from lvgp.posterior import Posterior
from lvgp.space import Space

_PIECE = 256
_TAILS = (0.025, 0.975)


def to_arviz(posterior: Posterior, space: Space) -> Any:
    """Return all draws by chain: parameters, sample statistics, pointwise log densities.

    posterior: mean, signal_sd, noise_sd in units of y, lengthscale in units of each column,
    latent_precision, and correlation_<column> between levels. log_likelihood holds
    log p(y_i | the other rows, draw), the density that `arviz.loo` needs for a Gaussian process.
    unconstrained_posterior holds the latents, whose frame of reference is arbitrary in each draw.
    """
    draws, names = posterior.draws, _Names(space)
    parameters = posterior.parameters_at(draws.vectors)
    process, log_densities = _left_out(posterior)
    groups: dict[str, Any] = {
        "posterior": _variables(posterior, space, parameters, process, names),
        "sample_stats": _statistics(posterior),
        "log_likelihood": {"y": log_densities - np.log(posterior.y_scale)},
    }
    by_chain: dict[str, Any] = {
        group: {name: draws.by_chain(np.asarray(part)) for name, part in variables.items()}
        for group, variables in groups.items()
    }
    observed = {"y": posterior.y_mean + posterior.y_scale * posterior.y}
    named: dict[str, Any] = {"coords": names.coordinates, "dims": names.dims}
    attributes = {"inference_library": "lvgp", "method": draws.method, "seed": draws.seed}
    data = import_arviz().from_dict(**by_chain, observed_data=observed, attrs=attributes, **named)
    if space.qualitative:
        latents = {
            f"latent_{names.of(column.name)}": draws.by_chain(np.asarray(part))
            for column, part in zip(space.qualitative, parameters.latents, strict=True)
        }
        dims = {f"latent_{name}": dims for name, dims in names.latent_dims.items()}
        data.add_groups(unconstrained_posterior=latents, coords=names.coordinates, dims=dims)
    return data


class _Process(NamedTuple):
    """Of each draw: mean and variance of mu given the other parameters, and noise variance."""

    mean: np.ndarray
    mean_variance: np.ndarray
    noise: np.ndarray


def _left_out(posterior: Posterior) -> tuple[_Process, np.ndarray]:
    """Return mu and noise of every draw, and log p(y_i | the other rows, draw).

    In pieces: what is computed on the way would take many times the memory of the result.
    """
    vectors = posterior.draws.vectors
    log_densities = np.empty((len(vectors), len(posterior.y)))
    found = []
    for start in range(0, len(vectors), _PIECE):
        piece = slice(start, start + _PIECE)
        loo = pointwise(posterior, vectors[piece])
        log_densities[piece] = loo.log_densities(posterior.y)
        found.append(_Process(loo.process_mean, loo.process_mean_variance, loo.noise))
    return _Process(*(np.concatenate(part) for part in zip(*found, strict=True))), log_densities


class _Names:
    """Dimensions and coordinates: the table's columns and levels."""

    def __init__(self, space: Space) -> None:
        self.dims = {
            "y": ["row"],
            "lengthscale": ["numeric_column"],
            "latent_precision": ["categorical_column"],
        }
        self.latent_dims: dict[str, list[str]] = {}
        self.coordinates: dict[str, list[Any]] = {
            "numeric_column": [self.of(column.name) for column in space.quantitative],
            "categorical_column": [self.of(column.name) for column in space.qualitative],
        }
        own = {f"{self.of(column.name)}_level" for column in space.qualitative}
        for column in space.qualitative:
            name = self.of(column.name)
            level, other = f"{name}_level", f"{name}_other_level"
            # the column "site_other" has this name for its own levels
            other = f"{other}_" if other in own else other
            self.coordinates |= dict.fromkeys((level, other), _texts(column.levels))
            self.dims[f"correlation_{name}"] = [level, other]
            self.latent_dims[name] = [level, f"{name}_dimension"]

    @staticmethod
    def of(column: Any) -> str:
        return str(column)


def _texts(levels: Sequence[Any]) -> list[str]:
    """Return the levels' names; 1 and "1" told apart where a column has both."""
    texts = [str(level) for level in levels]
    return texts if len(set(texts)) == len(texts) else [repr(level) for level in levels]


def _in_users_units(
    posterior: Posterior, space: Space, parameters: Parameters, mean: Any, noise: Any
) -> dict[str, np.ndarray]:
    """Return the parameters of each draw in units of y and of the columns; mu and noise given."""
    scale = posterior.y_scale
    widths = np.array([column.width for column in space.quantitative])
    return {
        "mean": posterior.y_mean + scale * np.asarray(mean),
        "signal_sd": scale * np.sqrt(parameters.variance),
        "noise_sd": scale * np.sqrt(noise),
        "lengthscale": np.asarray(parameters.lengthscales) * widths,
        "latent_precision": np.asarray(parameters.precisions),
    }


def _of_draws_kept(posterior: Posterior, space: Space) -> dict[str, np.ndarray]:
    mean, noise = posterior.process_mean[0], posterior.noise
    return _in_users_units(posterior, space, posterior.parameters, mean, noise)


def _variables(
    posterior: Posterior, space: Space, parameters: Parameters, process: _Process, names: _Names
) -> dict[str, Any]:
    normals = np.random.default_rng([posterior.draws.seed, 5]).standard_normal(len(process.mean))
    # mu was integrated out; given the other parameters it is normal
    mean = process.mean + np.sqrt(process.mean_variance) * normals
    found = _in_users_units(posterior, space, parameters, mean, process.noise)
    # ArviZ has no use for a variable without a column
    variables = {name: values for name, values in found.items() if values.size}
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
    values = _of_draws_kept(posterior, space)
    rows = {"sd of the signal": values["signal_sd"], "sd of the noise": values["noise_sd"]}
    for column, draws in zip(space.quantitative, values["lengthscale"].T, strict=True):
        rows[f"lengthscale of {column.name}"] = draws
    for column, draws in zip(space.qualitative, values["latent_precision"].T, strict=True):
        rows[f"precision of the latents of {column.name}"] = draws
    sds = posterior.y_scale * np.sqrt(posterior.process_mean[1])
    mixture = Components(values["mean"][:, None], sds[:, None])
    ends = [float(mixture_quantile(mixture, tail)[0]) for tail in _TAILS]
    summaries = {"mean of the process": [values["mean"].mean(), *ends]} | {
        name: [draws.mean(), *np.quantile(draws, _TAILS)] for name, draws in rows.items()
    }
    return pd.DataFrame.from_dict(summaries, "index", columns=["mean", "lower", "upper"])


def user_parameters(posterior: Posterior, space: Space) -> dict[str, Any]:
    """Return the estimate, or the mean over the draws kept, on the user's scale."""
    values = {name: draws.mean(axis=0) for name, draws in _of_draws_kept(posterior, space).items()}
    found: dict[str, Any] = {
        name: float(values[name]) for name in ("mean", "signal_sd", "noise_sd")
    }
    for name, columns, means in (
        ("lengthscales", space.quantitative, values["lengthscale"]),
        ("latent_precision", space.qualitative, values["latent_precision"]),
    ):
        found[name] = {
            column.name: float(mean) for column, mean in zip(columns, means, strict=True)
        }
    if posterior.draws.is_plug_in:
        found["latents"] = {
            column.name: pd.DataFrame(latents[0], index=list(column.levels))
            for column, latents in zip(space.qualitative, posterior.parameters.latents, strict=True)
        }
    return found
