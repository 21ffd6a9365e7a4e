"""Latent maps of a real table: the same from a seed, and the same from another seed but for
Monte-Carlo error."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from lvgp import LVGPRegressor
from lvgp.interpret import correlations, representative


def fitted(data, seed):
    table = pd.read_csv(data / "m2ax" / "m2ax.csv")
    chosen = np.random.RandomState(100).choice(len(table), 100, replace=False)
    X, y = table[["M", "A", "X"]].iloc[chosen], table["shear_modulus_GPa"].iloc[chosen]
    return LVGPRegressor(random_state=seed, progress=False).fit(X, y)


def representative_correlation(latent_draws):
    between = correlations("rbf", latent_draws)[0]
    found = representative("rbf", latent_draws, between)
    return correlations("rbf", found)[0][np.triu_indices(found.shape[0], 1)]


def by_chain(model, column):
    """The representative correlations of each chain on its own: their scatter is the error."""
    maps = model.latent_map(column)
    chains = model.draws_.sampling.chains
    draws = maps.draws.reshape(chains, -1, *maps.draws.shape[1:])
    return np.stack([representative_correlation(chain) for chain in draws])


@pytest.mark.long
def test_maps_of_two_fits_agree_within_monte_carlo_error(data_directory):
    """z of each correlation from the scatter of eight chains' own maps, pooled over correlations;
    root mean square below 2 for a column. Correlations of one map move together: were they one
    number, the false-alarm rate would be 5 % by t with 6 degrees of freedom, and it falls quickly
    with the number of independent directions (some ten in a map of ten levels)."""
    first, second = fitted(data_directory, 0), fitted(data_directory, 1)
    for column in ("M", "A"):
        maps = [model.latent_map(column) for model in (first, second)]
        pairs = np.triu_indices(len(maps[0].levels), 1)
        found = [correlations("rbf", one.coordinates.to_numpy())[0][pairs] for one in maps]
        scatter = [by_chain(model, column).var(axis=0, ddof=1).mean() for model in (first, second)]
        error = np.sqrt(sum(scatter) / 4)
        assert np.sqrt(np.mean((found[0] - found[1]) ** 2)) / error < 2.0


@pytest.mark.long
def test_map_is_reproducible_from_a_seed(data_directory):
    maps = [fitted(data_directory, 0).latent_map("M").coordinates for _ in range(2)]
    np.testing.assert_allclose(*maps, atol=1e-6)
