"""The one place where the oracle calls kanab: how what was frozen is written today.

Cases keep the keywords, options and keys of the day on which they were frozen. Who renames one enters it in the tables
below, or changes a call; cases and tests stay as they are. So this file is also the note for people who migrate.

A path is the name of a call and then keys, without places in lists: ``analyze.effects.p_usual``. In the tables ``*``
stands for any part of it: ``*.effects.p_usual``.
"""

import base64
import json
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import asdict, replace
from datetime import datetime
from fnmatch import fnmatchcase
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, TypeVar

from tests.described import as_values

import kanab as kb
from kanab.analysis.api import analyze_release
from kanab.analysis.options import Looks
from kanab.collector.counting.accept import PostAcceptor
from kanab.collector.counting.plan_versions import Version, Versions
from kanab.collector.keys.encryption import RecordCipher
from kanab.collector.keys.keyring import KeyChain, Keyring
from kanab.collector.protocol.nonces import hour_of
from kanab.collector.sealing import Sealed, seal_cohorts, seal_due, stored_ledger
from kanab.collector.stores.sqlite import SqliteStore
from kanab.collector.stores.store import CountedPost, Store
from kanab.description import Reading
from kanab.errors import AnalysisError, ArgumentError, KanabError, MessageError
from kanab.plan import file as plan_file
from kanab.plan.periods import Span
from kanab.planning import Baseline, PlannedTest, forecast_plan, power_curve, spread_of_amounts, spread_of_rate
from kanab.planning import solve_power as solve_one
from kanab.portfolio import combine, read_portfolio
from kanab.privacy.release import OwnRows, Release, Tables
from kanab.privacy.release_json import release_from_dict, release_text, release_to_dict
from kanab.scan import scan_interactions, scan_segments
from kanab.stats.margins import Margin
from kanab.stats.posteriors import Prior

from .frozen import Data, plain
from .sources import load

# ── what is written otherwise today ────────────────────────────────────────────────────────────

KEYWORDS: dict[str, str] = {
    "assigned_by": "cluster",
    "least_events": "min_events",
    "received": "treatment_received",
}
"""Keywords of counting, scanning and planning: that of then, and that of today."""
OPTIONS: dict[str, str] = {}
"""Options of an analysis: that of then, and that of today."""
LOOKS: dict[str, str] = {"tuned_at": "optimal_at"}
"""The same for what `Looks` are made of; its method "always" is "always-valid" today."""
JSON_KEYS: dict[str, str] = {
    "*.tuned_at": "optimal_at",
    "*.saved": "sample_size_gain",
    "*.interval_usual": "interval_welch",
    "*.p_null": "p_pooled",
    "*.p_null_adjusted": "p_pooled_adjusted",
}
"""Keys of answers: the path of then, and the last key of it today."""
PLAN_KEYS: dict[str, str] = {}
"""The same for plans as plain data, by the path in a plan. Texts and releases of then are read as they are."""
VALUES: dict[str, dict[str, str]] = {"*.sequential.method": {"always": "always-valid"}}
"""Words that programs read, such as verdicts: the path of then, and what each is called today."""
REMOVED: tuple[str, ...] = ()
"""Paths of then whose keys were removed on purpose, with all that they held."""
ADDED: tuple[str, ...] = ()
"""Paths of today whose keys are new on purpose."""
KEYS_IN_ORDER = False
"""Whether keys come in their old order."""
PROSE = ("because", "costs", "deviations", "left_out", "note", "notes", "promise", "sentence")
"""Keys of today that hold sentences: these are words, and compared as such."""

_T = TypeVar("_T")


def as_today(call: str, frozen: Any) -> Any:
    """Return a frozen answer with the keys and values of today."""
    keys = {**JSON_KEYS, **{f"*plan.{path}": key for path, key in PLAN_KEYS.items()}}
    return _rewritten(frozen, call, keys, VALUES, REMOVED) if keys or VALUES or REMOVED else frozen


