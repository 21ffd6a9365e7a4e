"""The verdict a person reads, and the sentences that go with it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest

from lvgp.diagnostics import diagnose, roomier
from lvgp.infer.convergence import layout
from lvgp.infer.draws import Convergence, Draws, Optimization, Sampling, Variational
from lvgp.model import Model
from lvgp.space import build_space

X = pd.DataFrame({"alloy": list("ABCABCABC"), "heat": np.linspace(0, 1, 9)})
SPACE = build_space(X)
MODEL = Model(1, (3,), (2,))
ROWS = np.arange(9)
PLACES = layout(MODEL, 9)


def chains(**changes):
    size = PLACES.size
    good = Convergence(np.full(size, 900.0), np.full(size, 700.0), np.full(size, 1.002))
    shape = (4, 500)
    usual = {
        "sampler": "nuts",
        "warmup": 100,
        "acceptance": np.full(shape, 0.9),
        "steps": np.full(shape, 15),
        "divergent": np.zeros(shape, bool),
        "energy": np.random.default_rng(0).standard_normal(shape),
        "step_sizes": (0.5,) * 4,
        "length": np.nan,
        "most_steps": 1023,
        "ended": "converged",
        "convergence": good,
        "gradients": 1,
        "seconds": 12.0,
        "warmup_seconds": 3.0,
    }
    return Sampling(**(usual | changes))


def spoiled(quantity, **values):
    """Good convergence, but for one quantity."""
    found = chains().convergence
    for name, value in values.items():
        getattr(found, name)[quantity] = value
    return found


def judged(sampling, maps_too=True):
    draws = Draws("bayes", np.zeros((2000, MODEL.size)), np.zeros(2000), 0, sampling=sampling)
    return diagnose(draws, MODEL, SPACE, ROWS, maps_too)


def test_good_chains_are_ok():
    found = judged(chains())
    assert (found.verdict, found.predictions, found.maps) == ("ok", "ok", "ok")
    assert "4 chains agree" in found.messages[0]


def test_table_names_every_quantity_as_the_user_does():
    table = judged(chains()).table
    assert list(table.columns) == ["ess_bulk", "ess_tail", "r_hat", "concerns"]
    assert table.index.is_unique
    assert {
        "signal_sd",
        "noise_sd",
        "lengthscale[heat]",
        "latent_precision[alloy]",
        "correlation[alloy: A, B]",
        "correlation[alloy: B, C]",
        "log_density",
        "prediction[row 0]",
        "prediction[row 8]",
    } <= set(table.index)
    assert table.loc["correlation[alloy: A, C]", "concerns"] == "maps"
    assert table.loc["noise_sd", "concerns"] == "predictions"


@pytest.mark.parametrize(
    ("values", "judgement"),
    [
        ({"r_hat": 1.02}, "caution"),
        ({"ess_bulk": 300.0}, "caution"),
        ({"ess_tail": 60.0}, "caution"),
        ({"r_hat": 1.2}, "bad"),
        ({"ess_bulk": 20.0}, "bad"),
        ({"r_hat": np.nan}, "bad"),
    ],
)
def test_predictions_and_maps_are_judged_apart(values, judgement):
    bad_map = judged(chains(convergence=spoiled(PLACES.correlations[0].start, **values)))
    assert (bad_map.predictions, bad_map.maps, bad_map.verdict) == ("ok", judgement, judgement)
    text = " ".join(bad_map.messages)
    assert "correlation[alloy: A, B]" in text
    assert "known well enough" in text
    bad_fit = judged(chains(convergence=spoiled(PLACES.fitted.start, **values)))
    assert (bad_fit.predictions, bad_fit.maps, bad_fit.verdict) == (judgement, "ok", judgement)
    assert "prediction[row 0]" in " ".join(bad_fit.messages)


def test_verdict_is_on_what_was_asked_for():
    sampling = chains(convergence=spoiled(PLACES.correlations[0].start, r_hat=1.3))
    assert judged(sampling, maps_too=True).verdict == "bad"
    assert judged(sampling, maps_too=False).verdict == "ok"


def test_divergences_spoil_everything():
    few, many = np.zeros((4, 500), bool), np.zeros((4, 500), bool)
    few[0, :15], many[0, :200] = True, True
    caution, bad = judged(chains(divergent=few)), judged(chains(divergent=many))
    assert (caution.verdict, caution.divergences) == ("caution", 15)
    assert (bad.verdict, bad.divergences) == ("bad", 200)
    assert "15 of 2000 trajectories diverged" in " ".join(caution.messages)


def test_e_bfmi_is_mean_squared_change_over_variance():
    rng = np.random.default_rng(1)
    energy = rng.standard_normal((4, 500))
    energy[1] = np.cumsum(energy[1])
    found = judged(chains(energy=energy))
    expected = [np.mean(np.diff(e) ** 2) / np.var(e) for e in energy]
    np.testing.assert_allclose(found.e_bfmi, expected)
    assert found.verdict == "caution"
    assert "E-BFMI" in " ".join(found.messages)
    assert judged(chains(energy=np.full((4, 500), np.nan))).e_bfmi == ()


def test_saturated_trajectories_are_mentioned():
    steps = np.full((4, 500), 15)
    steps[:, ::4] = 1023
    found = judged(chains(steps=steps))
    assert found.saturation == 0.25
    assert "25% of the trajectories were cut off" in " ".join(found.messages)


@pytest.mark.parametrize(
    ("ended", "words"), [("interrupted", "from the keyboard"), ("time", "time limit")]
)
def test_how_sampling_ended_is_said(ended, words):
    bad = spoiled(0, r_hat=1.03)
    assert words in " ".join(judged(chains(ended=ended, convergence=bad)).messages)


def test_single_chain_is_warned_of():
    one = chains(
        **{name: getattr(chains(), name)[:1] for name in ("acceptance", "steps", "divergent")},
        energy=np.full((1, 500), np.nan),
    )
    assert "use chains=4" in " ".join(judged(one).messages)


def test_reading_it_aloud():
    text = str(judged(chains(convergence=spoiled(0, r_hat=1.03))))
    assert text.startswith("caution (predictions: caution, latent maps: ok)")
    assert "signal_sd" in text


@pytest.mark.parametrize(("settled", "spread", "verdict"), [(True, 0.1, "ok"), (False, 0.1, "bad")])
def test_variational_fit_says_what_it_is(settled, spread, verdict):
    rng = np.random.default_rng(0)
    fit = Variational(np.arange(5.0), settled, spread * rng.standard_normal(1000), 1.0)
    draws = Draws("vi", np.zeros((1000, MODEL.size)), np.zeros(1000), 0, variational=fit)
    found = diagnose(draws, MODEL, SPACE, ROWS, True)
    assert found.verdict == verdict
    assert "variational approximation" in found.messages[0]
    heavy = dataclasses.replace(fit, settled=True, log_weights=5 * rng.standard_cauchy(1000))
    found = diagnose(dataclasses.replace(draws, variational=heavy), MODEL, SPACE, ROWS, True)
    assert found.verdict == "caution"
    assert found.pareto_k > 0.7


def test_point_estimate_is_a_caution_only_with_categories():
    search = Optimization((1.0, 1.0, 0.0), (), 1.0, 0, 10, 1.0)
    draws = Draws("map", np.zeros((1, MODEL.size)), np.zeros(1), 0, optimization=search)
    found = diagnose(draws, MODEL, SPACE, ROWS, True)
    assert found.verdict == "caution"
    assert "2 of 3 starts" in " ".join(found.messages)
    numeric = build_space(X[["heat"]])
    assert diagnose(draws, Model(1, (), ()), numeric, ROWS, True).verdict == "ok"


@pytest.mark.parametrize(("rule", "most"), [(None, 8), ("fitc", 8), ("vfe", 5)])
def test_vfe_is_advised_fewer_dimensions(rule, most):
    names = [f"s{number}" for number in range(45)]
    table = pd.DataFrame({"m": np.resize(list("abcdefgh"), 90), "s": np.resize(names, 90)})
    space = build_space(table)
    model = Model(0, (8, 45), (2, 4), approximation=rule)
    assert roomier(space, model, least=8) == {"m": 3, "s": most}
    assert roomier(space, model, least=30) == {"s": most}


@pytest.mark.parametrize(
    ("levels", "dim", "r_hat", "ended", "advised"),
    [
        (12, 2, 1.4, "draws", 3),
        (73, 2, 1.04, "time", 8),
        (73, 5, 1.04, "time", 8),
        (73, 8, 1.4, "time", None),
        (12, 3, 1.4, "draws", None),
        (4, 2, 1.4, "draws", None),
        (12, 2, 1.005, "draws", None),
        (12, 2, 1.4, "interrupted", None),
    ],
)
def test_chains_that_do_not_agree_among_many_levels_are_advised_more_dimensions(
    levels, dim, r_hat, ended, advised
):
    table = pd.DataFrame({"site": [f"E{level}" for level in range(levels)]})
    model, space = Model(0, (levels,), (dim,)), build_space(table)
    places = layout(model, levels)
    values = [np.full(places.size, value) for value in (900.0, 700.0, 1.002)]
    values[2][places.fitted.start] = r_hat
    sampling = chains(convergence=Convergence(*values), ended=ended)
    draws = Draws("bayes", np.zeros((2000, model.size)), np.zeros(2000), 0, sampling=sampling)
    text = " ".join(diagnose(draws, model, space, np.arange(levels), maps_too=True).messages)
    assert (f"try latent_dim={{'site': {advised}}}" in text) == (advised is not None)
    assert ("latent_dim" in text) == (advised is not None)
