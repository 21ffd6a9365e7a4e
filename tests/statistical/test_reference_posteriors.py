"""Long runs of a plain NumPyro program of the same density, made elsewhere, as the standard."""

from __future__ import annotations

import json

import arviz
import numpy as np
import pandas as pd
import pytest

import lvgp
from lvgp import compute
from lvgp.infer.convergence import identified, layout

SETTINGS = {"random_state": 0, "progress": False, "warmup": 400, "draws": 4000}


def borehole(reference, _):
    problem = lvgp.problems.borehole()
    train, test = (pd.read_csv(reference / f"borehole-32.{part}.csv") for part in ("train", "test"))
    columns = [column.name for column in problem.space.columns]
    bounds = {column.name: (column.low, column.high) for column in problem.space.quantitative}
    return train[columns], train["y"], test[columns], {"bounds": bounds, "categorical": ["t"]}


def m2ax(_, data):
    table = pd.read_csv(data / "m2ax" / "m2ax.csv")
    chosen = np.random.RandomState(100).choice(len(table), 100, replace=False)
    rest = np.setdiff1d(np.arange(len(table)), chosen)
    X, y = table[["M", "A", "X"]], table["shear_modulus_GPa"]
    return X.iloc[chosen], y.iloc[chosen], X.iloc[rest], {}


CASES = {"borehole-32": borehole, "m2ax-shear-100": m2ax}


def by_name(model):
    """Identified quantities (chains, draws) under the names of the reference files."""
    posterior = model.posterior_
    with compute.scope():
        values = identified(
            posterior.model,
            model.draws_.vectors,
            model.draws_.log_densities,
            posterior.rows,
            posterior.priors,
        )
    values = model.draws_.by_chain(values)
    places = layout(posterior.model, len(posterior.y))
    floor = posterior.priors.noise_floor
    found = {"s": values[..., 0], "log_noise": np.log(floor + np.exp(values[..., 1]))}
    mean = model.to_arviz().posterior["mean"].values
    found["mu"] = (mean - posterior.y_mean) / posterior.y_scale
    n_x = posterior.model.n_quantitative
    found |= {f"log_omega_{i}": values[..., 2 + i] for i in range(n_x)}
    for j, (block, levels) in enumerate(
        zip(places.correlations, posterior.model.n_levels, strict=True)
    ):
        found[f"log_gamma_{j}"] = values[..., 2 + n_x + j]
        for k, (a, b) in enumerate(zip(*np.triu_indices(levels, 1), strict=True)):
            found[f"c{j}_{a}_{b}"] = values[..., block.start + k]
    return found


@pytest.mark.long
@pytest.mark.parametrize(
    ("case", "sampler"),
    [("borehole-32", "microcanonical"), ("borehole-32", "nuts"), ("m2ax-shear-100", "auto")],
)
@pytest.mark.filterwarnings("ignore::lvgp.errors.ConvergenceWarning")
def test_draws_agree_with_the_reference(
    case, sampler, reference_directory, data_directory, monkeypatch
):
    """Means within Monte-Carlo error of both runs: all |z| < 5, root mean square below 3.

    At most 330 comparisons: under normal errors |z| > 5 has odds below 2e-4. The z are far from
    independent, as every correlation follows gamma: their root mean square is nearly the size of
    one common normal error, which exceeds 3 with odds below 3e-3. Standard deviations within 20 %,
    which is 5 errors at an ESS of 400.
    """
    # far more draws than a fit needs: sds of skewed correlations take them
    monkeypatch.setattr("lvgp.infer.sample.LEAST_ESS", 3000.0)
    reference = json.loads((reference_directory / f"{case}.json").read_text())
    X, y, X_test, options = CASES[case](reference_directory, data_directory)
    model = lvgp.LVGPRegressor(sampler=sampler, **SETTINGS, **options).fit(X, y)
    found = by_name(model)
    assert set(reference["identified"]) <= set(found)
    z, ratios = [], []
    for name, known in reference["identified"].items():
        error = np.hypot(float(arviz.mcse(found[name])), known["mcse"])
        z.append((found[name].mean() - known["mean"]) / error)
        ratios.append(found[name].std() / known["sd"])
    z, ratios = np.array(z), np.array(ratios)
    assert np.abs(z).max() < 5, dict(zip(reference["identified"], z.round(1), strict=True))
    assert np.sqrt(np.mean(z**2)) < 3
    assert 0.8 < ratios.min() < ratios.max() < 1.25
    rows = len(reference["predictive_mean"])
    mean, sd = model.predict(X_test.iloc[:rows], return_std=True)
    # the error of our own mean from 1000 draws, at worst as dependent as the worst quantity
    spread = np.array(reference["predictive_sd_of_f"])
    ours = spread / np.sqrt(min(1000, model.diagnostics_.table["ess_bulk"].min()))
    z = (mean - reference["predictive_mean"]) / np.hypot(ours, reference["predictive_mean_mcse"])
    assert np.abs(z).max() < 5
    np.testing.assert_allclose(sd, spread, rtol=0.2)
