"""From a table to arrays: what each column is taken for, and what is refused."""

import datetime
import decimal
import re
import warnings

import numpy as np
import pandas as pd
import pytest

from lvgp.errors import DataWarning, InputError, InputTypeError
from lvgp.space import Dropped, Qualitative, Quantitative, Space, build_space


@pytest.fixture(autouse=True)
def unexpected_warnings_are_errors():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def frame(values, **columns):
    """Return a table with the column "m" first and others of the same length."""
    return pd.DataFrame({"m": values, **columns})


def levels_of(X, name="m", **options):
    (column,) = [column for column in build_space(X, **options).columns if column.name == name]
    assert isinstance(column, Qualitative)
    return column.levels


# -- which columns are categories, and their levels ------------------------------------------------

CATEGORIES = {
    "str": (pd.Series(["b", "c", "a", "b"], dtype="str"), ("a", "b", "c")),
    "string": (pd.Series(["b", "c", "a", "b"], dtype="string"), ("a", "b", "c")),
    "object": (pd.Series(["b", "c", "a", "b"], dtype=object), ("a", "b", "c")),
    "category in its order": (
        pd.Series(pd.Categorical(["b", "a", "c", "a"], categories=["c", "b", "a"])),
        ("c", "b", "a"),
    ),
    "category with unobserved levels": (
        pd.Series(pd.Categorical(["b", "a", "b", "a"], categories=["z", "b", "y", "a"])),
        ("z", "b", "y", "a"),
    ),
    "ordered category": (
        pd.Series(pd.Categorical(["lo", "hi", "mid"] * 2, ["lo", "mid", "hi"], ordered=True)),
        ("lo", "mid", "hi"),
    ),
    "category of integers": (pd.Series([30, 10, 20, 10], dtype="category"), (10, 20, 30)),
    "category of numbers in its order": (
        pd.Series(pd.Categorical([0.5, 2.5, 1.5, 0.5], categories=[2.5, 0.5, 1.5])),
        (2.5, 0.5, 1.5),
    ),
    "bool": (pd.Series([True, False, True, True]), (False, True)),
    "nullable boolean": (pd.Series([True, False, True, True], dtype="boolean"), (False, True)),
    "bool as object": (pd.Series([True, False, True, True], dtype=object), (False, True)),
    "text that looks like numbers": (pd.Series(["10", "9", "10", "8"]), ("10", "8", "9")),
    "mixed types": (pd.Series(["b", 2, "a", 1, 2], dtype=object), (1, 2, "a", "b")),
    "empty text is a level": (pd.Series(["", "a", "b", ""]), ("", "a", "b")),
    "words for missing are levels": (
        pd.Series(["nan", "None", "NA", "nan"]),
        ("NA", "None", "nan"),
    ),
}


@pytest.mark.parametrize("case", CATEGORIES)
def test_column_that_is_not_numeric_is_categorical(case):
    values, expected = CATEGORIES[case]
    X = frame(values)
    levels = levels_of(X)
    assert levels == expected
    assert [type(level) for level in levels] == [type(level) for level in expected]
    encoded = build_space(X).encode(X)
    codes = encoded.t[:, 0] if len(expected) > 2 else encoded.x[:, 0].astype(int)
    assert [expected[code] for code in codes] == list(values)


DECLARED = {
    "int64": (pd.Series([3, 1, 2, 1]), (1, 2, 3)),
    "float": (pd.Series([0.5, 2.5, 1.5, 0.5]), (0.5, 1.5, 2.5)),
    "Int64": (pd.Series([3, 1, 2, 1], dtype="Int64"), (1, 2, 3)),
    "Float64": (pd.Series([3.5, 1, 2, 1], dtype="Float64"), (1.0, 2.0, 3.5)),
    "int8": (pd.Series([3, 1, 2, 1], dtype="int8"), (1, 2, 3)),
    "object": (pd.Series([10, 9, 8, 9], dtype=object), (8, 9, 10)),
}


@pytest.mark.parametrize("case", DECLARED)
def test_numbers_are_categories_when_declared(case):
    values, expected = DECLARED[case]
    X = frame(values)
    levels = levels_of(X, categorical=["m"])
    assert levels == expected
    assert all(type(level) in (int, float) for level in levels)
    codes = build_space(X, categorical=["m"]).encode(X).t[:, 0]
    assert [expected[code] for code in codes] == list(values)


@pytest.mark.parametrize("as_list", [list, tuple, np.array, pd.Index])
def test_categorical_takes_any_list_of_names(as_list):
    X = frame([1, 2, 3, 1], k=["u", "v", "w", "u"])
    space = build_space(X, categorical=as_list(["m", "k"]))
    assert [column.name for column in space.qualitative] == ["m", "k"]


