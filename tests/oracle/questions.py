"""The questions of the oracle: those of tests, those of ``cases.toml``, and messages to collectors.

Names of the day on which the oracle is frozen stand here and in `harvest`; frozen cases need neither of the two.
"""

from __future__ import annotations

import base64
import io
import itertools
import json
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, redirect_stdout
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kanab as kb
from kanab.analysis.own_rows import read_rows
from kanab.collector.counting.accept import PostAcceptor
from kanab.collector.counting.plan_versions import Versions
from kanab.collector.keys.encryption import RecordCipher
from kanab.collector.keys.keyring import Keyring
from kanab.collector.sealing import seal_cohorts
from kanab.collector.stores.sqlite import SqliteStore
from kanab.counting.dispatch import SourceOptions, count_source
from kanab.errors import KanabError
from kanab.plan.file import parse_plan
from kanab.plan.periods import Periods, Span
from kanab.privacy.release import Release, Tables
from kanab.privacy.release_json import release_text

from . import adapter
from .frozen import Data, differences, plain
from .harvest import Harvest, most_varied, release_data, steady_chance
from .sources import ENGINES

TESTS = Path(__file__).parents[1]
HARVESTED = (
    "unit/analysis", "unit/report", "unit/cli", "unit/plan", "property/test_joint_adjustment.py",
    "property/test_joint_plans.py", "property/test_hostile_names.py",
)  # fmt: skip
READOUTS, REFUSALS, PLANS, GOOD_PLANS = 120, 20, 170, 60
WEEKS = ("2026-W46", "2026-W47", "2026-W48")
MONDAY = datetime.fromisoformat("2026-11-09T12:00:00+00:00")

Releases = dict[str, Tables]


def questions() -> Iterator[tuple[str, Iterable[Data]]]:
    """Yield the cases of every kind, still without answers; within it nothing is random."""
    own = tomllib.loads((Path(__file__).parent / "cases.toml").read_text(encoding="utf-8"))
    with steady_chance() as begin:
        releases = dict(_releases(own, begin))
        yield "grid", _grid(own["grid"], releases)
        yield "rows", _counting(own)
        yield "files", [_case(name, "reread", file=release_text(release)) for name, release in _in_files(releases)]
        yield "others", [_resolved(case, own["plans"], releases) for case in own["others"]]
        begin("collectors")
        yield "collectors", [*_traces(), _store()]
        harvest = Harvest(begin)
        paths = [str(TESTS / path) for path in HARVESTED]
        with harvest.watching(), redirect_stdout(io.StringIO()):
            pytest.main([*paths, "-p", "no:xdist", "-p", "no:cacheprovider"], [harvest])
        yield "readouts", _readouts(harvest)
        yield "plans", _plans(harvest.plans)


def _case(name: str, call: str, **given: Any) -> Data:
    return {"id": name, "call": call, "given": plain(given)}


# ── what tests make ────────────────────────────────────────────────────────────────────────────


def _readouts(harvest: Harvest) -> list[Data]:
    """Return the most varied readouts, and refusals."""
    refused = [kept for kept in harvest.readouts if "error" in kept[1]]
    answered = [kept for kept in harvest.readouts if "error" not in kept[1]]
    return most_varied(answered, READOUTS, _is_alike) + most_varied(refused, REFUSALS, _is_alike)


def _is_alike(case: Data, data: Data) -> bool:
    return not any(differences(adapter.without_prose(data)[0], adapter.run(case["call"], case["given"]).data))


def _plans(texts: dict[str, str]) -> list[Data]:
    """Return good plans that differ, and bad ones whose messages differ in more than names and numbers."""
    good: dict[str, Data] = {}
    bad: dict[str, Data] = {}
    for text, test in texts.items():
        case = _case(test, "plan", text=text)
        answer = adapter.run(case["call"], case["given"])
        if "digests" in answer.data:
            good.setdefault(answer.data["digests"][0], case)
        else:
            message = [word for word in answer.words()["message"].split() if word.isalpha()]
            bad.setdefault(" ".join(message), case)
    kept = list(good.values())[:GOOD_PLANS]
    return [*kept, *list(bad.values())[: PLANS - len(kept)]]


# ── rows, and what is counted of them ──────────────────────────────────────────────────────────


