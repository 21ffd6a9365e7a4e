"""Columns and Space: what each column of a table is, and its rows as arrays."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from pandas.api import types

from lvgp.errors import (
    DataWarning,
    InputError,
    InputTypeError,
    warn,
)
from lvgp.table import (
    as_table,
    check_present,
    column_keys,
    is_number_column,
    numeric_values,
    rows_text,
    wrong_value,
)

Level = Any
_SHOWN = 5
_FEWEST_NUMBERED = 10
_NEW_LEVELS = (
    'predict new levels from their prior: unknown_levels="prior" (lvgp predict --unknown-levels '
    "prior), or levels={column: [...]} when fitting"
)
_TWO_LEVELS = (
    "declare all levels with levels={column: [...]} when fitting: a column with two levels is a "
    "number 0/1, which tells nothing of a third"
)


@dataclass(frozen=True)
class Quantitative:
    """A numeric column, scaled to [0, 1] between `low` and `high`."""

    name: Hashable
    low: float
    high: float

    @property
    def width(self) -> float:
        """One unit of the scaled column in the column's own units."""
        return self.high - self.low

    def described(self) -> tuple[str, str]:
        """Return what the column is taken as, and its range."""
        return "number", f"{self.low:g} to {self.high:g}"

    def encode(self, table: pd.DataFrame) -> np.ndarray:
        """Return the column scaled by its bounds."""
        return (numeric_values(table, self.name) - self.low) / self.width


@dataclass(frozen=True)
class Qualitative:
    """A categorical column: its levels, and how many training rows each has."""

    name: Hashable
    levels: tuple[Level, ...]
    counts: tuple[int, ...]

    @property
    def width(self) -> float:
        """The step from one level to the next."""
        return 1.0

    def described(self) -> tuple[str, str]:
        """Return what the column is taken as, and its levels with their numbers of rows."""
        pairs = zip(self.levels, self.counts, strict=True)
        listed = ", ".join(f"{level} ({count})" for level, count in pairs)
        return f"category, {len(self.levels)} levels", listed

    def encode(self, table: pd.DataFrame) -> np.ndarray:
        """Return the position of each row's level in `levels`."""
        return _codes(table, self.name, self.levels)[0]


@dataclass(frozen=True)
class Dropped:
    """A column with a single value: it cannot tell rows apart and is left out of the model."""

    name: Hashable
    value: Level
    numeric: bool

    def described(self) -> tuple[str, str]:
        """Return that the column is left out, and its value."""
        return "left out", f"one value only: {self.value}"

    def check(self, table: pd.DataFrame) -> None:
        """Refuse an unknown level; warn of a number the model knows nothing about."""
        if not self.numeric:
            _codes(table, self.name, (self.value,))
            return
        other = numeric_values(table, self.name) != self.value
        if other.any():
            warn(
                f"column {self.name!r}: was {self.value!r} in every training row, so predictions "
                f"cannot depend on it, but {rows_text(table, other)} hold other values",
                DataWarning,
            )


Column = Quantitative | Qualitative | Dropped


class Encoded(NamedTuple):
    """Rows as arrays: scaled quantitative inputs (two-level columns as 0/1), level codes."""

    x: np.ndarray
    t: np.ndarray
    unknown: tuple[tuple[Level, ...], ...] = ()
    """For each qualitative column, levels never declared, numbered on from the last known one."""


