"""What else was asked, in words, tables and on the page."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from kanab.analysis.methods.bayes import bayes_parts
from kanab.analysis.methods.claims import margin_parts
from kanab.analysis.methods.contrasts import contrast_parts
from kanab.analysis.methods.omnibus import omnibus_sentences
from kanab.analysis.sections import (
    caution_sentences,
    method_sections,
    readout_html,
    readout_markdown,
    readout_text,
    report_html,
)
from kanab.tabular import Table

Readout = dict[str, Any]
Maker = Callable[..., Readout]


def joint(effect: Maker, **changes: Any) -> Readout:
    """An effect with its place in a family of two."""
    return effect(interval_adjusted=[0.27, 0.73], level=0.975, agrees=True, **changes)


def claim(**changes: Any) -> Readout:
    return {
        "metric": "spend", "control": "A", "arm": "B", "method": "difference", "covariates": [],
        "claim": "non-inferiority", "better": "higher", "limits": [-0.1, None], "relative": False, "estimate": 0.5,
        "interval": [0.336, None], "confidence": 0.95, "t": 6.0, "p": 1e-9, "p_adjusted": None, "shown": True,
    } | changes  # fmt: skip


def belief(**changes: Any) -> Readout:
    return {
        "metric": "spend", "method": "difference", "covariates": [], "prior": {"mean": 0.0, "sd": 0.5},
        "better": "higher",
        "effects": [
            {"arm": "B", "control": "A", "mean": 0.48, "sd": 0.098, "interval": [0.288, 0.672], "positive": 1.0}
        ],
        "arms": [{"arm": "B", "mean": 0.48, "best": 0.9999995, "loss": 2.5e-8},
                 {"arm": "A", "mean": 0.0, "best": 5e-7, "loss": 0.48}],
    } | changes  # fmt: skip


def table(parts: tuple[str | Table, ...]) -> Table:
    (found,) = [part for part in parts if isinstance(part, Table)]
    return found


def flat(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def test_plain_comparisons_have_nothing_further(small: Maker, effect: Maker) -> None:
    assert method_sections(small()) == []
    assert method_sections(small(joint(effect), joint(effect, metric="visits"))) == []
    assert method_sections(small(effect(), effect(metric="visits"))) == []
    assert caution_sentences(small()) == []


def test_all_arms_at_once_are_one_line(small: Maker, effect: Maker) -> None:
    plain = {"metric": "spend", "method": "difference", "covariates": [], "F": 4.321, "df": [2, 1996.4], "p": 0.0134}
    adjusted = plain | {"method": "adjusted", "covariates": ["tier"], "p": 0.4}
    arms = {"A": 500, "B": 500, "C": 500}
    data = small(arms=arms, omnibus=[plain, adjusted])
    assert omnibus_sentences(data, "spend") == [
        "All 3 arms at once: some of them differ (Welch's F(2, 1,996) = 4.32, p = 0.0134)."
    ]
    data["effects"] = [effect(carries_verdict=False), effect(method="adjusted", covariates=["tier"])]
    assert omnibus_sentences(data, "spend") == [
        "All 3 arms at once: no sign that any of them differ (Welch's F(2, 1,996) = 4.32, p = 0.400, "
        "adjusted for tier)."
    ]
    data["omnibus"] = [plain | {"F": None, "df": None, "p": None}]
    assert omnibus_sentences(data, "spend") == []


def test_contrasts_are_named_as_sums(small: Maker, effect: Maker) -> None:
    pair = effect(p=0.01, p_adjusted=0.02) | {"contrast": {"C": 1.0, "B": -1.0}}
    mixed = pair | {"contrast": {"B": 0.5, "C": 0.5, "A": -1.0}, "metric": "spend"}
    parts = contrast_parts(small(contrasts=[pair, mixed]))
    assert parts[0] == "Corrected separately (Holm): the 2 comparisons that carry a verdict."
    assert [row[0] for row in table(parts).rows] == ["C − B on spend", "0.5 B + 0.5 C − A on spend"]
    assert table(parts).rows[0][1:] == ("+0.50", "0.30 to 0.70", "0.0100", "0.0200")
    assert contrast_parts(small(contrasts=[pair]))[0] == "Each comparison is tested on its own."


def test_a_claim_is_shown_or_not_and_never_refuted(small: Maker) -> None:
    parts = margin_parts(small(margins=[claim(), claim(claim="superiority", limits=[0.45, None], p=0.31, shown=False)]))
    assert (
        parts[0]
        == "Non-inferiority of B on spend is shown: the effect lies above −0.1 (interval at least 0.34; p = 1.00e-09)."
    )
    assert parts[1] == (
        "Superiority of B on spend is not shown: that the effect lies above +0.45 is not certain "
        "(interval at least 0.34; p = 0.310)."
    )
    assert parts[2] == (
        "Each claim is tested one-sided at 95 %; those about a primary metric are corrected for each other."
    )
    corrected = margin_parts(small(margins=[claim(p=0.03, p_adjusted=0.06, shown=False)]))
    assert "(interval at least 0.34; p = 0.0300, corrected 0.0600)" in str(corrected[0])
    assert [row[-1] for row in table(parts).rows] == ["yes", "no"]


def test_claims_in_percent_lower_ones_and_untestable_ones(small: Maker) -> None:
    rows = [
        claim(relative=True, limits=[-0.02, 0.03], claim="equivalence", estimate=0.01, interval=[-0.005, 0.025]),
        claim(limits=[None, 0.5], better="lower", interval=[None, 0.3]),
        claim(t=None, p=None, interval=None, shown=False),
    ]
    parts = margin_parts(small(margins=rows))
    assert str(parts[0]).startswith(
        "Equivalence of B on spend is shown: the effect lies between −2 and +3 % (interval −0.5 to 2.5 %;"
    )
    assert "lies below +0.5 (interval at most 0.30;" in str(parts[1])
    assert parts[2] == "Non-inferiority of B on spend cannot be tested: nothing varies."
    assert [row[-1] for row in table(parts).rows] == ["yes", "yes", "–"]


def test_only_the_method_that_carries_the_verdict_is_told(small: Maker, effect: Maker) -> None:
    adjusted = {"method": "adjusted", "covariates": ["tier"]}
    parts = margin_parts(small(effect(carries_verdict=False), effect(**adjusted), margins=[claim(), claim(**adjusted)]))
    assert sum(isinstance(part, str) for part in parts) == 2
    assert "adjusted for tier" in str(parts[0])
    assert len(table(parts).rows) == 2


def test_a_belief_names_its_prior_and_is_never_quite_certain(small: Maker) -> None:
    parts = bayes_parts(small(bayes=[belief()]))
    assert parts[0] == "Prior for the effect on spend: 0 ± 0.5 (one standard deviation)."
    assert table(parts).header == ("spend", "effect", "95 % credible", "above 0", "best arm", "expected loss")
    assert table(parts).rows == (
        ("B", "+0.48", "0.29 to 0.67", "> 99.9 %", "> 99.9 %", "2.5e-08"),
        ("A", "–", "–", "–", "< 0.1 %", "0.48"),
    )
    less = belief(prior={"mean": 0.0, "sd": None}, better="lower")
    assert bayes_parts(small(bayes=[less]))[0] == "Prior for the effect on spend: none; less is better."


def test_beliefs_about_shares_are_in_points(small: Maker, effect: Maker) -> None:
    share = effect(
        metric="bought", mean_control=0.1, mean_arm=0.12, estimate=0.02, interval=[0.0, 0.04],
        se=(0.09 / 499 + 0.12 * 0.88 / 499) ** 0.5,
    )  # fmt: skip
    adjusted = share | {"method": "adjusted", "covariates": ["tier"]}
    one = belief(metric="bought", prior={"mean": 0.0, "sd": 0.01}, method="adjusted", covariates=["tier"])
    parts = bayes_parts(small(share, adjusted, bayes=[one]))
    assert parts[0] == (
        "Prior for the effect on bought: 0 ± 1 points (one standard deviation); its estimate is adjusted for tier."
    )
    assert table(parts).rows[0][1] == "+48"


@pytest.fixture
def full(small: Maker, effect: Maker) -> Readout:
    """Everything at once."""
    return small(
        joint(effect), joint(effect, metric="visits"), margins=[claim()], bayes=[belief()],
        contrasts=[effect() | {"contrast": {"B": 1.0, "A": -1.0}}],
        cautions=[{"kind": "clamped", "metric": "spend", "sentence": "At least 3 % of people had <odd> values."}],
    )  # fmt: skip


def test_cautions_come_before_any_number(full: Readout) -> None:
    text = readout_text(full)
    assert "── Before you act on it ─" in text
    assert text.index("At least 3 % of people had <odd> values.") < text.index("Sample ratio")
    markdown = readout_markdown(full)
    assert markdown.index("## Before you act on it\n\n- At least 3 %") < markdown.index("Sample ratio")


def test_text_markdown_notebook_and_page_have_the_same_answers(full: Readout) -> None:
    page = report_html(full)
    for shown in (flat(readout_text(full)), readout_markdown(full), flat(readout_html(full)), flat(page)):
        plain = shown.replace("\N{NO-BREAK SPACE}", " ").replace("&#x27;", "'")
        for heading in ("Other comparisons of arms", "Are the claims shown?"):
            assert heading in plain
        assert "What to believe, given the prior" in plain
        assert "Non-inferiority of B on spend is shown" in plain
    assert '<p class="call caution" role="note">' in page
    assert "&lt;odd&gt;" in page
    assert '<h2 id="claims">' in page