def test_levels_are_counted():
    X = frame(pd.Categorical(["b", "a", "b", "a", "b"], categories=["a", "n", "b"]))
    assert build_space(X).columns == (Qualitative("m", ("a", "n", "b"), (2, 0, 3)),)


def test_levels_do_not_depend_on_the_order_of_rows():
    values = pd.Series(["b", 2, "a", 1, 10, 2.5, "B"], dtype=object)
    expected = levels_of(frame(pd.concat([values, values], ignore_index=True)))
    for seed in range(5):
        shuffled = pd.concat([values, values], ignore_index=True).sample(frac=1, random_state=seed)
        assert levels_of(frame(shuffled.array)) == expected


def test_numbers_with_the_same_value_are_the_same_level():
    X = frame([1, 2, 3, 1])
    space = build_space(X, categorical=["m"])
    for values in ([3.0, 1.0], pd.Series([3, 1], dtype="Int64"), pd.Categorical([3, 1])):
        assert space.encode(frame(values)).t.tolist() == [[2], [0]]


@pytest.mark.parametrize("method", ["str", "object", "string", "category"])
def test_levels_are_found_whatever_the_dtype_at_prediction(method):
    space = build_space(frame(["a", "b", "c", "a"]))
    assert space.encode(frame(pd.Series(["c", "a"], dtype=method))).t.tolist() == [[2], [0]]


# -- numeric columns -------------------------------------------------------------------------------

NUMBERS = {
    "float": pd.Series([2.0, 6.0, 4.0]),
    "int": pd.Series([2, 6, 4]),
    "uint8": pd.Series([2, 6, 4], dtype="uint8"),
    "float32": pd.Series([2, 6, 4], dtype="float32"),
    "Int64": pd.Series([2, 6, 4], dtype="Int64"),
    "Float64": pd.Series([2, 6, 4], dtype="Float64"),
    "object": pd.Series([2, 6.0, np.float64(4)], dtype=object),
}


@pytest.mark.parametrize("case", NUMBERS)
def test_numeric_column_is_scaled_by_its_range(case):
    X = frame(NUMBERS[case])
    space = build_space(X)
    assert space.columns == (Quantitative("m", 2.0, 6.0),)
    encoded = space.encode(X)
    assert encoded.x.dtype == np.float64
    np.testing.assert_array_equal(encoded.x, [[0.0], [1.0], [0.5]])
    assert encoded.t.shape == (3, 0)


@pytest.mark.parametrize("case", NUMBERS)
def test_numeric_column_is_scaled_by_declared_bounds(case):
    X = frame(NUMBERS[case])
    space = build_space(X, bounds={"m": (0, 8)})
    assert space.columns == (Quantitative("m", 0.0, 8.0),)
    np.testing.assert_array_equal(space.encode(X).x, [[0.25], [0.75], [0.5]])


def test_scale_is_that_of_the_training_table():
    space = build_space(frame([2.0, 6.0, 4.0]))
    np.testing.assert_array_equal(space.encode(frame([10.0, -2.0])).x, [[2.0], [-1.0]])


def test_constant_column_with_declared_bounds_is_kept():
    space = build_space(frame([5.0] * 3, k=[1, 2, 3]), bounds={"m": (0, 10)})
    assert space.columns[0] == Quantitative("m", 0.0, 10.0)


def test_columns_left_out_of_categorical_are_numeric():
    """A given list is the whole list: truth values and numeric text then count as numbers."""
    X = frame(["a", "b", "a"], flag=[True, False, True], text=["1.5", "2.5", "2.0"])
    space = build_space(X, categorical=["m"])
    assert space.columns[1:] == (Quantitative("flag", 0.0, 1.0), Quantitative("text", 1.5, 2.5))
    np.testing.assert_array_equal(space.encode(X).x[:, 1:], [[1.0, 0.0], [0.0, 1.0], [1.0, 0.5]])


def test_text_column_left_out_of_categorical_is_refused():
    X = frame(["a", "b", "a"], text=["1.5", "two", "2.0"]).set_axis(["r", "s", "t"])
    with pytest.raises(InputError, match=r"column 'text'.*'two' in row s.*categorical="):
        build_space(X, categorical=["m"])
    with pytest.raises(InputError, match="column 'm'"):
        build_space(X, categorical=[])


# -- two levels, one level -------------------------------------------------------------------------