@dataclass(frozen=True)
class Space:
    """The input columns of a model, in training order."""

    columns: tuple[Column, ...]
    named: bool = True
    """Whether the training table had column names of its own."""

    @property
    def names(self) -> list[Hashable]:
        """Names of all columns, in training order."""
        return [column.name for column in self.columns]

    @cached_property
    def quantitative(self) -> tuple[Quantitative | Qualitative, ...]:
        """Columns that enter as numbers: numeric ones, and categorical ones with two levels."""
        return tuple(
            column
            for column in self.columns
            if isinstance(column, Quantitative)
            or (isinstance(column, Qualitative) and len(column.levels) == 2)
        )

    @cached_property
    def qualitative(self) -> tuple[Qualitative, ...]:
        """Columns with latents: categorical ones with three levels or more."""
        return tuple(
            column
            for column in self.columns
            if isinstance(column, Qualitative) and len(column.levels) > 2
        )

    def described(self) -> list[tuple[str, str, str]]:
        """Return for each column its name, what it is taken as, and its values, in words."""
        return [(str(column.name), *column.described()) for column in self.columns]

    def encode(
        self, X: Any, estimator: str = "LVGPRegressor", take_unknown: bool = False
    ) -> Encoded:
        """Return the rows of a table as arrays, columns found by name.

        A level that was never declared is an error, or with `take_unknown` numbered on.
        """
        table = self._matched(X, estimator)
        for column in self.columns:
            if isinstance(column, Dropped):
                column.check(table)
        quantitative = [column.encode(table) for column in self.quantitative]
        qualitative = [
            _codes(table, column.name, column.levels, take_unknown) for column in self.qualitative
        ]
        return Encoded(
            _stack(quantitative, len(table), float),
            _stack([codes for codes, _ in qualitative], len(table), int),
            tuple(unknown for _, unknown in qualitative),
        )

    def _matched(self, X: Any, estimator: str) -> pd.DataFrame:
        table, named = as_table(X)
        if not (named and self.named):
            if table.shape[1] != len(self.columns):
                raise InputError(
                    f"X has {table.shape[1]} features, but {estimator} is expecting "
                    f"{len(self.columns)} features as input: {self.names}"
                )
            if named != self.named:
                have, had = ("has", "without") if named else ("does not have valid", "with")
                warn(
                    f"X {have} feature names, but {estimator} was fitted {had} feature names: "
                    "columns are taken by position",
                    UserWarning,
                )
            return table.set_axis(pd.Index(self.names, dtype=object), axis=1)
        missing = [name for name in self.names if name not in table.columns]
        extra = [name for name in table.columns if name not in set(self.names)]
        if missing or extra:
            parts = [f"missing {missing}"] * bool(missing) + [f"not expected {extra}"] * bool(extra)
            raise InputError(
                "The feature names should match those that were passed during fit: "
                f"columns {' and '.join(parts)}; expected {self.names}"
            )
        return table


def _stack(arrays: list[np.ndarray], rows: int, dtype: type) -> np.ndarray:
    return np.column_stack(arrays).astype(dtype) if arrays else np.zeros((rows, 0), dtype)


def build_space(
    X: Any,
    categorical: Sequence[Hashable] | None = None,
    levels: Mapping[Hashable, Sequence[Level]] | None = None,
    bounds: Mapping[Hashable, tuple[float, float]] | None = None,
) -> Space:
    """Work out from the training table and the user's declarations what each column is."""
    table, named = as_table(X)
    levels = dict(column_keys(table, named, levels or {}, "levels"))
    bounds = dict(column_keys(table, named, bounds or {}, "bounds"))
    declared: set[Hashable] | None = None
    if categorical is not None:
        declared = set(dict(column_keys(table, named, _declared(categorical), "categorical")))
    columns: list[Column] = []
    for name in table.columns:
        if name in levels or _is_categorical(table, name, declared):
            if name in bounds:
                raise InputError(f"bounds: column {name!r} is categorical and has no bounds")
            columns.append(_qualitative(table, name, levels.get(name)))
        else:
            columns.append(_quantitative(table, name, bounds.get(name)))
    if all(isinstance(column, Dropped) for column in columns):
        raise InputError(
            f"X: every column ({', '.join(map(repr, table.columns))}) has a single value, so no "
            "input tells the rows apart"
        )
    return Space(tuple(columns), named)


def _declared(categorical: Any) -> dict[Hashable, None]:
    hint = f"; write [{categorical!r}]" if isinstance(categorical, str) else ""
    try:
        if isinstance(categorical, str):
            raise TypeError
        return dict.fromkeys(categorical)
    except TypeError:
        raise InputError(
            f"categorical: expected a list of column names, got {categorical!r}{hint}"
        ) from None


def _is_categorical(table: pd.DataFrame, name: Hashable, declared: set[Hashable] | None) -> bool:
    column = table[name]
    if types.is_datetime64_any_dtype(column) or types.is_timedelta64_dtype(column):
        raise InputTypeError(
            f"column {name!r}: dates and durations are neither numbers nor categories; convert "
            "them to numbers (days, say) or to strings"
        )
    if declared is None:
        return not is_number_column(column)
    if name not in declared and not is_number_column(column):
        numeric_values(table, name)
    return name in declared


