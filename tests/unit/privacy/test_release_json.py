import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.shop import shop_release, shop_rows

import kanab as kb
from kanab.analysis.api import analyze
from kanab.errors import KanabError, PlanError, PrivacyError, SourceError
from kanab.privacy.release import Release
from kanab.privacy.release_json import hash_of, read_release, release_from_dict, release_to_dict, write_release


@cache
def released() -> Release:
    return shop_release(adjust=["tier"], segments=["device"])


def test_a_release_comes_back_from_its_file_the_same(tmp_path: Path) -> None:
    first = released()
    write_release(first, tmp_path / "shop.json")
    second = read_release(tmp_path / "shop.json")
    assert second.tables == first.tables
    assert second.receipt == first.receipt
    assert second.plan == first.plan
    assert analyze(second).to_dict() == analyze(first).to_dict()


def test_a_release_holds_classes_of_skewness_and_of_unusual_people_and_nothing_finer(tmp_path: Path) -> None:
    write_release(released(), tmp_path / "shop.json")
    told = json.loads((tmp_path / "shop.json").read_text())["receipt"]["shapes"]
    assert told == {"variant": {"spend": [pytest.approx(2**1.5), pytest.approx(2**-2.5)]}}
    for value in told["variant"]["spend"]:
        assert 2 * np.log2(value) == pytest.approx(round(2 * np.log2(value)), abs=1e-9)
    assert read_release(tmp_path / "shop.json").receipt.shapes == {
        "variant": {"spend": tuple(told["variant"]["spend"])}
    }


def test_a_file_of_before_there_were_shapes_reads_as_before_and_keeps_its_hash() -> None:
    data = release_to_dict(released())
    del data["receipt"]["shapes"]
    data["hash"] = hash_of(data)
    old = release_from_dict(data)
    assert old.receipt.shapes == {}
    assert release_to_dict(old) == data
    now, then = (analyze(each)["spend"].effects[0].effect for each in (released(), old))
    assert (then.estimate, then.p_usual) == (now.estimate, now.p_usual)
    assert (then.se_alike is None, now.se_alike is None) == (False, True)
    for line in Path(__file__).with_name("before_salts.ledger").read_text().splitlines()[1:]:
        entry = json.loads(line)
        assert release_to_dict(release_from_dict(entry))["hash"] == entry["hash"]
        assert "shapes" not in entry["receipt"]


def test_the_file_names_no_host_user_path_or_time(tmp_path: Path) -> None:
    write_release(released(), tmp_path / "shop.json")
    text = (tmp_path / "shop.json").read_text(encoding="utf-8")
    for secret in (str(tmp_path), os.uname().nodename, str(Path.home()), "time", "date"):
        assert secret not in text


def test_bounds_taken_from_the_data_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(PrivacyError, match="bounds were taken from the data"):
        write_release(kb.release(kb.count(shop_rows(), arm="variant", metrics=["spend"])), tmp_path / "shop.json")
    assert list(tmp_path.iterdir()) == []


def test_a_class_below_k_is_named_by_its_table() -> None:
    data = release_to_dict(kb.release(kb.count(shop_rows(), arm="variant", metrics=["bought"])))
    entry = data["tables"]["variant"]["classes"][0]
    entry["people"], entry["sums"]["bought"] = 4, 1
    data["hash"] = hash_of(data)
    with pytest.raises(PrivacyError, match="variant holds a class with fewer than k = 10 people"):
        release_from_dict(data)


def test_a_changed_plan_is_noticed() -> None:
    data = release_to_dict(released())
    data["plan"]["metrics"]["spend"]["bounds"] = [0, 400]
    with pytest.raises(KanabError, match="has been changed since it was made"):
        release_from_dict(data)
    data["hash"] = hash_of(data)
    with pytest.raises(KanabError, match="plan"):
        release_from_dict(data)


def test_a_release_of_an_older_version_with_survival_is_refused_in_one_sentence(tmp_path: Path) -> None:
    data = release_to_dict(released())
    data["plan"]["experiments"]["variant"]["survival"] = {"bought": "days"}
    data["hash"] = hash_of(data)
    (tmp_path / "old.json").write_text(json.dumps(data))
    with pytest.raises(PlanError, match=r"experiments\.variant\.survival was removed; count a 0/1 metric within a"):
        read_release(tmp_path / "old.json")


@pytest.mark.parametrize(
    ("text", "words"),
    [("{", "not a JSON file"), ("[]", "not a release"), ("{}", "not a release"), ('{"format": "x"}', "Invalid")],
)
def test_other_files_are_refused_by_name(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(SourceError, match=words) as problem:
        read_release(tmp_path / "x.json")
    assert "x.json" in str(problem.value)


def test_missing_files_and_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="there is no file"):
        read_release(tmp_path / "none.json")
    with pytest.raises(SourceError, match="cannot be read"):
        read_release(tmp_path)


@pytest.mark.slow
@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
                    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
                    max_leaves=8))  # fmt: skip
@settings(deadline=None, max_examples=100, derandomize=True)
def test_any_json_is_a_release_or_an_error(data: Any) -> None:
    with pytest.raises(KanabError):
        release_from_dict(data)


@pytest.mark.parametrize("key", ["format", "plan_digest", "plan", "receipt", "levels", "tables"])
@pytest.mark.parametrize("value", [None, 5, "x", [], {}, {"x": 1}])
def test_a_broken_part_is_an_error(key: str, value: Any) -> None:
    data = json.loads(json.dumps(release_to_dict(released())))
    if key == "levels" and value == {}:
        return
    data[key] = value
    with pytest.raises(KanabError):
        release_from_dict(data)


def test_whoever_has_the_hash_alone_cannot_confirm_a_guess_of_the_tables(tmp_path: Path) -> None:
    """The attack: write the release of a guess, and compare its hash with the one that was published."""
    write_release(shop_release(), tmp_path / "a.json")
    published = json.loads((tmp_path / "a.json").read_text())
    right_guess = json.loads(json.dumps(release_to_dict(shop_release())))  # all digits are right
    assert right_guess["tables"] == published["tables"]
    assert right_guess["hash"] != published["hash"]
    assert len(bytes.fromhex(published["salt"])) == 16
    assert hash_of(right_guess | {"salt": published["salt"]}) == published["hash"]  # who has the file has the tables