TWO_LEVELS = {
    "text": (pd.Series(["v", "u", "v"]), {}),
    "bool": (pd.Series([True, False, True]), {}),
    "declared numbers": (pd.Series([7, 3, 7]), {"categorical": ["m"]}),
    "category": (pd.Series(pd.Categorical(["u", "v", "u"], categories=["v", "u"])), {}),
}


@pytest.mark.parametrize("case", TWO_LEVELS)
def test_two_levels_enter_as_zero_and_one(case):
    values, options = TWO_LEVELS[case]
    X = frame(values)
    space = build_space(X, **options)
    assert space.qualitative == ()
    assert [column.name for column in space.quantitative] == ["m"]
    np.testing.assert_array_equal(space.encode(X).x, [[1.0], [0.0], [1.0]])


def test_quantitative_and_qualitative_columns_keep_the_training_order():
    X = pd.DataFrame(
        {
            "m": ["a", "b", "c"],
            "x": [0.0, 1.0, 2.0],
            "two": ["u", "v", "u"],
            "k": [3, 1, 2],
            "z": [10.0, 10.0, 20.0],
        }
    )
    with pytest.warns(DataWarning, match="as many levels"):
        space = build_space(X, categorical=["k", "m", "two"])
    assert space.names == ["m", "x", "two", "k", "z"]
    assert [column.name for column in space.quantitative] == ["x", "two", "z"]
    assert [column.name for column in space.qualitative] == ["m", "k"]
    encoded = space.encode(X)
    np.testing.assert_array_equal(encoded.x, [[0.0, 0.0, 0.0], [0.5, 1.0, 0.0], [1.0, 0.0, 1.0]])
    np.testing.assert_array_equal(encoded.t, [[0, 2], [1, 0], [2, 1]])
    assert np.issubdtype(encoded.t.dtype, np.integer)


SINGLE = {
    "text": (["only"] * 4, {}, Dropped("m", "only", numeric=False)),
    "declared number": ([3] * 4, {"categorical": ["m"]}, Dropped("m", 3, numeric=False)),
    "bool": ([True] * 4, {}, Dropped("m", True, numeric=False)),
    "category": (pd.Categorical(["q"] * 4), {}, Dropped("m", "q", numeric=False)),
    "number": ([3.0] * 4, {}, Dropped("m", 3.0, numeric=True)),
    "Int64": (pd.Series([3] * 4, dtype="Int64"), {}, Dropped("m", 3.0, numeric=True)),
}


@pytest.mark.parametrize("case", SINGLE)
def test_column_with_a_single_value_is_dropped_with_a_warning(case):
    values, options, expected = SINGLE[case]
    X = frame(values, x=[0.0, 1.0, 2.0, 2.0])
    value = re.escape(repr(expected.value))
    with pytest.warns(DataWarning, match=f"column 'm': has the single value {value};") as caught:
        space = build_space(X, **options)
    assert len(caught) == 1
    assert space.columns[0] == expected
    encoded = space.encode(X)
    assert encoded.x.shape == (4, 1)
    assert encoded.t.shape == (4, 0)


def test_category_with_one_level_in_use_and_others_declared_is_kept():
    X = frame(pd.Categorical(["q"] * 3, categories=["z", "q", "b"]))
    assert build_space(X).encode(X).t.tolist() == [[1], [1], [1]]


def test_dropped_level_is_still_checked():
    with pytest.warns(DataWarning, match="single value"):
        space = build_space(frame(["only"] * 3, x=[0.0, 1.0, 2.0]))
    with pytest.raises(InputError, match=r"column 'm': unknown level 'other' in row 1.*'only'"):
        space.encode(frame(["only", "other"], x=[0.0, 1.0]))
    with pytest.raises(InputError, match=r"'m'.*missing"):
        space.encode(frame(["only", None], x=[0.0, 1.0]))


def test_other_values_of_a_constant_column_are_warned_of():
    with pytest.warns(DataWarning, match="single value"):
        space = build_space(frame([3.0] * 3, x=[0.0, 1.0, 2.0]))
    X = frame([3.0, 4.0, 3.0, 5.0], x=[0.0, 1.0, 2.0, 1.0]).set_axis(list("pqrs"))
    with pytest.warns(DataWarning, match=r"column 'm': was 3.0 in every training row.*rows q, s"):
        encoded = space.encode(X)
    np.testing.assert_array_equal(encoded.x, [[0.0], [0.5], [1.0], [0.5]])
    with pytest.raises(InputError, match=r"column 'm'.*row q"):
        space.encode(X.assign(m=[3.0, np.nan, 3.0, 3.0]))


