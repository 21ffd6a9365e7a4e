"""Latent-variable Gaussian processes: regression on tables whose inputs are partly categories."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lvgp import errors, metrics, plots, problems
    from lvgp.diagnostics import Diagnostics
    from lvgp.interpret import LatentMap
    from lvgp.priors import Priors
    from lvgp.regressor import LVGPRegressor, load

__version__ = "0.1.0"
__all__ = [
    "Diagnostics",
    "LVGPRegressor",
    "LatentMap",
    "Priors",
    "errors",
    "load",
    "metrics",
    "plots",
    "problems",
]

_HOMES = {
    "Diagnostics": "lvgp.diagnostics",
    "LVGPRegressor": "lvgp.regressor",
    "LatentMap": "lvgp.interpret",
    "load": "lvgp.regressor",
    "Priors": "lvgp.priors",
    "errors": "lvgp",
    "metrics": "lvgp",
    "plots": "lvgp",
    "problems": "lvgp",
}


def __getattr__(name: str) -> Any:
    """Import public names when first used: JAX and scikit-learn take a second to load."""
    if name not in _HOMES:
        raise AttributeError(f"module 'lvgp' has no attribute {name!r}")
    home = _HOMES[name]
    return import_module(f"lvgp.{name}") if home == "lvgp" else getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
