"""The command line: what it writes, and how it refuses what it cannot use."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import lvgp
from lvgp.cli import app
from lvgp.files import read_table


def table(rows=30, seed=0):
    rng = np.random.default_rng(seed)
    found = pd.DataFrame({"site": rng.choice(list("abcd"), rows), "heat": rng.uniform(5, 9, rows)})
    found["G"] = found["site"].map({"a": 0.0, "b": 1.0, "c": 1.2, "d": 3.0}) + np.sin(found["heat"])
    return found


def call(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli")
    table().to_csv(folder / "data.csv", index=False)
    done = call(
        "fit", folder / "data.csv", "--target", "G", "--method", "map", "-o", folder / "m.lvgp"
    )
    return folder, done


def test_fit_says_what_it_understood_and_how_good_it_is(fitted):
    folder, done = fitted
    assert done.exit_code == 0, done.output
    words = " ".join(done.output.split())
    assert "category, 4 levels" in words
    assert "Predicting each row from the others: RRMSE" in words
    assert "Verdict: caution" in words
    assert lvgp.load(folder / "m.lvgp").seed_ == 0


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".xlsx", ".parquet"])
def test_predict_reads_every_kind_of_file_and_keeps_the_rows(fitted, suffix, tmp_path):
    folder, _ = fitted
    new = table(7, seed=1).drop(columns="G").assign(note="x")
    path = tmp_path / f"new{suffix}"
    write = {
        ".csv": lambda: new.to_csv(path, index=False),
        ".tsv": lambda: new.to_csv(path, sep="\t", index=False),
        ".xlsx": lambda: new.to_excel(path, index=False),
        ".parquet": lambda: new.to_parquet(path),
    }
    write[suffix]()
    done = call("predict", folder / "m.lvgp", path, "-o", tmp_path / "out.csv", "-q")
    assert done.exit_code == 0, done.output
    found = pd.read_csv(tmp_path / "out.csv")
    assert list(found) == ["site", "heat", "note", "mean", "lower", "upper"]
    model = lvgp.load(folder / "m.lvgp")
    np.testing.assert_allclose(found["mean"], model.predict(new[["site", "heat"]]), rtol=1e-6)


def test_json_for_scripts(fitted, tmp_path):
    folder, _ = fitted
    done = call(
        "fit",
        folder / "data.csv",
        "--target",
        "G",
        "--method",
        "map",
        "--json",
        "-o",
        tmp_path / "m",
    )
    told = json.loads(done.stdout)
    assert told["rows"] == 30
    assert 0 <= told["rrmse_left_out"] < 1
    assert told["verdict"] == "caution"


def test_names_that_clash_are_renamed(fitted, tmp_path):
    folder, _ = fitted
    table(4).assign(mean=1.0).to_csv(tmp_path / "new.csv", index=False)
    done = call("predict", folder / "m.lvgp", tmp_path / "new.csv", "-o", tmp_path / "out.csv")
    assert done.exit_code == 0
    assert {"mean", "predicted_mean", "predicted_upper"} <= set(pd.read_csv(tmp_path / "out.csv"))


GOOD = "site,heat,G\n" + "".join(f"{'abcd'[i % 4]},{i},{i * 0.5}\n" for i in range(12))
BAD_TABLES = {
    "empty": (b"", "is empty"),
    "blank lines": (b"\n\n", "is empty"),
    "header only": (b"site,heat,G\n", "has column names and no rows"),
    "encoding": (GOOD.replace("a,", "é,").encode("latin-1"), "is not UTF-8 text"),
    "utf-16": (GOOD.encode("utf-16"), "is not UTF-8 text"),
    "binary": (bytes(range(256)) * 4, "is not UTF-8 text"),
    "ragged long": (GOOD.encode() + b"a,1,2,3\n", "line 14 has 4 fields, the header 3"),
    "ragged short": (GOOD.encode() + b"a,1\n", "line 14 has 2 fields, the header 3"),
    "duplicate header": (GOOD.replace("heat", "site", 1).encode(), "two columns are called 'site'"),
    "no name": (GOOD.replace("heat", "", 1).encode(), "column 2 has no name"),
    "no target": (GOOD.replace("G", "H", 1).encode(), "--target: no column 'G'"),
    "target only": (b"G\n1\n2\n3\n", "no columns are left"),
    "text in a number": (GOOD.replace(",3,", ",three,").encode(), "row 4: 'three' is not a number"),
    "text in the target": (GOOD.replace("0.5\n", "half\n", 1).encode(), "is not a number"),
    "all text in the target": (b"site,G\n" + b"a,x\nb,y\nc,z\nd,w\n" * 3, "y"),
    "missing level": (GOOD.replace("b,1,", ",1,").encode(), "site"),
    "missing number": (GOOD.replace(",3,", ",,").encode(), "heat"),
    "missing target": (GOOD.replace("1.5\n", "\n", 1).encode(), "y"),
    "infinite number": (GOOD.replace(",3,", ",inf,").encode(), "heat"),
    "constant target": (b"site,heat,G\n" + b"a,1,2\nb,2,2\nc,3,2\n" * 4, "y"),
    "one row": (b"site,heat,G\na,1,2\n", "y"),
    "semicolons": (GOOD.replace(",", ";").encode(), "separated by semicolons"),
    "decimal commas": (
        b"site,heat,G\n" + b'a,"1,5",2\nb,"2,5",3\nc,"0,5",4\nd,"3,5",1\n' * 3,
        "numbers with a decimal comma ('1,5')",
    ),
    "quote not closed": (GOOD.encode() + b'"a,1,2\n', "is not a readable .csv file"),
}


@pytest.mark.parametrize("name", BAD_TABLES)
def test_a_bad_table_is_refused_in_one_line(name, tmp_path):
    content, message = BAD_TABLES[name]
    (tmp_path / "data.csv").write_bytes(content)
    done = call(
        "fit", tmp_path / "data.csv", "--target", "G", "--method", "map", "-q", "-o", tmp_path / "m"
    )
    assert done.exit_code == 2, done.output
    assert message in " ".join(done.output.split())
    assert "Traceback" not in done.output
    assert done.exception is None or isinstance(done.exception, SystemExit)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.csv"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["none.csv", "--target", "G"], "there is no such file"),
        ([".", "--target", "G"], "is a directory"),
        (["data.doc", "--target", "G"], "expected a file with the extension"),
        (["data.csv"], "--target"),
        (["data.csv", "--target", "G", "--method", "magic"], "method: expected one of"),
        (["data.csv", "--target", "G", "--kernel", "magic"], "kernel: expected one of"),
        (["data.csv", "--target", "G", "--approximation", "x"], "approximation: expected one of"),
        (["data.csv", "--target", "G", "--categorical", "nope"], "--categorical: no column 'nope'"),
        (["data.csv", "--target", "G", "--latent-dim", "0"], "latent_dim"),
        (
            ["data.csv", "--target", "G", "--method", "map", "--draws", "50"],
            "--draws: has an effect",
        ),
        (
            ["data.csv", "--target", "G", "--method", "vi", "--converge", "predictions"],
            "--converge: has an effect",
        ),
        (["data.csv", "--target", "G", "--n-inducing", "5"], "--n-inducing: has an effect"),
        (["data.csv", "--target", "G", "--method", "map", "-o", "no/m"], "there is no folder no"),
    ],
)
def test_a_wrong_call_is_refused_in_one_line(options, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table().to_csv("data.csv", index=False)
    (tmp_path / "data.doc").write_text("x")
    done = call("fit", *options)
    assert done.exit_code == 2, done.output
    assert message in " ".join(done.output.split())
    assert "Traceback" not in done.output


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root can read everything")
def test_an_unreadable_file_is_named(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text(GOOD)
    path.chmod(0)
    done = call("fit", path, "--target", "G")
    assert done.exit_code == 2
    assert "cannot be read" in done.output


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"not a model", "not a saved lvgp model"), (None, "truncated"), (b"", "not a saved")],
)
def test_a_file_that_is_no_model_is_refused(fitted, content, message, tmp_path):
    folder, _ = fitted
    whole = (folder / "m.lvgp").read_bytes()
    (tmp_path / "m.lvgp").write_bytes(whole[: len(whole) // 2] if content is None else content)
    done = call("predict", tmp_path / "m.lvgp", folder / "data.csv", "-o", tmp_path / "out.csv")
    assert done.exit_code == 2
    assert message in " ".join(done.output.split())
    assert not (tmp_path / "out.csv").exists()


BAD_FILES = {
    "corrupt.xlsx": b"PK\x03\x04 not a workbook",
    "corrupt.parquet": b"PAR1 not a table PAR1",
    "empty.xlsx": b"",
    "empty.parquet": b"",
    "tabs.tsv": GOOD.encode(),
    "nul.csv": GOOD.replace("a,0", "a\0,0").encode(),
    "dates.csv": b"when,G\n" + b"".join(b"2020-01-%02d,%d\n" % (i, i * i) for i in range(1, 13)),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_file_gives_one_line_or_a_sensible_fit(name, tmp_path):
    path = tmp_path / name
    path.write_bytes(BAD_FILES[name])
    done = call("fit", path, "--target", "G", "--method", "map", "-q", "-o", tmp_path / "m")
    assert "Traceback" not in done.output
    assert done.exception is None or isinstance(done.exception, SystemExit)
    if done.exit_code == 0:
        assert np.isfinite(lvgp.load(tmp_path / "m").loo()["mean"]).all()
    else:
        assert done.exit_code == 2
        assert done.output.count("\n") == 1
        assert name in done.output
        assert not (tmp_path / "m").exists()


def test_far_too_many_rows_are_refused_with_what_to_do(tmp_path):
    rng = np.random.default_rng(0)
    values = {"site": rng.choice(list("abcd"), 150_000), "heat": rng.normal(size=150_000)}
    pd.DataFrame(values).assign(G=values["heat"]).to_csv(tmp_path / "data.csv", index=False)
    done = call("fit", tmp_path / "data.csv", "--target", "G", "-q", "-o", tmp_path / "m")
    assert done.exit_code == 2, done.output
    assert "--approximation vfe" in done.output
    assert not (tmp_path / "m").exists()


def test_report_writes_a_page(fitted, tmp_path):
    folder, _ = fitted
    done = call("report", folder / "m.lvgp", "-o", tmp_path / "report.html")
    assert done.exit_code == 0, done.output
    text = (tmp_path / "report.html").read_text()
    assert "G, predicted from site, heat" in text
    told = call("report", folder / "m.lvgp", "-o", tmp_path / "report.html", "--json")
    assert json.loads(told.stdout)["verdict"] == "caution"


@pytest.mark.parametrize("content", [b"not a model", b"", None])
def test_report_refuses_what_is_no_model(fitted, content, tmp_path):
    folder, _ = fitted
    whole = (folder / "m.lvgp").read_bytes()
    (tmp_path / "m.lvgp").write_bytes(whole[: len(whole) // 2] if content is None else content)
    done = call("report", tmp_path / "m.lvgp", "-o", tmp_path / "report.html")
    assert done.exit_code == 2
    assert done.output.count("\n") == 1
    assert not (tmp_path / "report.html").exists()


def test_demo_writes_its_files_and_spares_those_there(tmp_path):
    done = call("demo", "--output", tmp_path / "out", "--json")
    assert done.exit_code == 0, done.output
    scores = json.loads(done.stdout)
    assert scores["bayes"]["coverage"] > 0.9 > 0.6 > scores["map"]["coverage"]
    files = ["borehole.csv", "model.lvgp", "predictions.csv", "report.html"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == files
    found = pd.read_csv(tmp_path / "out" / "predictions.csv")
    inside = (found["lower"] <= found["truth"]) & (found["truth"] <= found["upper"])
    assert inside.mean() == pytest.approx(scores["bayes"]["coverage"])
    again = call("demo", "--output", tmp_path / "out")
    assert again.exit_code == 2
    assert "exists already" in " ".join(again.output.split())


@pytest.mark.parametrize(
    "command", [[], ["fit"], ["predict"], ["report"], ["demo"], ["study"], ["study", "run"]]
)
def test_help_shows_an_example(command):
    done = call(*command, "--help")
    assert done.exit_code == 0
    assert "Example: lvgp " in done.output


def test_a_workbook_column_without_a_name_is_refused(tmp_path):
    table().rename(columns={"heat": ""}).to_excel(tmp_path / "data.xlsx", index=False)
    done = call("fit", tmp_path / "data.xlsx", "--target", "G", "--method", "map")
    assert done.exit_code == 2
    assert "column 2 has no name" in " ".join(done.output.split())


def test_options_for_columns_add_up_and_take_commas(tmp_path):
    wide = table().assign(twice=lambda rows: 2 * rows["G"], again=lambda rows: rows["G"], z=1.5)
    wide.to_csv(tmp_path / "data.csv", index=False)
    common = ["fit", tmp_path / "data.csv", "--target", "G", "--method", "map", "-q"]
    for options in (
        ["--ignore", "twice", "--ignore", "again,z"],
        ["--inputs", "site", "--inputs", "heat"],
        ["--inputs", "site,heat", "--categorical", "site"],
    ):
        done = call(*common, *options, "-o", tmp_path / "m")
        assert done.exit_code == 0, done.output
        assert lvgp.load(tmp_path / "m").space_.names == ["site", "heat"]
    assert call(*common, "--inputs", "site", "--ignore", "z").exit_code == 2
    assert call(*common, "--inputs", "site,G").exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit", "data.csv", "--target", "G", "-o", "data.csv"], "is an input"),
        (["fit", "data.csv", "--target", "G", "-o", "other.xlsx"], "is the name of a table"),
        (["fit", "data.csv", "--target", "G", "-o", "nowhere/m.lvgp"], "there is no folder"),
        (["fit", "data.csv", "--target", "G", "-o", "."], "is a directory"),
        (["fit", "data.csv", "--target", "g"], "did you mean 'G'?"),
        (["fit", "data.xls", "--target", "G"], "save the workbook as .xlsx"),
        (["predict", "m.lvgp", "data.csv", "-o", "data.csv"], "is an input"),
        (["predict", "m.lvgp", "data.csv", "-o", "out.txt"], "expected a name with the extension"),
        (["predict", "data.csv", "m.lvgp", "-o", "out.csv"], "the model comes first"),
        (["predict", "m.lvgp", "upper.csv", "-o", "out.csv"], "did you mean 'Site'?"),
        (["predict", "m.lvgp", "other.csv", "-o", "out.csv"], "no column 'site'"),
        (["report", "m.lvgp", "-o", "m.lvgp"], "is an input"),
        (["report", "data.csv"], "is a table, not a model"),
    ],
)
def test_no_file_is_lost_or_mixed_up(fitted, arguments, message, tmp_path, monkeypatch):
    folder, _ = fitted
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.lvgp").write_bytes((folder / "m.lvgp").read_bytes())
    table().to_csv("data.csv", index=False)
    table().rename(columns={"site": "Site"}).to_csv("upper.csv", index=False)
    table().rename(columns={"site": "x", "heat": "y"}).to_csv("other.csv", index=False)
    (tmp_path / "data.xls").write_bytes(b"old")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    done = call(*arguments)
    assert done.exit_code == 2, done.output
    assert message in " ".join(done.output.split())
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("suffix", [".tsv", ".xlsx", ".parquet"])
def test_predictions_are_written_by_extension(fitted, suffix, tmp_path):
    folder, _ = fitted
    out = tmp_path / f"out{suffix}"
    assert call("predict", folder / "m.lvgp", folder / "data.csv", "-o", out).exit_code == 0
    found = read_table(out)
    assert len(found) == 30
    assert list(found)[-3:] == ["mean", "lower", "upper"]


def test_levels_that_look_like_numbers_are_found_again(tmp_path):
    data = table().assign(site=lambda rows: rows["site"].map({"a": 1, "b": 2, "c": 3, "d": 4}))
    model = lvgp.LVGPRegressor("map", random_state=0).fit(
        data[["site", "heat"]].assign(site=data["site"].astype(str)), data["G"]
    )
    model.save(tmp_path / "m.lvgp")
    data.to_csv(tmp_path / "data.csv", index=False)
    done = call("predict", tmp_path / "m.lvgp", tmp_path / "data.csv", "-o", tmp_path / "out.csv")
    assert done.exit_code == 0, done.output
    expected = model.predict(data[["site", "heat"]].assign(site=data["site"].astype(str)))
    np.testing.assert_allclose(pd.read_csv(tmp_path / "out.csv")["mean"], expected, rtol=1e-6)


def test_predict_says_what_is_doubtful(fitted, tmp_path):
    folder, _ = fitted
    table(4).assign(heat=[5.5, 6, 20, 30]).to_csv(tmp_path / "new.csv", index=False)
    done = call("predict", folder / "m.lvgp", tmp_path / "new.csv", "-o", tmp_path / "out.csv")
    assert done.exit_code == 0
    assert "'heat': 2 rows lie outside" in " ".join(done.output.split())
    options = {"draws": 50, "warmup": 20, "random_state": 0, "progress": False}
    with pytest.warns(lvgp.errors.ConvergenceWarning):
        poor = lvgp.LVGPRegressor(**options).fit(table()[["site", "heat"]], table()["G"])
    poor.save(tmp_path / "poor.lvgp")
    done = call("predict", tmp_path / "poor.lvgp", tmp_path / "new.csv", "-o", tmp_path / "out.csv")
    assert f"verdict on predictions is {poor.diagnostics_.predictions}" in " ".join(
        done.output.split()
    )


def test_rows_are_counted_from_one_in_every_message(tmp_path):
    rows = table().astype({"heat": object})
    for value, message in (("<3", "row 7: '<3'"), (None, "row 7")):
        rows.loc[6, "heat"] = value
        rows.to_csv(tmp_path / "data.csv", index=False)
        done = call("fit", tmp_path / "data.csv", "--target", "G", "--method", "map")
        assert done.exit_code == 2
        assert message in " ".join(done.output.split())


def test_spaces_around_levels_do_not_count(tmp_path):
    rows = table()
    rows.loc[:4, "site"] += "  "
    rows.to_csv(tmp_path / "data.csv", index=False)
    done = call(
        "fit", tmp_path / "data.csv", "--target", "G", "--method", "map", "-o", tmp_path / "m"
    )
    assert done.exit_code == 0, done.output
    assert lvgp.load(tmp_path / "m").space_.qualitative[0].levels == ("a", "b", "c", "d")


@pytest.mark.parametrize(
    "arguments", [["fit", "data.csv"], ["fit"], ["nope"], ["fit", "x.csv", "--nope"], ["predict"]]
)
def test_a_call_that_cannot_be_parsed_is_one_line_too(arguments):
    script = "import sys; from lvgp.cli import main; sys.argv[0] = 'lvgp'; main()"
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("lvgp: ")
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_a_fit_that_is_told_to_end_keeps_what_was_drawn(tmp_path):
    """Told when there are draws, by the signal that `kill` sends."""
    table().to_csv(tmp_path / "data.csv", index=False)
    script = """
        import os, signal, sys
        from lvgp.cli import main
        from lvgp.infer import sample

        glance = sample.glance
        def told(values):
            os.kill(os.getpid(), signal.SIGTERM)
            return glance(values)

        sample.glance, sys.argv[0] = told, "lvgp"
        main()
    """
    arguments = ["fit", tmp_path / "data.csv", "--target", "G", "-o", tmp_path / "m.lvgp"]
    command = [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    model = lvgp.load(tmp_path / "m.lvgp")
    assert model.draws_.sampling.ended == "interrupted"
    assert model.draws_.sampling.draws >= 50
    assert np.isfinite(model.predict(table(5)[["site", "heat"]])).all()


def test_version():
    assert call("--version").output.strip() == f"lvgp {lvgp.__version__}"


def test_unknown_levels_are_refused_or_predicted_widely(fitted, tmp_path):
    folder, _ = fitted
    table(5).assign(site="never").to_csv(tmp_path / "new.csv", index=False)
    arguments = ["predict", folder / "m.lvgp", tmp_path / "new.csv", "-o", tmp_path / "out.csv"]
    done = call(*arguments)
    assert done.exit_code == 2
    assert "'never'" in done.output
    assert not (tmp_path / "out.csv").exists()
    assert call(*arguments, "--unknown-levels", "prior").exit_code == 0
    assert np.isfinite(pd.read_csv(tmp_path / "out.csv")["mean"]).all()