def test_nothing_left_after_dropping_is_refused():
    X = frame(["only"] * 3, x=[1.0] * 3)
    with (
        pytest.warns(DataWarning, match="single value"),
        pytest.raises(InputError, match=r"every column \('m', 'x'\) has a single value"),
    ):
        build_space(X)


# -- as many levels as rows ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "options"),
    [
        (["r1", "r2", "r3", "r4"], {}),
        (["1.5", "2.5", "3.5", "4.5"], {}),
        ([1, 2, 3, 4], {"categorical": ["m"]}),
    ],
)
def test_as_many_levels_as_rows_is_warned_of(values, options):
    with pytest.warns(DataWarning, match=r"column 'm': has as many levels.*\(4\).*identifie"):
        build_space(frame(values), **options)


def test_fewer_levels_than_rows_is_not_warned_of(recwarn):
    build_space(frame(["r1", "r2", "r3", "r3"]))
    assert not recwarn.list


# -- declared levels -------------------------------------------------------------------------------


@pytest.mark.parametrize("as_list", [list, tuple, np.array, pd.Index, pd.Series])
@pytest.mark.parametrize("dtype", ["str", "object", "category"])
def test_declared_levels_are_kept_in_their_order(as_list, dtype):
    X = frame(pd.Series(["a", "b", "a"], dtype=dtype))
    assert levels_of(X, levels={"m": as_list(["b", "z", "a"])}) == ("b", "z", "a")


def test_levels_given_as_a_set_are_refused_or_sorted():
    """The order of a set of text changes from process to process, and the fit with it."""
    known = [f"level {letter}" for letter in "abcdefghijklmnop"]
    try:
        levels = levels_of(frame(known * 2), levels={"m": set(known)})
    except InputError as error:
        assert "'m'" in str(error)  # noqa: PT017 - either outcome is right
    else:
        assert levels == tuple(known)


def test_declared_levels_make_a_numeric_column_categorical():
    X = frame([1, 3, 1])
    space = build_space(X, levels={"m": range(1, 5)})
    assert space.columns == (Qualitative("m", (1, 2, 3, 4), (2, 0, 1, 0)),)
    assert all(type(level) is int for level in space.columns[0].levels)
    assert space.encode(frame([4, 2])).t.tolist() == [[3], [1]]


def test_single_value_with_other_declared_levels_is_kept():
    assert levels_of(frame(["a"] * 3), levels={"m": ["a", "b", "c"]}) == ("a", "b", "c")


def test_row_with_an_undeclared_level_is_refused():
    X = frame(["a", "c", "b", "d", "c"]).set_axis(list("pqrst"))
    expected = r"column 'm': unknown levels 'c', 'd' in rows q, s, t\. Known levels: 'a', 'b'\."
    with pytest.raises(InputError, match=expected):
        build_space(X, levels={"m": ["a", "b"]})


WRONG_OPTIONS = {
    "level twice": ({"levels": {"m": ["a", "b", "c", "b"]}}, "levels: column 'm' .*twice.*'b'"),
    "equal numbers": ({"levels": {"x": [0, 1, 1.0, 2]}}, "levels: column 'x' .*twice"),
    "no levels": ({"levels": {"m": []}}, "'m'"),
    "levels not a list": ({"levels": {"m": 3}}, "levels: column 'm'.*3"),
    "levels as one text": ({"levels": {"m": "abc"}}, "levels: column 'm'.*'abc'"),
    "levels not by column": ({"levels": ["a", "b"]}, "levels: .*column"),
    "level that is missing": ({"levels": {"m": ["a", "b", "c", None]}}, "'m'.*None"),
    "level that is NaN": ({"levels": {"m": ["a", "b", "c", np.nan]}}, "'m'.*nan"),
    "level that is a list": ({"levels": {"m": ["a", "b", "c", ["d"]]}}, r"'m'.*\['d'\]"),
    "levels of no column": ({"levels": {"n": ["a"]}}, r"levels: no column 'n'.*\['m', 'x'\]"),
    "categorical of no column": ({"categorical": ["n"]}, r"categorical: no column 'n'.*'m', 'x'"),
    "categorical as text": ({"categorical": "m"}, r"categorical: .*\['m'\]"),
    "categorical not a list": ({"categorical": 5}, "categorical: .*list.*5"),
    "categorical of lists": ({"categorical": [["m"]]}, "categorical: "),
    "position in a named table": ({"categorical": [0]}, r"categorical: no column 0.*\['m', 'x'\]"),
    "bounds of no column": ({"bounds": {"n": (0, 1)}}, r"bounds: no column 'n'.*\['m', 'x'\]"),
    "bounds of categories": ({"bounds": {"m": (0, 1)}}, "bounds: column 'm' is categorical"),
    "bounds of declared categories": (
        {"bounds": {"x": (0, 1)}, "categorical": ["m", "x"]},
        "bounds: column 'x' is categorical",
    ),
    "bounds of declared levels": (
        {"bounds": {"x": (0, 1)}, "levels": {"x": [0, 1, 2]}},
        "bounds: column 'x' is categorical",
    ),
    "bounds not by column": ({"bounds": (0, 1)}, "bounds: .*column"),
}


