"""The report: its numbers, what it does with hostile names, and how it works in a browser."""

from __future__ import annotations

import os
import re
import shutil
from html import unescape
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

import lvgp
from lvgp.effects import main_effects
from lvgp.report import figures, gather, write_report

HOSTILE = [
    "<script>alert(1)</script>",
    "</script><script>alert(2)</script>",
    "<b>bold</b> & &lt;sharp&gt;",
    "%{x} {{ 7 * 7 }} ${y}",
    "quote \" and ' and \\",
    '<a href="javascript:alert(3)">link</a>',
]
COLUMN, RESPONSE = '"><img src=x onerror=alert(4)>', "y</script><script>alert(5)</script>"


def table(rows=36, seed=0, levels=HOSTILE, column=COLUMN, response=RESPONSE):
    rng = np.random.default_rng(seed)
    found = pd.DataFrame({column: np.resize(levels, rows), "heat": rng.uniform(5, 9, rows)})
    found["side"] = np.resize(["left", "right"], rows)
    effect = dict(zip(levels, np.linspace(0, 3, len(levels)), strict=True))
    found[response] = found[column].map(effect) + np.sin(found["heat"]) + rng.normal(0, 0.05, rows)
    return found.drop(columns=response), found[response]


@pytest.fixture(scope="module")
def hostile():
    options = {"draws": 60, "warmup": 100, "random_state": 0, "progress": False}
    with pytest.warns(lvgp.errors.LVGPWarning):
        return lvgp.LVGPRegressor(**options).fit(*table())