def columns() -> Iterator[Data]:
    """Yield the rows that are counted and scanned."""
    from tests.sources.shapes import PEOPLE, VISITS  # noqa: PLC0415 - who reads frozen words needs no tests
    from tests.unit.analysis.test_cluster_rows import shops  # noqa: PLC0415
    from tests.unit.scan.test_scan import users  # noqa: PLC0415

    for name, columns in {"people": PEOPLE, "visits": VISITS, "shops": shops(), "tests": users(2000, 4)}.items():
        rows = {key: getattr(column, "to_pylist", np.asarray(column).tolist)() for key, column in columns.items()}
        yield {"id": name, "rows": json.loads(json.dumps(rows, default=datetime.isoformat))}


def _counting(own: Data) -> Iterator[Data]:
    for rows, cases in own["rows"].items():
        for case in cases:
            given = {"rows": rows, "engine": "memory", "door": "release", "release": {}, **case}
            engines = given.pop("engines", ENGINES)
            question = _resolved({"id": given.pop("id"), "call": "count", "given": given}, own["plans"], {})
            yield {**question, "engines": engines}


def _resolved(case: Data, plans: dict[str, str], releases: Releases) -> Data:
    """Return a question with the text of its plan, and with the releases that it names."""
    given, keywords = case["given"], dict(case["given"]["keywords"])
    if "plan" in keywords:
        keywords["plan"] = plans[keywords["plan"]]
    named = given.get("releases", {})
    if isinstance(named, list):
        given = {**given, "releases": [release_data(releases[name]) for name in named]}
    elif named:
        given = {**given, "releases": {name: release_data(releases[of]) for name, of in named.items()}}
    return _case(case["id"], case["call"], **{**given, "keywords": keywords})


# ── the grid ───────────────────────────────────────────────────────────────────────────────────