@pytest.mark.parametrize("case", WRONG_OPTIONS)
def test_wrong_declaration_is_refused(case):
    options, message = WRONG_OPTIONS[case]
    X = frame(["a", "b", "c", "a"], x=[0, 1, 2, 0])
    with pytest.raises(InputError, match=message):
        build_space(X, **options)


@pytest.mark.parametrize(
    "bounds",
    [
        (1,),
        (0, 1, 2),
        (),
        5,
        "ab",
        (None, 1),
        ("low", "high"),
        (1, 1),
        (2, 1),
        (0, np.inf),
        (-np.inf, 0),
        (np.nan, 1),
    ],
)
def test_wrong_bounds_are_refused(bounds):
    expected = f"bounds: column 'm' needs .*got {re.escape(repr(bounds))}"
    with pytest.raises(InputError, match=expected):
        build_space(frame([0.0, 0.5, 1.0]), bounds={"m": bounds})


def test_rows_outside_the_declared_bounds_are_warned_of():
    X = frame([0.5, 1.5, -0.5]).set_axis(["p", "q", "r"])
    expected = r"column 'm': rows q, r lie outside the declared bounds \(0, 1\)"
    with pytest.warns(DataWarning, match=expected):
        space = build_space(X, bounds={"m": (0, 1)})
    np.testing.assert_array_equal(space.encode(X).x, [[0.5], [1.5], [-0.5]])


# -- what no column can be -------------------------------------------------------------------------

DATES = pd.to_datetime(["2020-01-01", "2020-01-02", "2020-01-03"])
REFUSED_TYPES = {
    "datetime": (DATES, {}),
    "datetime with time zone": (DATES.tz_localize("UTC"), {}),
    "timedelta": (pd.to_timedelta([1, 2, 3], unit="D"), {}),
    "datetime declared categorical": (DATES, {"categorical": ["m"]}),
    "period": (pd.period_range("2020-01", periods=3, freq="M"), {}),
    "date": (pd.Series([datetime.date(2020, 1, day) for day in (1, 2, 3)], dtype=object), {}),
    "interval": (pd.cut([1.0, 2.0, 3.0], 3), {}),
    "decimal": (pd.Series([decimal.Decimal(k) for k in (1, 2, 3)], dtype=object), {}),
    "bytes": (pd.Series([b"a", b"b", b"c"], dtype=object), {}),
    "list": (pd.Series([["a"], ["b"], ["c"]], dtype=object), {}),
    "tuple": (pd.Series([("a",), ("b",), ("c",)], dtype=object), {}),
    "dict": (pd.Series([{}, {}, {}], dtype=object), {}),
    "complex": (pd.Series([1 + 1j, 2, 3]), {}),
    "complex object": (pd.Series([1 + 1j, 2, 3], dtype=object), {}),
    "complex declared categorical": (pd.Series([1 + 1j, 2, 3]), {"categorical": ["m"]}),
}


@pytest.mark.parametrize("case", REFUSED_TYPES)
def test_other_kinds_of_column_are_refused_by_name(case):
    values, options = REFUSED_TYPES[case]
    with pytest.raises(InputError, match="column 'm'"):
        build_space(frame(values, x=[0.0, 1.0, 2.0]), **options)


PREDICTED_NUMBERS = {
    "text": (["1.5", "two", "nan"], r"column 'm': expected numbers, got 'two' in rows q, r"),
    "datetime": (DATES, "column 'm'"),
    "timedelta": (pd.to_timedelta([1, 2, 3], unit="D"), "column 'm'"),
    "complex": ([1 + 1j, 2, 3], "column 'm'"),
    "list": (pd.Series([1.0, [2.0], 3.0], dtype=object).array, r"column 'm', row 'q'.*\[2.0\]"),
    "NaN": ([1.0, np.nan, np.inf], r"column 'm'.*rows q, r \(2 of 3\)"),
    "NA": (pd.array([1, None, 3], dtype="Int64"), r"column 'm'.*row q \(1 of 3\)"),
    "None": (pd.Series([1, None, 3], dtype=object).array, r"column 'm'.*row q \(1 of 3\)"),
    "text of infinity": (["1.5", "2", "inf"], r"column 'm'.*row r \(1 of 3\)"),
    "category with a missing value": (pd.Categorical([1, None, 2]), r"'m'.*row q \(1 of 3\)"),
}


