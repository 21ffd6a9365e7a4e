"""Tables on disk: CSV, TSV, Excel and Parquet; each fault named with file and place."""

from __future__ import annotations

import csv
import io
import os
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lvgp.errors import InputError

TABLES = (".csv", ".tsv", ".xlsx", ".parquet")
_MOSTLY = 0.8
_MALFORMED = (
    ValueError,
    LookupError,
    TypeError,
    EOFError,
    csv.Error,
    zipfile.BadZipFile,
    # of the XML inside a workbook
    SyntaxError,
)


def read_table(path: Path) -> pd.DataFrame:
    """Return the table in a file, read by its extension."""
    readers: dict[str, Callable[[Path], pd.DataFrame]] = {
        ".csv": lambda path: _read_text(path, ","),
        ".tsv": lambda path: _read_text(path, "\t"),
        ".xlsx": pd.read_excel,
        ".parquet": pd.read_parquet,
    }
    reader = readers.get(path.suffix.lower())
    if path.is_dir():
        raise InputError(f"{path}: is a directory; give the file with the table")
    if reader is None:
        known, old = ", ".join(readers), path.suffix.lower() == ".xls"
        hint = "; save the workbook as .xlsx" if old else ""
        raise InputError(f"{path}: expected a file with the extension {known}{hint}")
    try:
        table = reader(path)
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path}: is not UTF-8 text (byte {error.start}); save it as CSV in UTF-8"
        ) from None
    except InputError:
        raise
    except _MALFORMED as error:
        raise InputError(f"{path}: is not a readable {path.suffix} file ({error})") from None
    return _checked(path, table)


def _read_text(path: Path, separator: str) -> pd.DataFrame:
    """Read delimited text whose rows all have as many fields as the header.

    pandas alone would rename repeated columns, fill short rows and take a surplus first field for
    row labels, all without a word.
    """
    with path.open(newline="", encoding="utf-8-sig") as file:
        lines = csv.reader(file, delimiter=separator, strict=True)
        header = next(lines, None)
        if not header:
            raise InputError(f"{path}: is empty; the first line must name the columns")
        if len(header) == 1 and ";" in header[0]:
            raise InputError(
                f"{path}: its columns are separated by semicolons; save it with commas (and "
                "decimal points), or as .xlsx"
            )
        for fields in lines:
            if fields and len(fields) != len(header):
                raise InputError(
                    f"{path}: line {lines.line_num} has {len(fields)} fields, the header "
                    f"{len(header)}; is a separator missing, or a comma inside a value not quoted?"
                )
    names = [name.strip() for name in header]
    table = pd.read_csv(
        path,
        sep=separator,
        header=0,
        names=names if len(set(names)) == len(names) else None,
        encoding="utf-8-sig",
        skipinitialspace=True,
    )
    if len(set(names)) != len(names):
        table.columns = pd.Index(names)
    return table


def _checked(path: Path, table: pd.DataFrame) -> pd.DataFrame:
    names = [str(name).strip() for name in table.columns]
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise InputError(f"{path}: two columns are called {repeated!r}; rename one of them")
    if not names:
        raise InputError(f"{path}: has no columns")
    # pandas calls a column of a workbook without a name Unnamed
    nameless = [at for at, name in enumerate(names, 1) if not name or name == f"Unnamed: {at - 1}"]
    if nameless:
        raise InputError(
            f"{path}: column {nameless[0]} has no name in the first line; name it, remove it if it "
            "only numbers the rows, or delete a title above the line of names"
        )
    if table.empty:
        raise InputError(f"{path}: has column names and no rows")
    table.columns = pd.Index(names)
    # rows are counted as people count them, in every message
    table.index = pd.RangeIndex(1, len(table) + 1)
    for name in table.select_dtypes(["object", "string"]):
        table[name] = table[name].map(lambda one: one.strip() if isinstance(one, str) else one)
    return table


def refuse_stray_text(path: Path, table: pd.DataFrame, categorical: list[str]) -> None:
    """Refuse a column of numbers with a few other things in it: a slip, not a category."""
    for name in table:
        column = table[name]
        if name in categorical or pd.api.types.is_numeric_dtype(column):
            continue
        if not pd.api.types.is_string_dtype(column.dropna()) and column.dtype != object:
            continue
        given = column.dropna().astype(str)
        if len(given) and given.str.fullmatch(r"-?\d+,\d+").all():
            raise InputError(
                f"{path}: column {name!r}: numbers with a decimal comma ({given.iloc[0]!r}); write "
                "them with a decimal point"
            )
        stray = pd.to_numeric(given, errors="coerce").isna()
        if len(given) and 0 < stray.mean() < 1.0 - _MOSTLY:
            first = int(stray.to_numpy().argmax())
            row = int(np.flatnonzero(column.notna())[first]) + 1
            raise InputError(
                f"{path}: column {name!r}, row {row}: {given.iloc[first]!r} is "
                "not a number, while most of the column is; correct it, or name the column in "
                "--categorical"
            )


def write_table(path: Path, table: pd.DataFrame) -> None:
    """Write a table by its extension: either the whole of it is there afterwards, or nothing."""
    writers: dict[str, Callable[[Any], None]] = {
        ".csv": lambda file: table.to_csv(file, index=False),
        ".tsv": lambda file: table.to_csv(file, index=False, sep="\t"),
        ".xlsx": lambda file: table.to_excel(file, index=False, engine="openpyxl"),
        ".parquet": lambda file: table.to_parquet(file, index=False),
    }
    content = io.BytesIO()
    writers[path.suffix.lower()](content)
    _write(path, content.getvalue())


def write_text(path: Path, text: str) -> None:
    """Write text at once: either the whole of it is there afterwards, or nothing changed."""
    _write(path, text.encode())


def check_output(path: Path, *inputs: Path, tables: bool = False) -> None:
    """Refuse, before any work, a place that cannot be written or would replace an input."""
    if path.is_dir():
        raise InputError(f"{path}: is a directory; give a file name for the output")
    if not path.parent.is_dir():
        raise InputError(f"{path}: cannot be written: there is no folder {path.parent}")
    for one in inputs:
        if path.exists() and one.exists() and path.samefile(one):
            raise InputError(f"{path}: is an input; give another name for the output")
    if path.suffix.lower() in TABLES and not tables:
        raise InputError(f"{path}: is the name of a table; give another extension for the output")
    if path.suffix.lower() not in TABLES and tables:
        known = ", ".join(TABLES)
        raise InputError(f"{path}: expected a name with the extension {known} for the output")


def _write(path: Path, content: bytes) -> None:
    try:
        write_bytes(path, content)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from None


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file at once: either the whole of it is there afterwards, or nothing changed."""
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        # of the file that was asked for, not of the temporary one
        raise type(error)(error.errno, error.strerror, str(path)) from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
