"""Can the fit be trusted? Numbers on identified quantities, and the verdict a person reads."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from lvgp.infer.convergence import (
    LEAST_ESS,
    LEAST_TAIL_ESS,
    MOST_R_HAT,
    import_arviz,
    layout,
)
from lvgp.infer.draws import Draws, Optimization, Sampling, Variational
from lvgp.model import Model
from lvgp.space import Space

DOZENS_OF_LEVELS = 30

Judgement = Literal["ok", "caution", "bad"]
_ORDER: tuple[Judgement, ...] = ("ok", "caution", "bad")
_CAUTION_R_HAT, _CAUTION_ESS, _CAUTION_TAIL_ESS = 1.05, 100.0, 25.0
_MANY_DIVERGENCES, _TOO_MANY_DIVERGENCES = 0.005, 0.05
_LOW_E_BFMI = 0.3
_MANY_SATURATED = 0.1
_HIGH_PARETO_K = 0.7
_MANY_LEVELS = 8
_ROOM = (
    "Chains often agree sooner when levels have more room to pass each other on the latent map: "
    "try latent_dim={!r}."
)
_COLUMNS = ["ess_bulk", "ess_tail", "r_hat", "concerns"]


@dataclass(frozen=True)
class Diagnostics:
    """What is known about the quality of a fit.

    Attributes
    ----------
    verdict
        "ok", "caution" or "bad": the worse of `predictions` and `maps`, or `predictions` alone
        when the fit was asked to converge for predictions only.
    predictions, maps
        The same words for predictions and their intervals, and for the latent maps.
    messages
        Sentences that say why, and what to do.
    table
        For each identified quantity: bulk and tail effective sample size, R-hat, and whether
        predictions or maps rest on it. Empty when no Markov chains were run.
    divergences
        How many trajectories went numerically astray.
    e_bfmi
        E-BFMI of each chain; empty for samplers that keep no energy.
    saturation
        Share of trajectories that were cut off at their greatest length.
    pareto_k
        How far a variational approximation lies from the posterior: below 0.7 near; NaN elsewhere.
    """

    verdict: Judgement
    predictions: Judgement
    maps: Judgement
    messages: tuple[str, ...]
    table: pd.DataFrame
    divergences: int = 0
    e_bfmi: tuple[float, ...] = ()
    saturation: float = 0.0
    pareto_k: float = float("nan")

    def __str__(self) -> str:
        heading = f"{self.verdict} (predictions: {self.predictions}, latent maps: {self.maps})"
        return "\n".join([heading, *(f"- {message}" for message in self.messages)])


def diagnose(
    draws: Draws, model: Model, space: Space, watched: np.ndarray, maps_too: bool
) -> Diagnostics:
    """Judge draws of any method; `watched` are the training rows whose predictions were watched."""
    if draws.sampling is not None:
        return _of_chains(draws.sampling, model, space, watched, maps_too)
    if draws.variational is not None:
        return _of_approximation(draws.variational)
    return _of_estimate(draws, bool(space.qualitative))


def _of_chains(
    sampling: Sampling, model: Model, space: Space, watched: np.ndarray, maps_too: bool
) -> Diagnostics:
    places = layout(model, len(watched))
    found = sampling.convergence
    table = pd.DataFrame(
        {
            "ess_bulk": found.ess_bulk,
            "ess_tail": found.ess_tail,
            "r_hat": found.r_hat,
            "concerns": np.where(places.for_maps, "maps", "predictions"),
        },
        index=pd.Index(list(_names(space, watched)), name="quantity"),
    )
    divergences = int(sampling.divergent.sum())
    e_bfmi = _e_bfmi(sampling.energy)
    saturation = float((sampling.steps >= sampling.most_steps).mean())
    everywhere, troubles = _of_trajectories(sampling, divergences, e_bfmi, saturation)
    judgements: dict[str, Judgement] = {}
    messages = []
    for concern, words in (("predictions", "Predictions"), ("maps", "Latent maps")):
        part = table[table["concerns"] == concern]
        judgements[concern] = _worse(_judged(part), everywhere)
        if len(part):
            messages.append(_sentence(words, judgements[concern], part, sampling.chains))
    predictions, maps = judgements["predictions"], judgements["maps"]
    verdict = _worse(predictions, maps) if maps_too else predictions
    messages += troubles + _advice(sampling, verdict, predictions)
    asked = table if maps_too else table[table["concerns"] == "predictions"]
    if sampling.ended in ("time", "draws") and not (asked["r_hat"] < MOST_R_HAT).all():
        roomy = roomier(space, model, _MANY_LEVELS)
        messages += [_ROOM.format(roomy)] if roomy else []
    messages += _of_points(model.approximation)
    return Diagnostics(
        verdict, predictions, maps, tuple(messages), table, divergences, e_bfmi, saturation
    )


def _of_points(approximation: str | None) -> list[str]:
    """Say what inducing points leave open."""
    if approximation is None:
        return []
    messages = [
        "All chains started around one mode, with the inducing points found there: that they "
        "agree says little about other modes."
    ]
    if approximation == "vfe":
        messages.append(
            "VFE takes for noise what its inducing points miss, more so in many latent dimensions: "
            "intervals for f, which leave noise out, can be too narrow. Intervals with "
            'include_noise=True hold it, and approximation="fitc" is the check.'
        )
    return messages


def _judged(part: pd.DataFrame) -> Judgement:
    """Judge by the worst quantity: R-hat, bulk ESS, tail ESS."""

    def within(r_hat: float, ess: float, tail: float) -> bool:
        return bool(
            (part["r_hat"] < r_hat).all()
            and (part["ess_bulk"] >= ess).all()
            and (part["ess_tail"] >= tail).all()
        )

    if within(MOST_R_HAT, LEAST_ESS, LEAST_TAIL_ESS):
        return "ok"
    return "caution" if within(_CAUTION_R_HAT, _CAUTION_ESS, _CAUTION_TAIL_ESS) else "bad"


def _sentence(words: str, judgement: Judgement, part: pd.DataFrame, chains: int) -> str:
    least, most, tail = part["ess_bulk"].min(), part["r_hat"].max(), part["ess_tail"].min()
    figures = f"largest R-hat {most:.3f}, smallest ESS {least:.0f}, in the tails {tail:.0f}"
    short = part[
        ~(part["r_hat"] < MOST_R_HAT)
        | ~(part["ess_bulk"] >= LEAST_ESS)
        | ~(part["ess_tail"] >= LEAST_TAIL_ESS)
    ]
    if not len(short):
        agree = f"the {chains} chains agree" if chains > 1 else "the chain agrees with itself"
        return f"{words}: {judgement}. Over {len(part)} quantities {agree} ({figures})."
    worst = short.sort_values(["r_hat", "ess_bulk"], ascending=[False, True]).index[:3]
    return (
        f"{words}: {judgement}. {len(short)} of {len(part)} quantities are not known well enough "
        f"yet ({figures}; asked for: below {MOST_R_HAT}, at least {LEAST_ESS:.0f}, in the tails "
        f"{LEAST_TAIL_ESS:.0f}). "
        f"Worst: {'; '.join(worst)}."
    )


def _of_trajectories(
    sampling: Sampling, divergences: int, e_bfmi: tuple[float, ...], saturation: float
) -> tuple[Judgement, list[str]]:
    """Judge what went wrong on the way, with sentences."""
    judgement: Judgement = "ok"
    messages = []
    share = divergences / sampling.divergent.size
    if share > _MANY_DIVERGENCES:
        judgement = "bad" if share > _TOO_MANY_DIVERGENCES else "caution"
        messages.append(
            f"{divergences} of {sampling.divergent.size} trajectories diverged: part of the "
            "posterior was not explored. Raise target_accept towards 0.95, or noise_floor in "
            "Priors when the response has no noise."
        )
    if min(e_bfmi, default=1.0) < _LOW_E_BFMI:
        judgement = _worse(judgement, "caution")
        messages.append(
            f"E-BFMI is {min(e_bfmi):.2f} in the worst chain (below {_LOW_E_BFMI}): the tails of "
            "the posterior were explored slowly, and widths of intervals are rough."
        )
    if saturation > _MANY_SATURATED:
        messages.append(
            f"{saturation:.0%} of the trajectories were cut off at {sampling.most_steps} steps: "
            "sampling is slow here, not wrong."
        )
    return judgement, messages


def _advice(sampling: Sampling, verdict: Judgement, predictions: Judgement) -> list[str]:
    messages = []
    if sampling.chains == 1:
        messages.append(
            "A single chain cannot show that it missed part of the posterior; use chains=4."
        )
    if sampling.ended == "interrupted":
        messages.append(
            f"Sampling was interrupted from the keyboard after {sampling.draws} draws of each "
            "chain; what was drawn is kept. Let it run to the end for more."
        )
    if sampling.ended == "time":
        messages.append(
            f"The time limit ended sampling after {sampling.draws} draws of each chain."
        )
    limit = {"time": "time_limit", "draws": "draws"}.get(sampling.ended)
    if verdict != "ok" and limit:
        messages.append(
            f"To improve, sample longer: raise {limit} ({sampling.draws} draws of each chain were "
            f"made in {sampling.seconds:.0f} s)."
        )
    if verdict != "ok" and predictions == "ok":
        messages.append(
            "Predictions at rows like those of the table are known well enough: several latent "
            'maps explain the data equally well. If only predictions matter, use converge="'
            'predictions".'
        )
    return messages


def roomier(space: Space, model: Model, least: int) -> dict[Hashable, int]:
    """Return the latent dimensions to try for columns of at least `least` levels that have fewer.

    On a plane levels are in each other's way when a chain should move them; in three dimensions,
    or eight when there are dozens of levels, they can pass. VFE's penalty grows with the space
    that inducing points have to span, and five serve it better (measured in docs/large-data.md).
    """
    found = {}
    most = 5 if model.approximation == "vfe" else 8
    for column, dim in zip(space.qualitative, model.latent_dims, strict=True):
        advised = most if len(column.levels) >= DOZENS_OF_LEVELS else 3
        if len(column.levels) >= least and dim < advised:
            found[column.name] = advised
    return found


def _e_bfmi(energy: np.ndarray) -> tuple[float, ...]:
    """Return mean squared change of the energy over its variance, chain by chain."""
    if np.isnan(energy).any() or energy.shape[1] < 3:
        return ()
    change = (np.diff(energy, axis=1) ** 2).mean(axis=1)
    return tuple((change / energy.var(axis=1)).tolist())


def _of_approximation(variational: Variational) -> Diagnostics:
    pareto_k = _pareto_k(variational.log_weights)
    messages = [
        "This is a variational approximation: independent normals around one mode. It is quick "
        'and usually close in predictions, but can understate uncertainty; method="bayes" is the '
        "check."
    ]
    judgement: Judgement = "ok"
    if not pareto_k < _HIGH_PARETO_K:
        judgement = "caution"
        messages.append(
            f"Pareto k is {pareto_k:.2f} (above {_HIGH_PARETO_K}): the approximation differs "
            "visibly from the posterior. Treat intervals and latent maps as rough."
        )
    if not variational.settled:
        judgement = "bad"
        messages.append(
            f"The bound was still rising after {len(variational.elbo)} stretches of optimisation: "
            'the approximation has not converged. Use method="bayes".'
        )
    empty = pd.DataFrame(columns=_COLUMNS)
    return Diagnostics(judgement, judgement, judgement, tuple(messages), empty, pareto_k=pareto_k)


def _pareto_k(log_weights: np.ndarray) -> float:
    return float(import_arviz().psislw(log_weights)[1])


def _of_estimate(draws: Draws, has_latents: bool) -> Diagnostics:
    messages = [f'method="{draws.method}" gives one estimate; no chains were run.']
    if draws.optimization is not None:
        messages.append(_of_search(draws.optimization, draws.inducing is not None))
    judgement: Judgement = "ok"
    if has_latents:
        judgement = "caution"
        messages.append(
            "Its intervals ignore that the latents are uncertain and are too narrow, often by "
            'far; its latent map shows no uncertainty. method="bayes" integrates over the latents.'
        )
    return Diagnostics(
        judgement, judgement, judgement, tuple(messages), pd.DataFrame(columns=_COLUMNS)
    )


def _of_search(found: Optimization, sparse: bool) -> str:
    """Say how sure one can be that the best mode was found."""
    if sparse:
        limit = f"; {found.unconverged} ended at the limit of steps" if found.unconverged else ""
        return (
            f"{found.reached} of the {found.starts} best searches, the only ones carried to the "
            f"end, reached the best mode found{limit}."
        )
    redrawn = "" if found.reached else "; it was found by redrawing latents of the best start"
    return f"{found.reached} of {found.starts} starts reached the best mode found{redrawn}."


def _names(space: Space, watched: np.ndarray) -> Iterator[str]:
    """Name the identified quantities, in the order of `layout`."""
    yield from ("signal_sd", "noise_sd")
    yield from (f"lengthscale[{column.name}]" for column in space.quantitative)
    yield from (f"latent_precision[{column.name}]" for column in space.qualitative)
    for column in space.qualitative:
        yield from _pairs(str(column.name), [str(level) for level in column.levels])
    yield "log_density"
    yield from (f"prediction[row {row}]" for row in watched)


def _pairs(column: str, levels: Sequence[str]) -> Iterator[str]:
    for first, level in enumerate(levels):
        yield from (f"correlation[{column}: {level}, {other}]" for other in levels[first + 1 :])


def _worse(first: Judgement, second: Judgement) -> Judgement:
    return _ORDER[max(_ORDER.index(first), _ORDER.index(second))]