def without_added(call: str, found: Any) -> Any:
    """Return an answer of today without the keys that are new on purpose."""
    return _rewritten(found, call, {}, {}, ADDED) if ADDED else found


def _rewritten(
    value: Any, path: str, keys: Mapping[str, str], values: Mapping[str, Mapping[str, str]], gone: tuple[str, ...]
) -> Any:
    if isinstance(value, list):
        return [_rewritten(each, path, keys, values, gone) for each in value]
    if isinstance(value, str):
        return _first(values, path, {}).get(value, value)
    if not isinstance(value, dict):
        return value
    rewritten = {}
    for key, each in value.items():
        inner = f"{path}.{key}"
        if not _first(dict.fromkeys(gone, True), inner, False):
            rewritten[_first(keys, inner, key)] = _rewritten(each, inner, keys, values, gone)
    return rewritten


def _first(by_pattern: Mapping[str, _T], path: str, default: _T) -> _T:
    return next((found for pattern, found in by_pattern.items() if fnmatchcase(path, pattern)), default)


# ── questions and answers ──────────────────────────────────────────────────────────────────────


class Answer(NamedTuple):
    """What a call returned: plain data, and what gives it in words."""

    data: Any
    words: Callable[[], dict[str, Any]] = dict


def run(call: str, given: Data) -> Answer:
    """Return the answer to a frozen question; an error is one, too."""
    try:
        data, words = CALLS[call](given)
    except KanabError as problem:
        message = str(problem)
        return Answer({"error": type(problem).__name__}, lambda: {"message": message})
    data, sentences = without_prose(plain(data))
    return Answer(data, lambda: {**words(), "sentences": sentences})


def without_prose(data: Any) -> tuple[Any, list[str]]:
    """Return plain data with an ellipsis for every sentence, and the sentences."""
    sentences: list[str] = []

    def emptied(value: Any, prose: bool) -> Any:
        if isinstance(value, dict):
            return {key: emptied(each, prose or key in PROSE) for key, each in value.items()}
        if isinstance(value, list):
            return [emptied(each, prose) for each in value]
        if not prose or not isinstance(value, str):
            return value
        sentences.append(value)
        return "…"

    return emptied(data, False), sentences


def _in_words(result: Any) -> Answer:
    return Answer(result.to_dict(), lambda: {"text": str(result)})


# ── what was given then, in objects of today ───────────────────────────────────────────────────


def build_release(given: Data) -> Tables:
    """Build a release, a sum of releases or somebody's own rows."""
    if "parts" in given:
        parts: list[Any] = [build_release(part) for part in given["parts"]]
        return kb.add_releases(parts)
    released = release_from_dict(given["release"])
    ranges = {name: (low, high) for name, (low, high) in given["ranges"].items()}
    known: Data = {"ranges": ranges, "rates": tuple(given["rates"])}
    if given["own_rows"]:
        return OwnRows(released.plan, released.tables, released.receipt, **known)
    return replace(released, bounds_declared=given["bounds_declared"], **known)


def read_options(given: Data) -> Reading:
    """Read the options of an analysis; what was no option was refused by the analysis then."""
    try:
        return Reading(**_translated(given, OPTIONS, {"looks": _looks, **_CLAIMS}))
    except ArgumentError as problem:
        raise AnalysisError(problem.fact) from None


def read_keywords(given: Data, engine: str = "memory") -> dict[str, Any]:
    """Read keywords; tables are named in them, and loaded into an engine."""
    readers: dict[str, Callable[[Any], Any]] = {
        "plan": plan_file.parse_plan,
        "span": lambda span: Span(*span),
        "events": lambda name: load(name, engine),
        "test": lambda test: PlannedTest(**test),
        "baseline": lambda facts: Baseline(**facts),
        "joint_shares": lambda pairs: {(a, b): {(x, y): part for x, y, part in shares} for a, b, shares in pairs},
    }
    return _translated(given, KEYWORDS, readers)