@pytest.mark.parametrize("case", PREDICTED_NUMBERS)
def test_numeric_column_takes_nothing_else_at_prediction(case):
    values, message = PREDICTED_NUMBERS[case]
    space = build_space(frame([1.0, 2.0, 3.0]))
    with pytest.raises(InputError, match=message):
        space.encode(frame(values).set_axis(["p", "q", "r"]))


PREDICTED_LEVELS = {
    "unknown": (
        ["a", "A", "zz"],
        r"column 'm': unknown levels 'A', 'zz' in rows q, r\. Known levels: 'a', 'b', 'c'\.",
    ),
    "space": (["a", "a ", "b"], "column 'm': unknown level 'a ' in row q"),
    "number": ([1, 2, 1], "column 'm': unknown levels 1, 2 in rows p, q, r"),
    "missing": (["a", None, "b"], r"column 'm'.*row q \(1 of 3\)"),
    "missing category": (pd.Categorical(["a", None, "b"]), r"column 'm'.*row q \(1 of 3\)"),
    "list": (pd.Series(["a", ["b"], "c"], dtype=object).array, r"column 'm', row 'q'.*\['b'\]"),
    "date": (DATES, "column 'm'.*2020"),
    "decimal": (pd.Series(["a", decimal.Decimal(1), "b"], dtype=object).array, "column 'm'.*row"),
}


@pytest.mark.parametrize("case", PREDICTED_LEVELS)
def test_unknown_level_is_refused_with_the_known_ones(case):
    values, message = PREDICTED_LEVELS[case]
    space = build_space(frame(["a", "b", "c", "a"]))
    with pytest.raises(InputError, match=message):
        space.encode(frame(values).set_axis(["p", "q", "r"]))


def test_unobserved_levels_can_be_predicted_at():
    space = build_space(frame(pd.Categorical(["a", "b", "a"], categories=["a", "n", "b"])))
    assert space.encode(frame(["n", "b"])).t.tolist() == [[1], [2]]


def test_many_unknown_levels_are_not_all_listed():
    space = build_space(frame(["a", "b", "c", "a"]))
    with pytest.raises(InputError, match="in rows 0, 1, 2, 3, 4 and 35 more") as caught:
        space.encode(frame([f"new{k}" for k in range(40)]))
    assert "'new0'" in str(caught.value)
    assert "'new20'" not in str(caught.value)


MISSING = {
    "NaN among numbers": ([1.0, np.nan, 3.0, 4.0], {}),
    "infinity": ([1.0, np.inf, 3.0, 4.0], {}),
    "minus infinity": ([1.0, -np.inf, 3.0, 4.0], {}),
    "NA among integers": (pd.array([1, None, 3, 4], dtype="Int64"), {}),
    "NA among floats": (pd.array([1, None, 3, 4], dtype="Float64"), {}),
    "None among numbers": (pd.Series([1, None, 3, 4], dtype=object).array, {}),
    "NaN among text": (["a", np.nan, "b", "a"], {}),
    "None among text": (pd.Series(["a", None, "b", "a"], dtype=object).array, {}),
    "category": (pd.Categorical(["a", None, "b", "a"]), {}),
    "boolean": (pd.array([True, None, False, True], dtype="boolean"), {}),
    "declared category": ([1.0, np.nan, 3.0, 1.0], {"categorical": ["m"]}),
    "NA among objects": (pd.Series([1, pd.NA, 3, 4], dtype=object).array, {}),
    "category taken as numbers": (pd.Categorical([1, None, 3, 1]), {"categorical": []}),
}


@pytest.mark.parametrize("case", MISSING)
def test_missing_value_is_refused_with_column_and_row(case):
    values, options = MISSING[case]
    X = frame(values, x=[0.0, 1.0, 2.0, 3.0]).set_axis([10, 20, 30, 40])
    with pytest.raises(InputError, match=r"column 'm'.*row 20 \(1 of 4\)"):
        build_space(X, **options)


def test_numbers_too_large_to_scale_are_refused():
    X = frame([-1e308, 0.0, 1e308])
    with pytest.raises(InputError, match="column 'm'"):
        build_space(X)


# -- names and positions ---------------------------------------------------------------------------