@pytest.fixture(scope="module")
def page_of_hostile(hostile, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_report(hostile, path)
    return path


# The numbers


def test_main_effect_is_the_average_over_rows_with_its_exact_interval():
    """Of a point estimate the average of f is one normal, known from the joint covariance."""
    X, y = table()
    model = lvgp.LVGPRegressor("map", random_state=0).fit(X, y)
    rows = X.iloc[np.unique(np.linspace(0, len(X) - 1, 32).astype(int))]
    for column, value in ((COLUMN, HOSTILE[2]), ("side", "right"), ("heat", None)):
        effect = model.main_effect(column)
        at = effect.iloc[7] if value is None else effect[effect["value"] == value].iloc[0]
        mean, covariance = model.predict(rows.assign(**{column: at["value"]}), return_cov=True)
        reach = 1.959964 * np.sqrt(covariance.mean())
        np.testing.assert_allclose(at["mean"], mean.mean(), rtol=1e-8)
        np.testing.assert_allclose(at["upper"], mean.mean() + reach, rtol=1e-5)
        np.testing.assert_allclose(at["lower"], mean.mean() - reach, rtol=1e-5)


def test_main_effect_of_draws_matches_joint_samples(hostile):
    """Within five standard errors of 4000 joint samples: false alarms below 1e-5."""
    X, _ = table()
    rows = X.iloc[np.unique(np.linspace(0, len(X) - 1, 32).astype(int))]
    effect = hostile.main_effect(COLUMN).iloc[1]
    samples = hostile.sample_y(rows.assign(**{COLUMN: HOSTILE[1]}), 4000, random_state=1)
    averaged = samples.mean(axis=0)
    # 200 draws at most carry the effect, 240 the samples
    error = averaged.std() * np.sqrt(1 / 4000 + 2 / 200)
    assert abs(effect["mean"] - averaged.mean()) < 5 * error
    assert abs(effect["upper"] - np.quantile(averaged, 0.975)) < 15 * error


@pytest.mark.parametrize("method", ["map", pytest.param("vi", marks=pytest.mark.long)])
def test_main_effect_of_a_level_without_rows_is_wide(method):
    X, y = table(levels=list("abcd"), column="site", response="y")
    options = {"levels": {"site": list("abcde")}, "restarts": 2, "random_state": 0}
    model = lvgp.LVGPRegressor(method, **options)
    effect = model.fit(X, y).main_effect("site")
    width = (effect["upper"] - effect["lower"]).to_numpy()
    assert width[4] > 1.5 * width[:4].max()


def test_main_effect_refuses_what_has_none(hostile):
    with pytest.raises(lvgp.errors.InputError, match="not an input"):
        hostile.main_effect("nope")


def test_findings_are_those_of_leave_one_out(hostile):
    y = table()[1]
    found, left_out = gather(hostile), hostile.loo()
    pd.testing.assert_frame_equal(found.left_out[left_out.columns], left_out)
    inside = (left_out["lower"] <= y) & (y <= left_out["upper"])
    assert found.covered == inside.mean()
    np.testing.assert_allclose(found.rrmse, lvgp.metrics.rrmse(y, left_out["mean"]))
    np.testing.assert_allclose(found.left_out["observed"], y)
    for coverage in (0.25, 0.5, 0.8):
        interval = hostile.loo(coverage)
        share = ((interval["lower"] <= y) & (y <= interval["upper"])).mean()
        row = found.calibration["nominal"].sub(coverage).abs().idxmin()
        assert found.calibration["observed"][row] == share
    assert set(found.effects) == {COLUMN, "heat", "side"}
    assert found.response == RESPONSE


def test_hyperparameters_are_those_of_the_model(hostile):
    found, told = gather(hostile).parameters, hostile.parameters_
    assert found.loc["sd of the noise", "mean"] == pytest.approx(told["noise_sd"])
    assert found.loc["lengthscale of heat", "mean"] == pytest.approx(told["lengthscales"]["heat"])
    assert (found["lower"] <= found["upper"]).all()


@pytest.mark.parametrize(
    ("options", "kinds"),
    [
        ({"method": "map"}, ["site", "heat"]),
        ({"method": "mle"}, ["site"]),
        pytest.param({"method": "vi", "latent_dim": 1}, ["site", "heat"], marks=pytest.mark.long),
        ({"method": "map", "latent_dim": 3}, ["site", "side"]),
        ({"method": "map"}, ["heat"]),
        pytest.param(
            {"method": "map", "approximation": "vfe", "n_inducing": 6},
            ["site", "heat"],
            marks=pytest.mark.long,
        ),
        ({"method": "map", "levels": {"site": list("abcde")}}, ["site", "heat", "constant"]),
    ],
)
def test_every_kind_of_model_has_a_report(options, kinds, tmp_path):
    X, y = table(levels=list("abcd"), column="site", response="y")
    X["constant"] = 1.0
    usual = {"restarts": 2, "random_state": 0, "progress": False}
    model = lvgp.LVGPRegressor(**usual, **options).fit(X[kinds], y)
    write_report(model, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert f"Verdict: {model.diagnostics_.verdict}" in text
    assert ("Which levels act alike" in text) == ("site" in kinds)
    assert "NaN" not in text.split("<script>")[0]


def test_a_model_of_arrays_without_names(tmp_path):
    X, y = table(levels=[0, 1, 2, 3], column="site", response="y")
    numbers = X[["site", "heat"]].to_numpy(float)
    model = lvgp.LVGPRegressor("map", categorical=[0], random_state=0).fit(numbers, y.to_numpy())
    model.save(tmp_path / "model.lvgp")
    write_report(lvgp.load(tmp_path / "model.lvgp"), tmp_path / "report.html")
    assert "<title>response: an lvgp report</title>" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize("priors", ["paper", lvgp.Priors(alpha=2.5)])
def test_the_code_in_the_report_makes_the_fit_again(priors, tmp_path):
    X, y = table(levels=list("abcd"), column="site", response="G")
    options = {"kernel": "matern52", "bounds": {"heat": (4.0, 10.0)}, "random_state": 3}
    options["priors"] = priors
    model = lvgp.LVGPRegressor("map", **options).fit(X, y)
    model.save(tmp_path / "model.lvgp")
    write_report(lvgp.load(tmp_path / "model.lvgp"), tmp_path / "report.html")
    reader = Reader()
    reader.feed((tmp_path / "report.html").read_text())
    assert ("priors" in "".join(reader.code)) == (priors != "paper")
    names = {"table": X.assign(G=y)}
    exec("".join(reader.code), names)
    np.testing.assert_array_equal(names["model"].predict(X), model.predict(X))


# Names that try to be more than names


class Reader(HTMLParser):
    """Collects the elements and the texts of a page."""

    def __init__(self):
        super().__init__()
        self.elements, self.texts, self.code, self.inside = [], [], [], None

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self.inside = dict(attrs).get("id") if tag == "pre" else None

    def handle_data(self, data):
        self.texts.append(data)
        if self.inside == "code":
            self.code.append(data)


def test_names_show_as_text_and_nothing_else(page_of_hostile):
    reader = Reader()
    reader.feed(page_of_hostile.read_text())
    scripts = [attrs for tag, attrs in reader.elements if tag == "script"]
    assert sum("data-figure" not in attrs for attrs in scripts) == 2
    assert not {"img", "a", "b"} & {tag for tag, _ in reader.elements}
    assert not [name for _, attrs in reader.elements for name in attrs if name.startswith("on")]
    whole = "\n".join(reader.texts)
    for name in [*HOSTILE, COLUMN, RESPONSE]:
        assert name in whole


def test_text_for_plotly_is_escaped_short_and_on_one_line():
    assert figures.plain_text("<b>&") == "&lt;b&gt;&amp;"
    assert figures.plain_text("a\nb\x00") == "a b "
    assert len(figures.plain_text("x" * 500)) == 40


def test_scripts_are_allowed_by_their_hashes_only(page_of_hostile):
    text = page_of_hostile.read_text()
    policy = unescape(re.search(r'Security-Policy" content="([^"]+)"', text).group(1))
    assert "default-src 'none'" in policy
    scripts = policy.split("script-src")[1].split(";")[0]
    assert scripts.count("sha256-") == 2
    assert "unsafe" not in scripts


def test_a_report_that_cannot_be_written_leaves_nothing(hostile, tmp_path):
    with pytest.raises(lvgp.errors.InputError, match="cannot be written"):
        write_report(hostile, tmp_path / "none" / "report.html")
    assert not list(tmp_path.iterdir())


def test_all_columns_at_once_give_what_each_gives_alone(hostile):
    together = main_effects(hostile.posterior_, hostile.space_)
    for name, effect in together.items():
        pd.testing.assert_frame_equal(effect, hostile.main_effect(name))


# In a real browser


@pytest.fixture(scope="module")
def browser():
    known = ("chromium", "chromium-browser", "google-chrome")
    path = next(filter(None, map(shutil.which, known)), None)
    if path is None:
        if os.environ.get("LVGP_NEEDS_BROWSER"):
            pytest.fail("no Chromium found, and LVGP_NEEDS_BROWSER says these tests must run")
        pytest.skip("no Chromium on this machine (Debian: apt-get install chromium)")
    sync_api = pytest.importorskip("playwright.sync_api")
    quiet = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=quiet)
        yield started
        started.close()


def wait_for_count(locator, count):
    """Wait without running a string as code, which the page's policy forbids."""
    pytest.importorskip("playwright.sync_api").expect(locator).to_have_count(count)


@pytest.fixture
def opened(browser, page_of_hostile):
    page = browser.new_page(viewport={"width": 1100, "height": 900})
    page.trouble = []
    page.on("console", lambda message: page.trouble.append(message.text))
    page.on("pageerror", lambda error: page.trouble.append(str(error)))
    page.on("dialog", lambda dialog: page.trouble.append(dialog.message))
    page.on(
        "request",
        lambda request: (
            request.url.startswith(("file:", "data:", "blob:")) or page.trouble.append(request.url)
        ),
    )
    page.goto(page_of_hostile.as_uri())
    wait_for_count(page.locator(".js-plotly-plot"), page.locator("script[data-figure]").count())
    yield page
    assert page.trouble == []
    page.close()


def test_page_draws_every_figure_without_a_complaint(opened):
    assert opened.locator(".js-plotly-plot .main-svg").count() >= 7
    for heading in ("Can it be trusted?", "Which levels act alike", "To reproduce and to cite"):
        assert opened.get_by_role("heading", name=heading).count() == 1
    assert opened.locator("#parameters tbody tr").count() == 6
    unnamed = "[...document.querySelectorAll('[role=img]')].filter(one => !one.ariaLabel).length"
    assert opened.evaluate(unnamed) == 0


def test_names_are_drawn_as_written(opened):
    drawn = opened.locator("#map-0 .textpoint").all_text_contents()
    assert {text.replace("\xa0", " ") for text in drawn} == set(HOSTILE)
    assert COLUMN in opened.locator("h1").text_content()


def test_pointing_at_a_level_tells_of_it(opened):
    point = opened.locator("#map-0 .points path.point").nth(1)
    point.scroll_into_view_if_needed()
    box = point.bounding_box()
    opened.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    told = opened.locator("#map-0 .hoverlayer .hovertext")
    told.wait_for(timeout=5000)
    text = told.text_content()
    assert "6 observations" in text
    assert re.search(r"\d+%", text)


def test_regions_can_be_hidden_and_shown(opened):
    regions = opened.locator("#map-0 .scatterlayer .js-fill")
    wait_for_count(regions, 1)
    opened.locator("#map-0").scroll_into_view_if_needed()
    opened.locator("#map-0 .updatemenu-button", has_text="Hide regions").click()
    wait_for_count(regions, 0)
    opened.locator("#map-0 .updatemenu-button", has_text="Show regions").click()
    wait_for_count(regions, 1)


def test_page_fits_a_phone_and_prints(opened):
    opened.set_viewport_size({"width": 380, "height": 700})
    opened.wait_for_timeout(500)
    wide = opened.evaluate("document.documentElement.scrollWidth")
    assert wide <= 390
    assert opened.pdf(format="A4").startswith(b"%PDF")