def _translated(given: Data, names: Mapping[str, str], readers: Mapping[str, Callable[[Any], Any]]) -> dict[str, Any]:
    return {names.get(name, name): readers.get(name, lambda same: same)(value) for name, value in given.items()}


def _looks(given: Data) -> Looks:
    """Read how several looks are read."""
    method = {"always": "always-valid"}.get(given["method"], given["method"])
    return Looks(**{LOOKS.get(name, name): value for name, value in given.items()} | {"method": method})


def _margins(given: Any) -> Any:
    """Read the claims of metrics: one, or several."""
    if isinstance(given, list):
        return [_margins(each) for each in given]
    if "claim" not in given:
        return {metric: _margins(claims) for metric, claims in given.items()}
    size = given["size"]
    return Margin(**{**given, "size": tuple(size) if isinstance(size, list) else size})


def _priors(given: Data) -> Any:
    """Read a prior for all metrics, or by metric."""
    return Prior(**given) if "sd" in given else {metric: Prior(**prior) for metric, prior in given.items()}


_CLAIMS: dict[str, Callable[[Any], Any]] = {"margins": _margins, "prior": _priors}


# ── calls ──────────────────────────────────────────────────────────────────────────────────────


def analyze(given: Data) -> Answer:
    """Analyze a release or own rows."""
    return _read(analyze_release(build_release(given["release"]), given["experiment"], read_options(given["options"])))


def _read(readout: kb.Readout) -> Answer:
    return Answer(
        readout.to_dict(),
        lambda: {"text": readout.to_text(100), "brief": readout.to_brief(), "markdown": readout.to_markdown()},
    )


def count_rows(given: Data) -> Answer:
    """Count rows in an engine, and release them or read them."""
    engine = given["engine"]
    rows, keywords = load(given["rows"], engine), read_keywords(given["keywords"], engine)
    if given["door"] == "readout":
        return _read(kb.readout(rows, **as_values("readout", **keywords)))
    return Answer(_release_data(kb.release(kb.count(rows, **as_values("count", **keywords)), **given["release"])))


def _release_data(released: Release) -> Data:
    """Return what is not random of a release without ε, and what is known of it in memory only."""
    data = release_to_dict(released)
    kept = {name: data[name] for name in data if name not in ("hash", "salt", "previous")}
    kept["receipt"] = {name: value for name, value in data["receipt"].items() if name != "store"}
    names = ("bounds_declared", "ranges", "rates")
    return {"release": kept, **{name: getattr(released, name) for name in names}}


def reread_release(given: Data) -> Answer:
    """Read the file of a release, and write it again."""
    again = release_text(release_from_dict(json.loads(given["file"])))
    return Answer({"same_bytes": again == given["file"], "release": json.loads(again)})


def parse_plan(given: Data) -> Answer:
    """Read the text of a plan: its digest, its plain data, and the digest of what these are read as."""
    plan = plan_file.parse_plan(given["text"])
    data = plan_file.plan_to_dict(plan)
    digests = [plan_file.plan_digest(each) for each in (plan, plan_file.plan_from_dict(plain(data)))]
    return Answer({"digests": digests, "plan": data})


def scan(given: Data) -> Answer:
    """Scan pairs of experiments, or segments, of rows or of releases."""
    source = load(given["rows"], "memory") if "rows" in given else [build_release(each) for each in given["releases"]]
    verb: Callable[..., Any] = {"pairs": scan_interactions, "segments": scan_segments}[given["of"]]
    return _in_words(verb(source, **as_values(verb.__name__, **read_keywords(given["keywords"]))))


def read_together(given: Data) -> Answer:
    """Combine releases, or read them as a portfolio."""
    verbs: dict[str, Callable[..., Any]] = {"combine": combine, "portfolio": read_portfolio}
    releases = {name: build_release(each) for name, each in given["releases"].items()}
    return _in_words(verbs[given["how"]](releases, **read_keywords(given["keywords"])))