def _quantitative(
    table: pd.DataFrame, name: Hashable, bounds: tuple[float, float] | None
) -> Column:
    values = numeric_values(table, name)
    if bounds is None:
        low, high = float(values.min()), float(values.max())
        if low == high:
            _warn_dropped(name, low)
            return Dropped(name, low, numeric=True)
        if len(values) >= _FEWEST_NUMBERED and (np.diff(values) == 1).all():
            warn(
                f"column {name!r}: only numbers the rows ({low:g}, {low + 1:g}, ...). Unless their "
                "order matters, leave it out (lvgp fit --ignore)",
                DataWarning,
            )
        if not np.isfinite(high - low):
            raise InputError(
                f"column {name!r}: its range, {low:g} to {high:g}, is too large to compute with; "
                "change the unit or take logarithms"
            )
        return Quantitative(name, low, high)
    try:
        low, high = (float(bound) for bound in bounds)
    except (TypeError, ValueError):
        raise InputError(f"bounds: column {name!r} needs (low, high), got {bounds!r}") from None
    if not (np.isfinite([low, high]).all() and low < high):
        raise InputError(f"bounds: column {name!r} needs finite low < high, got {bounds!r}")
    outside = (values < low) | (values > high)
    if outside.any():
        warn(
            f"column {name!r}: {rows_text(table, outside)} lie outside the declared bounds "
            f"({low:g}, {high:g}); are the units the same?",
            DataWarning,
        )
    return Quantitative(name, low, high)


def _qualitative(
    table: pd.DataFrame, name: Hashable, declared: Sequence[Level] | None
) -> Qualitative | Dropped:
    column = table[name]
    check_present(table, name, column.isna().to_numpy())
    if declared is not None:
        if isinstance(declared, str) or not isinstance(declared, Iterable):
            raise InputError(f"levels: column {name!r} needs a list of levels, got {declared!r}")
        known = tuple(_plain(level, f"levels: column {name!r}") for level in declared)
        if isinstance(declared, Set):
            known = _sorted_levels(set(known))
        if len(set(known)) < len(known):
            raise InputError(f"levels: column {name!r} lists a level twice: {list(known)}")
    elif isinstance(column.dtype, pd.CategoricalDtype):
        known = tuple(_plain(level, f"column {name!r}") for level in column.cat.categories)
    else:
        known = _sorted_levels(set(_plain_values(table, name)))
    codes, _ = _codes(table, name, known)
    if len(known) == 1:
        _warn_dropped(name, known[0])
        return Dropped(name, known[0], numeric=False)
    if len(known) == len(table) and len(set(codes)) == len(table):
        warn(
            f"column {name!r}: has as many levels as the table has rows ({len(table)}), so it "
            "identifies rows instead of grouping them. If it is an identifier, leave it out (lvgp "
            "fit --ignore); if it holds numbers, convert it to numbers",
            DataWarning,
        )
    counts = np.bincount(codes, minlength=len(known))
    return Qualitative(name, known, tuple(int(count) for count in counts))


def _warn_dropped(name: Hashable, value: Level) -> None:
    warn(
        f"column {name!r}: has the single value {value!r}; it is left out of the model",
        DataWarning,
    )


def _plain_values(table: pd.DataFrame, name: Hashable) -> Iterable[Level]:
    for label, value in table[name].items():
        plain = value.item() if isinstance(value, np.generic) else value
        if not isinstance(plain, str | bool | int | float):
            raise wrong_value(f"column {name!r}", label, value)
        yield plain


def _plain(level: Level, place: str) -> Level:
    """Return a level as a plain Python value that can be compared, printed and saved."""
    value = level.item() if isinstance(level, np.generic) else level
    if not isinstance(value, str | bool | int | float) or value != value:
        raise InputTypeError(
            f"{place}: argument must be a string or a number, got {level!r} of type "
            f"{type(level).__name__}"
        )
    return value


def _sorted_levels(levels: set[Level]) -> tuple[Level, ...]:
    """Sorted by value; by type and text where the values do not compare."""
    try:
        return tuple(sorted(levels))
    except TypeError:
        return tuple(sorted(levels, key=lambda level: (type(level).__name__, str(level))))


def _codes(
    table: pd.DataFrame, name: Hashable, levels: tuple[Level, ...], take_unknown: bool = False
) -> tuple[np.ndarray, tuple[Level, ...]]:
    check_present(table, name, table[name].isna().to_numpy())
    position = {level: code for code, level in enumerate(levels)}
    values = list(_plain_values(table, name))
    unknown = list(dict.fromkeys(value for value in values if value not in position))
    if unknown and not take_unknown:
        where = np.array([value not in position for value in values])
        raise InputError(
            f"column {name!r}: unknown level{'s' * (len(unknown) > 1)} "
            f"{', '.join(map(repr, unknown[:_SHOWN]))} in {rows_text(table, where)}. "
            f"Known levels: {', '.join(map(repr, levels))}. Correct the spelling, or "
            f"{_TWO_LEVELS if len(levels) < 3 else _NEW_LEVELS}"
        )
    position |= {level: len(levels) + extra for extra, level in enumerate(unknown)}
    return np.array([position[value] for value in values], dtype=int), tuple(unknown)