def test_columns_are_found_by_name():
    X = frame(["a", "b", "c", "a"], x=[0.0, 1.0, 2.0, 4.0], z=[5.0, 5.0, 6.0, 7.0])
    space = build_space(X)
    expected = space.encode(X)
    for order in (["x", "z", "m"], ["z", "m", "x"]):
        encoded = space.encode(X[order])
        np.testing.assert_array_equal(encoded.x, expected.x)
        np.testing.assert_array_equal(encoded.t, expected.t)


OTHER_FORMS = {
    "missing column": (
        lambda X: X.drop(columns="x"),
        r"columns missing \['x'\]; expected \['m', 'x'\]",
    ),
    "extra column": (lambda X: X.assign(w=1.0), r"columns not expected \['w'\]"),
    "renamed column": (
        lambda X: X.rename(columns={"x": "w"}),
        r"missing \['x'\] and not expected \['w'\]",
    ),
    "repeated column": (lambda X: X.rename(columns={"x": "m"}), r"more than once: \['m'\]"),
    "no column": (lambda X: X.iloc[:, :0], "0 feature"),
    "column named by a float": (
        lambda X: X.rename(columns={"x": 1.5}),
        r"strings or integers, got \[1.5\]",
    ),
    "series": (lambda X: X["x"], "one column"),
    "1-d array": (lambda X: X["x"].to_numpy(), r"2-d table.*\(4,\)"),
    "3-d array": (lambda X: X.to_numpy()[None], r"2-d table.*\(1, 4, 2\)"),
    "array with fewer columns": (
        lambda X: X.to_numpy()[:, :1],
        r"1 features, .* expecting 2 features.*\['m', 'x'\]",
    ),
    "nothing": (lambda X: None, "2-d table"),
    "dictionary": (lambda X: X.to_dict("list"), "2-d table"),
    "rows of different length": (lambda X: [["a", 1.0], ["b"]], "^X"),
}


@pytest.mark.parametrize("case", OTHER_FORMS)
def test_table_of_another_form_is_refused(case):
    change, message = OTHER_FORMS[case]
    X = frame(["a", "b", "c", "a"], x=[0.0, 1.0, 2.0, 4.0])
    with pytest.raises(InputError, match=message):
        build_space(X).encode(change(X))


def test_duplicate_column_names_are_refused():
    X = pd.DataFrame(np.eye(4), columns=["b", "a", "b", "a"])
    with pytest.raises(InputError, match=r"more than once: \['b', 'a'\]"):
        build_space(X)


@pytest.mark.parametrize("names", [[("a", "b"), ("a", "c")], [1.5, 2.5], [None, "a"]])
def test_column_names_are_text_or_integers(names):
    X = pd.DataFrame(np.eye(2), columns=pd.Index(names, dtype=object, tupleize_cols=False))
    with pytest.raises(InputTypeError, match="strings or integers"):
        build_space(X)


def test_integer_column_names_are_names():
    X = pd.DataFrame([[1, 5.0], [2, 6.0], [3, 7.0], [3, 8.0]], columns=[7, 0])
    space = build_space(X, categorical=[7], bounds={0: (0, 10)})
    assert space.columns == (Qualitative(7, (1, 2, 3), (1, 1, 2)), Quantitative(0, 0.0, 10.0))
    np.testing.assert_array_equal(space.encode(X[[0, 7]]).x, [[0.5], [0.6], [0.7], [0.8]])


@pytest.mark.parametrize("dtype", [float, int, np.float32, object])
def test_array_of_numbers(dtype):
    array = np.array([[1, 10], [2, 20], [3, 30], [3, 50]], dtype=dtype)
    space = build_space(array)
    assert space.columns == (Quantitative("x0", 1.0, 3.0), Quantitative("x1", 10.0, 50.0))
    assert not space.named
    expected = [[0.0, 0.0], [0.5, 0.25], [1.0, 0.5], [1.0, 1.0]]
    np.testing.assert_array_equal(space.encode(array).x, expected)
    np.testing.assert_array_equal(space.encode(array.tolist()).x, expected)


def test_array_of_objects_has_columns_of_their_own_kind():
    array = np.array([["a", 1.5, True], ["b", 2.5, False], ["c", 2.0, True]] * 2, dtype=object)
    space = build_space(array)
    assert [type(column) for column in space.columns] == [Qualitative, Quantitative, Qualitative]
    encoded = space.encode(array)
    np.testing.assert_array_equal(encoded.t[:3], [[0], [1], [2]])
    np.testing.assert_array_equal(encoded.x[:3], [[0.0, 1.0], [1.0, 0.0], [0.5, 1.0]])


