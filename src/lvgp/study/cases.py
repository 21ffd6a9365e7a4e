"""What a study is made of: cases (where the data come from) and arms (how they are fitted)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lvgp import problems
from lvgp.errors import InputError
from lvgp.files import read_table
from lvgp.table import check_response

DATA_VARIABLE = "LVGP_DATA"


@dataclass(frozen=True)
class Split:
    """Training and test rows of one replicate; arms that are compared get the same."""

    X: pd.DataFrame
    y: np.ndarray
    X_test: pd.DataFrame
    y_test: np.ndarray
    options: Mapping[str, Any]
    """What the columns need to be told: bounds, levels, categorical."""
    descriptors: tuple[str, ...] = ()


@dataclass(frozen=True)
class ProblemCase:
    """A test problem: a new design for every replicate."""

    problem: str
    per_level: int
    test_rows: int = 1000

    @property
    def name(self) -> str:
        """The problem and its number of training rows."""
        return f"{self.problem}-{self.rows}"

    @property
    def rows(self) -> int:
        """How many training rows there are."""
        return self.per_level * len(self._made.levels)

    @property
    def _made(self) -> problems.Problem:
        made: problems.Problem = getattr(problems, self.problem)()
        return made

    def split(self, seed: int, replicate: int, data: Path | None) -> Split:
        """Return the design and the test points of a replicate."""
        made = self._made
        design, test = np.random.SeedSequence([seed, replicate]).generate_state(2)
        X, y = made.design(self.per_level, int(design))
        X_test, y_test = made.sample(self.test_rows, int(test))
        options = {
            "bounds": dict(made.bounds),
            "levels": {"t": list(made.levels)},
            "categorical": ["t"],
        }
        return Split(X, np.asarray(y), X_test, np.asarray(y_test), options)


@dataclass(frozen=True)
class TableCase:
    """A table on disk: for every replicate another random choice of training rows."""

    file: str
    """Path of the CSV file inside the data directory, or of any file."""
    target: str
    train: int
    inputs: tuple[str, ...]
    categorical: tuple[str, ...]
    descriptors: tuple[str, ...] = ()
    """Numeric columns that stand for the levels in a GP with descriptors."""
    source: str = ""
    """Where the table comes from, for those who do not have it."""

    @property
    def name(self) -> str:
        """The table's name, its response and the number of training rows."""
        return f"{Path(self.file).stem}-{self.target}-{self.train}"

    @property
    def rows(self) -> int:
        """How many training rows there are."""
        return self.train

    def split(self, seed: int, replicate: int, data: Path | None) -> Split:
        """Return the rows chosen for training, and all the others for testing."""
        table = self.read(data)
        rng = np.random.default_rng([seed, replicate])
        chosen = np.sort(rng.choice(len(table), self.train, replace=False))
        rest = np.setdiff1d(np.arange(len(table)), chosen)
        X, y = table[[*self.inputs, *self.descriptors]], table[self.target].to_numpy(float)
        levels = {name: sorted(X[name].unique(), key=str) for name in self.categorical}
        options = {"levels": levels, "categorical": list(self.categorical)}
        train, test = X.iloc[chosen], X.iloc[rest]
        return Split(train, y[chosen], test, y[rest], options, self.descriptors)

    def read(self, data: Path | None) -> pd.DataFrame:
        """Return the rows of the table that have a response, or say what is missing where."""
        path = self._path(data)
        if not path.exists():
            raise InputError(f"{path}: there is no such file. {self.source}".strip())
        table = read_table(path)
        wanted = [*self.inputs, *self.descriptors, self.target]
        missing = [name for name in wanted if name not in table]
        if missing:
            raise InputError(f"{path}: has no column {missing[0]!r}. {self.source}".strip())
        table = table[table[self.target].notna()]
        check_response(table[self.target], len(table))
        if len(table) < self.train + 2:
            raise InputError(
                f"{path}: {self.train} training rows asked for, and the table has {len(table)}; "
                "at least two must be left for testing"
            )
        return table

    def _path(self, data: Path | None) -> Path:
        if Path(self.file).is_absolute():
            return Path(self.file)
        folder = data or os.environ.get(DATA_VARIABLE)
        if folder is None:
            raise InputError(
                f"{self.file}: where are the tables? Give --data DIRECTORY or set the variable "
                f"{DATA_VARIABLE}. {self.source}".strip()
            )
        return Path(folder) / self.file


Case = ProblemCase | TableCase


@dataclass(frozen=True)
class Arm:
    """One way of fitting."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of LVGPRegressor; `priors` as a mapping of Priors' fields."""
    descriptors: bool = False
    """Fit an ordinary GP to the case's descriptors instead."""

    @property
    def method(self) -> str:
        """The method of inference."""
        return str(self.options.get("method", "bayes"))


@dataclass(frozen=True)
class Study:
    """Every arm on every case, `replicates` times."""

    name: str
    title: str
    cases: tuple[Case, ...]
    arms: tuple[Arm, ...]
    replicates: int = 25
    maps: bool = False
    """Whether latent maps are scored against the true space and drawn."""

    def tasks(self) -> list[tuple[Case, Arm, int]]:
        """All fits, replicate after replicate, so that an early look covers all arms."""
        return [
            (case, arm, replicate)
            for replicate in range(self.replicates)
            for case in self.cases
            for arm in self.arms
            if not (arm.descriptors and not getattr(case, "descriptors", ()))
        ]
