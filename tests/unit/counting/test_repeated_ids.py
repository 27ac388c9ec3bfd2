"""Columns that look like a person's id and repeat: rows are hardly people."""

import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from click.testing import CliRunner

import kanab as kb
from kanab.cli.main import cli
from kanab.counting.repeated_ids import id_columns, repeated_in, repeats

VISITS: dict[str, Any] = {
    "user_id": [f"u{row // 2}" for row in range(400)],
    "variant": ["A", "A", "B", "B"] * 100,
    "spend": [row % 7 for row in range(400)],
}


IDS = [
    "id", "user_id", "userId", "visitorID", "UUID", "anon-uuid", "customerid", "user id", "order_id", "device_id",
    "ga_client_id", "user", "Visitor", "customer", "client", "member", "account", "person", "session", "sessionId",
    "cookie", "uid", "anonymous_id", "email", "user_email", "email_address", "username", "customer_number", "user_key",
    "household_id", "anon_id", "Kunde", "kunden_id", "Kundennummer", "nutzer_id",
]  # fmt: skip

ORDINARY = {
    "device": 2, "country": 60, "tier": 5, "store": 40, "shop_id": 40, "city_id": 50, "product_id": 300,
    "user_type": 3, "customer_segment": 6, "account_plan": 4, "session_count": 60, "n_sessions": 60, "sessions": 60,
    "users": 60, "people": 60, "orders_per_user": 80, "spend_per_customer": 700, "days_since_last_session": 90,
    "last_session": 300, "session_minutes": 500, "user_age": 70, "client_version": 30, "email_opened": 2,
    "email_domain": 50, "device_model": 120, "account_age_days": 700, "customer_since": 365, "member_tier": 4,
    "customer": 2, "member": 2, "session": 12, "account": 3, "email": 2, "user": 2, "id_type": 3, "paid": 2,
    "household": 900, "household_id": 390, "covid": 2,
    "grid": 9, "ids": 200, "Madrid": 2, "PAID": 2, "Identity": 100, "campaign_id": 12, "arm": 2,
}  # fmt: skip
"""Columns of ordinary tables of 2,000 rows, and how many values each has."""


@pytest.mark.parametrize("name", IDS)
def test_names_of_ids_are_known(name: str) -> None:
    assert id_columns([name], []) == [name]


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_columns_raise_no_alarm(name: str) -> None:
    assert not id_columns([name], []) or not repeats(name, 2_000, ORDINARY[name], 10)


def test_what_is_counted_is_no_id_and_people_come_first() -> None:
    assert id_columns(["user_id", "arm_id"], ["arm_id"]) == ["user_id"]
    assert id_columns(["a_id", "b_id", "c_id", "visitor"], []) == ["visitor", "a_id", "b_id"]


def test_a_person_repeats_at_any_number_of_rows() -> None:
    for name in ("user_id", "visitor", "session"):
        assert [repeats(name, 100_000, values, 10) for values in (100_000, 98_001, 98_000, 50_000, 12_500, 20, 19)] == [
            False, False, True, True, True, True, False,
        ]  # fmt: skip


def test_another_id_is_a_person_where_it_has_a_few_rows() -> None:
    assert [repeats("order_id", 1000, values, 10) for values in (1000, 981, 980, 200, 199, 3)] == [
        False, False, True, True, False, False,
    ]  # fmt: skip


def test_missing_ids_are_nobody_and_fractions_no_ids() -> None:
    ids = np.array([*range(100), *[None] * 100, *[np.nan] * 100], dtype=object)
    assert not repeated_in("user_id", ids, 10)
    assert repeated_in("user_id", np.array([*ids, *range(50)], dtype=object), 10)
    assert not repeated_in("session", np.arange(100).repeat(4) / 4, 10)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["user_id", "session"])