def _shop(people: int = 3600, *, by_shop: bool = False) -> dict[str, Any]:
    """Return people with all columns that the methods need; arms are assigned to them, or to their shops."""
    rng = np.random.default_rng(7)
    shop, arm = np.arange(people) % 90, rng.integers(0, 3, people)
    tier, device = rng.integers(1, 4, people), rng.integers(0, 4, people)
    if by_shop:
        arm, tier, device = (rng.permutation(90) % 3)[shop], 1 + shop % 3, shop // 9 % 4
    spend = np.minimum(200, np.round(rng.gamma(1.5, 12, people) * (1 + 0.08 * arm) + 4 * tier))
    first = np.minimum(100, np.round(spend * rng.random(people)))
    return {
        "variant": np.array(["A", "B", "C"])[arm],
        "banner": rng.choice(["off", "on"], people),
        "shop": shop,
        "spend": spend,
        "spend@0d..7d": first,
        "spend@7d..14d": np.minimum(100, spend - first),
        "bought": (rng.random(people) < 0.25 + 0.04 * arm).astype(int),
        "opened": ((arm > 0) & (rng.random(people) < 0.5)).astype(int),
        "visits": 1 + rng.poisson(1.5, people),
        "latency": np.minimum(600, np.round(rng.gamma(2, 70 + 8 * arm, people))),
        "before": np.clip(np.round(spend / 4 + rng.normal(0, 6, people)), -20, 60),
        "tier": tier,
        "device": np.array(["phone", "phone", "desktop", "tv"])[device],
        "age": rng.integers(18, 80, people),
        "day": np.array(["2026-11-10", "2026-11-17", "2026-11-24"])[np.arange(people) * 3 // people],
    }


def _releases(own: Data, begin: Callable[[str], None]) -> Iterator[tuple[str, Tables]]:
    """Yield the tables of every method from every source that has them."""
    grid = own["grid"]
    sources = dict.fromkeys(source for source, _ in {**grid["modes"], **grid["further_modes"]}.values())
    for (method, (tables, lines)), source in itertools.product(grid["methods"].items(), sources):
        name = f"{method} {source}"
        begin(name)
        try:
            yield name, _tables("\n".join([grid["plan"], tables, grid["experiment"], lines]), source)
        except KanabError as problem:
            print(f"not in the grid: {name}: {problem.fact}", file=sys.stderr)
    yield "crossed", _tables(own["plans"]["crossed"], "release")


def _tables(text: str, source: str) -> Tables:
    plan, rows = parse_plan(text), _shop(by_shop=source == "clusters")
    if source == "own_rows":
        return read_rows(plan, lambda gated: count_source(rows, plan, SourceOptions(), for_release=gated))
    epsilon = 12.0 if source in ("noise", "noisy_batches") else None
    if "batches" in source:
        spans = [Span("day", "7d", after, through) for after, through in zip((None, *WEEKS), WEEKS, strict=False)]
        return kb.add_releases([kb.release(kb.count(rows, plan, span=span), epsilon=epsilon) for span in spans])
    return kb.release(kb.count(rows, plan, assigned_by="shop" if source == "clusters" else None), epsilon=epsilon)


def _grid(grid: Data, releases: Releases) -> Iterator[Data]:
    """Yield readouts: every method in every mode, and further questions; corrections and sides take turns."""
    modes = {**grid["modes"], **grid["further_modes"]}
    questions: list[tuple[str, str, str, Data]] = []
    questions += [(method, mode, "", {}) for method in grid["methods"] for mode in grid["modes"]]
    for name, readings in grid["readings"].items():
        for each in readings:
            questions += [(each["method"], mode, name, each.get("options", {})) for mode in each["modes"]]
    turns = zip(itertools.cycle(grid["corrections"]), itertools.cycle(grid["sides"]), strict=False)
    for (method, mode, name, asked), (correction, side) in zip(questions, turns, strict=False):
        source, options = modes[mode]
        one_look = "looks" not in options or correction != "dunnett"  # which is for one look
        options = {"correction": correction if one_look else "holm", "alternative": side, **options, **asked}
        if f"{method} {source}" in releases:
            release = release_data(releases[f"{method} {source}"])
            words = " ".join(filter(None, (method, name, mode, options["correction"], side)))
            yield _case(words, "analyze", release=release, experiment=None, options=options)


def _in_files(releases: Releases) -> Iterator[tuple[str, Release]]:
    """Yield releases with ε, and batches, as they are in files."""
    for name, tables in releases.items():
        if name.endswith(" noise") and isinstance(tables, Release):
            yield name, tables
        if name.startswith(("ratios", "categories", "quantiles")):
            yield from ((f"{name} {number}", part) for number, part in enumerate(tables.parts, start=1))


# ── collectors ─────────────────────────────────────────────────────────────────────────────────


def _traces() -> Iterator[Data]:
    """Yield messages of some weeks: of enough people and of too few, forged and broken ones, and for a plan with ε."""
    from tests.collector.test_sealing import PLAN_TEXT, people, posts  # noqa: PLC0415

    def week(place: int, rows: Data, *more: str) -> Data:
        now = MONDAY + timedelta(weeks=place)
        through = Periods("7d").of_day(now.date())
        return {"now": now.isoformat(), "through": through, "posts": [*posts(rows, WEEKS[place]), *more]}

    def case(name: str, *weeks: Data, text: str = PLAN_TEXT) -> Data:
        return _case(name, "collect", text=text, weeks=weeks)

    broken = ["checkout/tier:A:1@2026-W46:nothing:0>1", "search:A@2026-W46", "checkout/tier:A:9@2026-W46", "x"]
    forged = ["checkout/tier:A:1@2026-W46:minutes:600>0"] * 40
    yield case("three weeks", *(week(place, people(150, place)) for place in range(3)))
    yield case("too few wait", week(0, people(9)), week(1, people(150, 2)))
    yield case("a small experiment waits", week(0, people(150, banner=12)), week(1, people(150, 2)))
    yield case("forged and broken", week(0, people(150), *forged, *broken))
    yield case("with noise", week(0, people(300)), text=f"{PLAN_TEXT}[privacy]\nepsilon = 8\n")


def _store() -> Data:
    """Return a store of today with its key: three weeks, of which the first is sealed."""
    given = next(_traces())["given"]
    plan, (first, *others) = parse_plan(given["text"]), given["weeks"]
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / name for name in ("store.db", "store.key")]
        cipher, acceptor = RecordCipher(Keyring.create(files[1])), PostAcceptor(plan)
        with closing(SqliteStore(files[0])) as store:
            store.claim(cipher.keyring.fingerprint)
            versions, _ = Versions.read(store).record(store, plan, first["through"])
            adapter.post(store, cipher, acceptor, first)
            seal_cohorts(store, cipher, versions, first["through"])
            for week in others:
                adapter.post(store, cipher, acceptor, week)
        texts = [base64.b64encode(file.read_bytes()).decode() for file in files]
    return _case("a store", "store", store=texts[0], key=texts[1], through=others[-1]["through"])
