"""The model once more, written from its definition in NumPy and SciPy, for comparison."""

from __future__ import annotations

import numpy as np
from scipy import stats

CORRELATIONS = {
    "rbf": lambda d: np.exp(-0.5 * d**2),
    "matern52": lambda d: (1 + np.sqrt(5) * d + 5 * d**2 / 3) * np.exp(-np.sqrt(5) * d),
    "matern32": lambda d: (1 + np.sqrt(3) * d) * np.exp(-np.sqrt(3) * d),
}


def distances(left, right, parameters):
    """Distances between rows (x, t) by explicit loops over columns."""
    squared = np.zeros((len(left[0]), len(right[0])))
    for i, omega in enumerate(parameters["omega"]):
        squared += ((left[0][:, None, i] - right[0][None, :, i]) / omega) ** 2
    for j, z in enumerate(parameters["z"]):
        difference = z[left[1][:, j]][:, None, :] - z[right[1][:, j]][None, :, :]
        squared += (difference**2).sum(axis=-1)
    return np.sqrt(squared)


def kernel(name, left, right, parameters):
    return parameters["sigma2"] * CORRELATIONS[name](distances(left, right, parameters))


def unpack(model, vector, noise_floor=1e-6):
    """Parameters from the unconstrained vector, by the definition of its layout."""
    n_x, J = model.n_quantitative, len(model.n_levels)
    gamma = np.ones(J) if model.plug_in_likelihood else np.exp(vector[2 + n_x : 2 + n_x + J])
    z, start = [], 2 + n_x + J
    for j, (levels, dim) in enumerate(zip(model.n_levels, model.latent_dims, strict=True)):
        raw = vector[start : start + levels * dim].reshape(levels, dim)
        z.append(raw / np.sqrt(levels * gamma[j]))
        start += levels * dim
    return {
        "sigma2": np.exp(vector[0]),
        "noise": noise_floor + np.exp(vector[1]),
        "omega": np.exp(vector[2 : 2 + n_x]),
        "gamma": gamma,
        "z": z,
    }


def log_likelihood(model, vector, x, t, y):
    """log p(y) with mu ~ N(0, 1) integrated out, or at the best mu for maximum likelihood."""
    parameters = unpack(model, vector)
    C = kernel(model.kernel, (x, t), (x, t), parameters) + parameters["noise"] * np.eye(len(y))
    ones = np.ones(len(y))
    if not model.plug_in_likelihood:
        return stats.multivariate_normal(np.zeros(len(y)), C + np.outer(ones, ones)).logpdf(y)
    mu = ones @ np.linalg.solve(C, y) / (ones @ np.linalg.solve(C, ones))
    return stats.multivariate_normal(mu * ones, C).logpdf(y)


def log_prior(model, vector):
    """The paper's priors as densities of the unconstrained vector, from scipy.stats."""
    n_x, J = model.n_quantitative, len(model.n_levels)
    noise, gamma = np.exp(vector[1]), np.exp(vector[2 + n_x : 2 + n_x + J])
    total = stats.norm.logpdf(vector[0])
    total += stats.halfcauchy.logpdf(noise, scale=0.01) + np.log(noise)
    low, high = np.log(0.1), np.log(10.0)
    for log_omega in vector[2 : 2 + n_x]:
        outside = max(low - log_omega, log_omega - high, 0.0)
        total += -0.5 * (outside / 0.1) ** 2 - np.log(high - low + np.sqrt(2 * np.pi) * 0.1)
    total += np.sum(stats.gamma.logpdf(gamma, a=2.0, scale=1.0) + np.log(gamma))
    return total + np.sum(stats.norm.logpdf(vector[2 + n_x + J :]))


def log_density(model, vector, x, t, y):
    prior = 0.0 if model.plug_in_likelihood else log_prior(model, vector)
    return log_likelihood(model, vector, x, t, y) + prior


def predict(model, vector, train, y, new):
    """Mean and covariance of f at new rows, by the textbook formulas with mu in the kernel."""
    parameters = unpack(model, vector)
    noise = parameters["noise"] * np.eye(len(y))
    C = kernel(model.kernel, train, train, parameters) + noise
    cross = kernel(model.kernel, new, train, parameters)
    prior = kernel(model.kernel, new, new, parameters)
    if model.plug_in_likelihood:
        ones = np.ones(len(y))
        mu = ones @ np.linalg.solve(C, y) / (ones @ np.linalg.solve(C, ones))
        return mu + cross @ np.linalg.solve(C, y - mu), prior - cross @ np.linalg.solve(C, cross.T)
    C, cross, prior = C + 1.0, cross + 1.0, prior + 1.0
    return cross @ np.linalg.solve(C, y), prior - cross @ np.linalg.solve(C, cross.T)