def solve_power(given: Data) -> Answer:
    """Solve for people, effect or power, of amounts or of a rate."""
    noise = spread_of_rate(**given["rate"]) if "rate" in given else spread_of_amounts(**given["amounts"])
    keywords = read_keywords(given["keywords"])
    if "people" in keywords:
        return _in_words(power_curve(noise, **keywords))
    power = solve_one(noise, **keywords)
    answer = asdict(power, dict_factory=lambda pairs: {name: value for name, value in pairs if name != "spread"})
    return Answer(answer, lambda: {"text": str(power)})


def forecast(given: Data) -> Answer:
    """Forecast the tables and effects of a plan."""
    return _in_words(forecast_plan(**read_keywords(given["keywords"])))


def collect(given: Data) -> Answer:
    """Post messages week by week, and seal after each: what became of the messages, and the batches."""
    plan, cipher = plan_file.parse_plan(given["text"]), RecordCipher(Keyring(KeyChain.from_secret("07" * 32)))
    weeks = []
    with TemporaryDirectory() as folder, closing(SqliteStore(Path(folder) / "store.db")) as store:
        for week in given["weeks"]:
            fates = post(store, cipher, PostAcceptor(plan), week)
            sealed = seal_cohorts(store, cipher, Versions((Version(0, plan),)), week["through"])
            weeks.append({"fates": fates, "sealed": _sealed_data(sealed)})
    return Answer(weeks)


def post(store: Store, cipher: RecordCipher, acceptor: PostAcceptor, week: Data) -> dict[str, int]:
    """Post messages, with nonces in order instead of at random; return how often what was refused or dropped."""
    now, fates, posts = datetime.fromisoformat(week["now"]), [], []
    for place, body in enumerate(week["posts"]):
        nonce = f"{int(now.timestamp()) // 3600:08x}{place:024x}"
        try:
            accepted = acceptor.accept(f"kanab/1 {nonce}\n{body}\n".encode(), "text/plain", now)
        except MessageError:
            fates.append("refused")
            continue
        fates += map(str, accepted.dropped)
        posts.append(CountedPost(cipher.keyring.nonce_hash(accepted.nonce), hour_of(accepted.nonce), accepted.deltas))
    store.append(posts, cipher.encrypt)
    return {fate: fates.count(fate) for fate in sorted(set(fates))}


def _sealed_data(sealed: Sealed) -> Data:
    told: Data = {"waiting": sorted(sealed.waiting), "destroyed": sorted(sealed.destroyed)}
    if sealed.release is None:
        return told
    batch = _release_data(sealed.release)
    if sealed.release.receipt.noise is not None:  # the rest of it is random
        batch = {"plan": batch["release"]["plan"], "noise": batch["release"]["receipt"]["noise"]}
    return {**told, "batch": batch}


def open_store(given: Data) -> Answer:
    """Open a store of then with its key: what was sealed in it, and what a seal makes of the rest."""
    with TemporaryDirectory() as folder:
        file, key = Path(folder) / "store.db", Path(folder) / "store.key"
        file.write_bytes(base64.b64decode(given["store"]))
        key.touch(mode=0o600)
        key.write_bytes(base64.b64decode(given["key"]))
        cipher = RecordCipher(Keyring.from_file(key))
        with closing(SqliteStore(file)) as store:
            before = [release_to_dict(batch) for batch in stored_ledger(store).releases]
            sealed = seal_due(store, cipher, Versions.read(store), given["through"])
    return Answer({"before": before, "sealed": [_sealed_data(each) for each in sealed]})


CALLS: Mapping[str, Callable[[Data], Answer]] = {
    "analyze": analyze,
    "count": count_rows,
    "reread": reread_release,
    "plan": parse_plan,
    "scan": scan,
    "together": read_together,
    "solve": solve_power,
    "forecast": forecast,
    "collect": collect,
    "store": open_store,
}