@pytest.mark.parametrize("rows_each", [4, 20])
def test_memory_and_engines_notice_the_same(name: str, rows_each: int, tmp_path: Path) -> None:
    texts = [f"u{row // rows_each}" for row in range(800)]
    with_gaps = [None if row % 2 else row // rows_each for row in range(800)]  # floats and NaN in pandas
    minutes = [row // rows_each / 8 for row in range(800)]
    for place, (ids, expected) in enumerate([(texts, (name,)), (with_gaps, (name,)), (minutes, ())]):
        frame = pd.DataFrame({"variant": ["A", "B"] * 400, "spend": [row % 7 for row in range(800)], name: ids})
        frame.to_parquet(tmp_path / f"{place}.parquet")
        with sqlite3.connect(tmp_path / f"{place}.db") as database:
            frame.to_sql("visits", database)
        counted = [
            kb.count(source, arm="variant", metrics=["spend"], rows=kb.Rows(table=table))
            for source, table in (
                (frame, None),
                (tmp_path / f"{place}.parquet", None),
                (f"sqlite:///{tmp_path}/{place}.db", "visits"),
            )
        ]
        assert [each.repeats for each in counted] == [expected] * 3


@pytest.mark.slow
def test_rows_counted_as_people_are_told_for_every_source_and_no_number_with_it(tmp_path: Path) -> None:
    file = tmp_path / "visits.csv"
    pd.DataFrame(VISITS).to_csv(file, index=False)
    for source in (VISITS, pd.DataFrame(VISITS), pl.DataFrame(VISITS), file):
        cautions = kb.readout(source, arm="variant", metrics=["spend"]).cautions
        caution = next(each for each in cautions if each.code == "rows-not-people")
        assert str(caution).startswith("Rows are not people: user_id looks like a person's id and repeats")
        assert "(--unit user_id)" in str(caution)
        assert not any(sign.isdigit() for sign in str(caution))
        cautions = kb.readout(source, arm="variant", metrics=["spend"], rows=kb.Rows(unit="user_id")).cautions
        assert "rows-not-people" not in {each.code for each in cautions}


def test_one_row_per_person_is_no_reason_to_warn() -> None:
    once = VISITS | {"user_id": list(range(400))}
    assert kb.count(once, arm="variant", metrics=["spend"]).repeats == ()
    assert kb.count(once, arm="variant", metrics=["spend"], rows=kb.Rows(where="spend >= 0")).repeats == ()


REPEATED = {
    "session": np.repeat(np.arange(400), 10).astype(str),
    "t1": np.repeat(np.random.default_rng(1).choice(["A", "B"], 400), 10),
    "t2": np.repeat(np.random.default_rng(2).choice(["A", "B"], 400), 10),
    "y": np.random.default_rng(3).random(4_000) < 0.1,
    "device": np.random.default_rng(4).choice(["phone", "tv"], 4_000),
}


def test_a_scan_says_so_first_and_calls_no_assignment_broken_because_of_it() -> None:
    first = "Rows are not people: session looks like a person's id and repeats"
    pairs = kb.scan.scan_interactions(REPEATED, ["t1", "t2"], ["y"])
    segments = kb.scan.scan_segments(REPEATED, ["t1", "t2"], ["y"], ["device"])
    for scan in (pairs, segments):
        assert scan.to_dict()["notes"][0].startswith(first)
        assert set(scan.to_dict()["verdicts"]) <= {"nothing found", "not testable", "watch"}
        text = " ".join(str(scan).split())
        assert text.index(first) < text.index("No alarms")
        assert "was not checked: rows are not people" in text
        assert first in scan.to_html().replace("&#x27;", "'")
    whole = {name: column[::10] for name, column in REPEATED.items()}
    assert not any(note.startswith("Rows") for note in kb.scan.scan_interactions(whole, ["t1", "t2"], ["y"]).notes)


def test_a_release_keeps_it_and_so_do_its_readouts_sums_and_scans(tmp_path: Path) -> None:
    plan = kb.make_plan("t1", ["y"], arms={"A": 1, "B": 1})
    released = kb.release(kb.count(REPEATED, plan))
    kb.write_release(released, tmp_path / "rep.json")
    again = kb.read_release(tmp_path / "rep.json")
    assert (again.receipt.repeats, kb.analyze(again).to_dict()["decision"]["answer"]) == (("session",), "broken")
    file = tmp_path / "rep.csv"
    pd.DataFrame(REPEATED).to_csv(file, index=False)
    words = ["release", str(file), "--arm", "t1", "--metric", "y"]
    for more in (["-o", str(tmp_path / "out.json"), "--no-ledger"], ["--dry-run"]):
        said = CliRunner().invoke(cli, [*words, *more], catch_exceptions=False).output
        assert "- Rows are not people: session looks like" in said