def test_list_of_rows_has_columns_of_their_own_kind():
    rows = [["a", 1.5], ["b", 2.5], ["c", 2.0], ["a", 1.5]]
    space = build_space(rows)
    assert space.columns[1] == Quantitative("x1", 1.5, 2.5)
    np.testing.assert_array_equal(space.encode(rows).x[:, 0], [0.0, 1.0, 0.5, 0.0])


def test_columns_of_an_array_are_declared_by_position():
    array = np.array([[1, 5.0, 2], [2, 6.0, 4], [3, 7.0, 2], [3, 8.0, 2]])
    space = build_space(
        array, categorical=[0], bounds={np.int64(1): (0, 10)}, levels={2: [2, 4, 6]}
    )
    assert space.columns == (
        Qualitative("x0", (1.0, 2.0, 3.0), (1, 1, 2)),
        Quantitative("x1", 0.0, 10.0),
        Qualitative("x2", (2, 4, 6), (3, 1, 0)),
    )
    assert build_space(array, categorical=["x0"]).columns[0] == space.columns[0]


@pytest.mark.parametrize("position", [2, -1, "m"])
def test_position_outside_an_array_is_refused(position):
    expected = f"categorical: no column {position!r}"
    with pytest.raises(InputError, match=expected):
        build_space(np.eye(2), categorical=[position])


def test_array_for_a_named_table_goes_by_position_with_a_warning():
    X = frame(["a", "b", "c", "a"], x=[0.0, 1.0, 2.0, 4.0])
    space = build_space(X)
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        encoded = space.encode(X.to_numpy(dtype=object))
    np.testing.assert_array_equal(encoded.x, space.encode(X).x)
    np.testing.assert_array_equal(encoded.t, space.encode(X).t)


def test_named_table_for_an_array_goes_by_position_with_a_warning():
    X = frame(["a", "b", "c", "a"], x=[0.0, 1.0, 2.0, 4.0])
    space = build_space(X.to_numpy(dtype=object))
    with pytest.warns(UserWarning, match="fitted without feature names"):
        encoded = space.encode(X)
    np.testing.assert_array_equal(encoded.x, space.encode(X.to_numpy(dtype=object)).x)


def test_sparse_and_complex_arrays_are_refused():
    sparse = pytest.importorskip("scipy.sparse")
    with pytest.raises(InputTypeError, match="toarray"):
        build_space(sparse.csr_array(np.eye(3)))
    with pytest.raises(InputError, match="Complex data not supported"):
        build_space(np.eye(3) * 1j)


def test_masked_values_are_not_taken_for_values():
    array = np.ma.masked_array(np.arange(6.0).reshape(3, 2), mask=np.eye(3, 2))
    with pytest.raises(InputError, match=r"x0.*row 0|[Mm]asked"):
        build_space(array)


def test_table_is_left_as_it_was():
    X = frame(["b", "a", "c", "b"], x=pd.Series([0, 1, 2, 4], dtype="Int64"), o=[1.0, 2.0, 3.0, 3])
    before = X.copy(deep=True)
    build_space(X, categorical=["m", "o"], levels={"m": list("abcd")}).encode(X)
    pd.testing.assert_frame_equal(X, before)


def test_no_rows_encode_to_no_rows():
    X = frame(["a", "b", "c", "a"], x=[0.0, 1.0, 2.0, 4.0])
    encoded = build_space(X).encode(X.iloc[:0])
    assert encoded.x.shape == (0, 1)
    assert encoded.t.shape == (0, 1)


def test_widths_are_in_the_units_of_the_column():
    space = Space((Quantitative("x", 2.0, 6.0), Qualitative("m", ("a", "b"), (1, 1))))
    assert [column.width for column in space.quantitative] == [4.0, 1.0]


def test_a_column_that_only_numbers_the_rows_is_named():
    table = pd.DataFrame({"sample": range(1, 21), "site": ["a", "b", "c", "d"] * 5})
    with pytest.warns(DataWarning, match="'sample': only numbers the rows"):
        build_space(table)


def test_an_unknown_level_of_two_says_why_no_prior_helps():
    table = pd.DataFrame({"side": ["left", "right"] * 5, "site": ["a", "b", "c", "d", "e"] * 2})
    space = build_space(table)
    with pytest.raises(InputError, match="tells nothing of a third"):
        space.encode(table.assign(side="top"), take_unknown=True)
    with pytest.raises(InputError, match="--unknown-levels prior"):
        space.encode(table.assign(site="z"))
