"""The privacy officer's report: the account of releases as sections, and as one self-contained page."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any

from kanab.errors import listed
from kanab.inspection.officer import noisy
from kanab.privacy.ledger import asked_text
from kanab.report.digits import percent
from kanab.report.document import Alert, Part, Section
from kanab.report.html_page import Page, page_sections
from kanab.tabular import Table

Data = Mapping[str, Any]
Row = tuple[str, ...]

MOST_ENTRIES = 40
"""A longer ledger shows the entries of these files and its last one; the plain data hold all."""

OFFICER_STYLE = """
.call.verdict{margin:1rem 0 0;font-size:1.1rem}
nav ul{list-style:none;display:flex;flex-wrap:wrap;gap:.2rem 1.25rem;margin-top:1.25rem;font-size:.9rem}
nav li{min-width:0;overflow-wrap:anywhere}
a{color:var(--up)}
h3{margin-bottom:.6rem}
.cards{width:100%}
.cards th,.cards td{vertical-align:top;overflow-wrap:anywhere}
.cards td{min-width:5.5rem}
.cards tbody th{min-width:6.5rem}
.scroll+article{margin-top:2.5rem}
.cards .n{min-width:0}
.ok{color:var(--fine)}
.bad{color:var(--alarm);font-weight:600}
@media screen and (max-width:40rem){
.cards tr{grid-template-columns:minmax(0,1fr)}
.cards td{min-width:0}
.cards td:empty{display:none}
}
@media print{
nav{display:none}
a{color:inherit;text-decoration:none}
}
"""
"""What the page adds to the style sheet of all reports."""

_STATES = {True: "✓ holds", False: "✕ BROKEN", None: "○ not evaluated"}
_ANSWERS = {"covered": "✓ covered by the rules", "in part": "◐ covered in part", "broken": "✕ BROKEN"}
_ATTACKS = {
    "learnt nothing": "✓ learnt nothing",
    "learnt something": "✕ LEARNT SOMETHING",
    "not tried": "○ not tried",
}
_SIDES = {"visitor": "With the visitor", "curator": "Stays with the curator", "outside": "Leaves"}
FIELD = ("field", "what is kept", "how it is limited", "why it is needed")


def privacy_html(data: Data) -> str:
    """Return the report as one HTML file."""
    return privacy_page(data).to_html()


def privacy_page(data: Data) -> Page:
    """Return the page of an account; each released file has a section, named file-1, file-2 and so on."""
    sections = page_sections(officer_sections(data))
    links = "".join(
        f'<li><a href="#{section.name}">{escape(section.heading.removeprefix("Released: "))}</a></li>'
        for section in sections
    )
    experiments = listed(dict.fromkeys(name for release in data["releases"] for name in release["experiments"]))
    verdict = data["verdict"]
    alarm = ' alarm" role="alert' if verdict["state"] == "broken" else ""
    header = (
        f'<header>\n<p class="kicker">Privacy report</p>\n<h1>{escape(experiments)}</h1>\n'
        f'<p class="call verdict{alarm}"><strong>{escape(verdict["short"])}</strong>'
        f"{escape(verdict['says'].removeprefix(verdict['short']))}</p>\n</header>\n"
        f'<nav aria-label="Contents"><ul>{links}</ul></nav>\n'
    )
    made = "from the release files alone: facts about them, not legal advice"
    return Page(f"Privacy report: {experiments}", header, sections, made, OFFICER_STYLE)


def officer_sections(data: Data) -> tuple[Section, ...]:
    """Return the account in the order in which an officer reads it."""
    releases = data["releases"]
    files = (_overview(releases),) if len(releases) > 1 else ()
    return (
        Section("What is promised", (*files, *_promises(data)), "promises"),
        Section("Where the data go", (_flow(data["flow"]), places_table(data["places"])), "flow"),
        *(
            Section(f"Released: {release['file']}", tuple(_release(release)), f"file-{number}")
            for number, release in enumerate(releases, start=1)
        ),
        Section("Three questions", tuple(map(_question, data["questions"])), "questions", key=_OPINION),
        Section("What an attacker could learn", tuple(_attacks(data)), "attacks"),
        Section("Residual risks", (_risks(data["risks"]),), "risks"),
        Section("The ledger", tuple(_ledger(data["ledger"])), "ledger"),
    )


def _table(header: Row, rows: Iterable[Sequence[str]]) -> Table:
    return Table(header, tuple(map(tuple, rows)))


def _overview(releases: Sequence[Data]) -> Table:
    """Return one line per file."""
    rows = []
    for release in releases:
        effective = "not evaluated"
        if "noise" in release:
            effective = f"ε = {release['noise']['epsilon']:g} instead"
        elif release["effective_k"] is not None:
            effective = f"at least {release['effective_k']:,}{_within(release)}"
        audit = "✕ FAILED" if any(check["holds"] is False for check in release["checks"]) else "✓ passed"
        about, size = listed(release["experiments"]), _size(release["smallest_class"])
        rows.append((release["file"], about, f"{release['k']:,}", size, effective, audit))
    return _table(("file", "about", "k", "smallest class", "effective k of class sums", "audit"), rows)


# ── what is promised, and where the data go ────────────────────────────────────────────────────


def _promises(data: Data) -> Iterator[Part]:
    rows = [
        (*(each[key] for key in ("promise", "for", "says", "costs")), "these files" if each["made"] else "")
        for each in data["promises"]
    ]
    yield _table(("promise", "for", "what it says", "what it costs", "made by"), rows)
    if data["rules"]:
        rules = [(rule["rule"], _STATES[rule["holds"]], rule["says"]) for rule in data["rules"]]
        yield Section("The rules behind k", (_table(("rule", "state", "what it says"), rules),))
    if data["within"]:
        yield data["within"]
    if data["not_covered"]:
        examples = [(each["what"], each["example"]) for each in data["not_covered"]]
        yield Section("What k does not cover", (_table(("what", "example"), examples), "ε covers all of it."))


def _flow(steps: Sequence[Data]) -> Table:
    rows = [(step["step"], step["says"], _SIDES[step["side"]], step["kind"]) for step in steps]
    return _table(("step", "what happens", "where", "with"), rows)


def places_table(places: Sequence[Data]) -> Table:
    """Return where data are, who can see them, and for how long."""
    rows = [[place[key] for key in ("place", "what", "who", "how_long")] for place in places]
    return _table(("where", "what is there", "who can see it", "for how long"), rows)


# ── one file ───────────────────────────────────────────────────────────────────────────────────


def _release(release: Data) -> Iterator[Section]:
    yield Section("In figures", (_table(("figure", "value"), _figures(release)),))
    tables = [
        (
            table["table"],
            "; ".join(table["why"]),
            f"{table['classes']:,}",
            _size(table["smallest_class"]),
            listed(metric["name"] for metric in table["metrics"]) or "nothing",
            "; ".join(_squares(table)) or "nothing",
        )
        for table in release["tables"]
    ]
    header = ("table", "why it is needed", "classes", "smallest class", "sums of", "squares of")
    yield Section("Tables", (_table(header, tables),))
    yield Section("Why each field", (_table(FIELD, _fields(release)),))
    left_out = [_left_out_sentence(left) for left in release["left_out"]]
    yield Section("Left out or withheld", tuple(left_out) or ("Nothing.",))
    yield Section("What it cost", tuple(f"{_capital(text)}." for text in release["costs"]) or ("Nothing.",))
    deviations = tuple(f"{_capital(text)}." for text in release["deviations"])
    yield Section("Deviations from defaults", deviations or ("None.",))
    yield Section("Every check", (_checks(release["checks"]),))


def _size(people: int | None) -> str:
    """Return the size of a smallest class; with noise nobody knows it."""
    return "with noise" if people is None else f"{people:,}"


def _squares(table: Data) -> Iterator[str]:
    for metric in table["metrics"]:
        if metric["squares"]:
            yield f"{metric['name']} by {', by '.join(' × '.join(by) for by in metric['squares'])}"
    for product in table["products"]:
        yield f"products of {' and '.join(product['metrics'])} by {' × '.join(product['by'])}"


def _fields(release: Data) -> Iterator[Row]:
    """Yield one row per arm column, covariate and metric, whichever tables it is in, and one for people."""
    tables = release["tables"]
    for factor in {factor["name"]: factor for table in tables for factor in table["arms"]}.values():
        limits = "declared in the plan" if factor["declared"] else "as found in the data"
        yield f"{factor['name']} (arms)", listed(factor["levels"]), limits, "says who is compared with whom"
    for table in {table["covariate"]["name"]: table for table in tables if table["covariate"] is not None}.values():
        covariate = table["covariate"]
        merged = [f"{new} stands for {listed(olds)}" for new, olds in covariate["merged"].items()]
        levels, limits = f"levels {listed(covariate['levels'])}", "; ".join([covariate["origin"], *merged])
        yield f"{covariate['name']} (covariate)", levels, limits, "; ".join(table["why"])
    limits = "with noise" if "noise" in release else f"nobody or at least {release['k']}"
    yield "people", "how many, class by class", limits, "an average is a sum divided by people"
    copies: dict[str, list[Data]] = {}
    for metric in (metric for table in tables for metric in table["metrics"]):
        copies.setdefault(metric["name"], []).append(metric)
    for name, same in copies.items():
        sums = "sums by class" if any(copy["sums"] == "class" for copy in same) else "sums by arm"
        squares = any(copy["squares"] for copy in same)
        sure = ", and how sure it is" if squares or same[-1]["binary"] else ""
        kept = f"{sums}, sums of squares" if squares else sums
        yield f"{name} (metric)", kept, "; ".join(same[-1]["limits"]), f"the effect on {name}{sure}"


def _left_out_sentence(left: Data) -> str:
    """Return what was left out; its table is named once."""
    table = left["what"].partition(": ")[0]
    return f"{_capital(left['why'])}." if table in left["why"] else f"{left['what']}: {left['why']}."


def _figures(release: Data) -> Iterator[Row]:
    yield from noisy.figures(release) if "noise" in release else _exact_figures(release)
    if release["cohorts"] is not None:
        yield "Cohorts", cohorts_text(release["cohorts"])
    yield "Rows and people", _choices(release)
    if release["ledger"] is not None:
        yield "Ledger", release["ledger"]
    yield "Hash", release["hash"]


def _exact_figures(release: Data) -> list[Row]:
    k, effective = release["k"], release["effective_k"]
    times = {0: "never", 1: "once"}.get(release["homogeneous"], f"{release['homogeneous']:,} times")
    shapes = [
        f"{shape['metric']} ({shape['experiment']}): skewness class {shape['skewness']:.2g}, at least "
        f"{100 * shape['unusual']:.3g} % of people off the commonest value"
        for shape in release["shapes"]
    ]
    return [
        ("Rule", f"every class holds nobody or at least k = {k} people"),
        ("Smallest class", f"{release['smallest_class']:,} people (the k that was reached)"),
        (
            "Effective k of class sums",
            "not evaluated: how the tables overlap is not known"
            if effective is None
            else f"at least {effective:,} people behind any combination of one metric's sums released up to then"
            + _within(release),
        ),
        ("Classes", f"{release['classes']:,}"),
        ("Residual degrees of freedom", f"at least {release['degrees_of_freedom']:,} in every table"),
        ("Closest inference", _narrowest(release["narrowest"])),
        ("Everybody alike", f"{times} (all people of a class have the same value of a metric)"),
        ("Shape of amounts", "; ".join(shapes) or "not released"),
        ("Cut to the bounds", _by_metric(release["clamped"], k)),
        ("Without a value", _by_metric(release["missing"], k)),
        ("In two arms, left out", floored_text(release["excluded"], k)),
        ("In no planned arm, left out", floored_text(release["outside"], k)),
    ]


def _choices(release: Data) -> str:
    """Return which rows counted, and how they became people."""
    if release["collector"]:
        return "everybody who enrolled, by messages that the plan allows"
    where = {"where": release["where"]} if release["where"] else {}
    if release["choices"] is None:
        return "; ".join([*([asked_text(where)] if where else ()), "what else was chosen is not recorded"])
    return asked_text(where | release["choices"]) or "every row of the source, each of them a person"


def _within(release: Data) -> str:
    return ", within each experiment" if release["effective_k_within"] else ""


def floored_text(people: int, k: int) -> str:
    """Return what a count says that was floored to a multiple of k."""
    return f"{people:,} to {people + k - 1:,} people" if people else f"fewer than {k} people"


def _by_metric(counts: Mapping[str, int], k: int) -> str:
    if not any(counts.values()):
        return f"{floored_text(0, k)}, for every metric"
    return "; ".join(f"{metric}: {floored_text(people, k)}" for metric, people in counts.items())


def _narrowest(narrowest: Data | None) -> str:
    if narrowest is None:
        return "no largest or smallest value can be narrowed down; metrics are 0/1 or reach their bounds"
    return (
        f"the largest or smallest {narrowest['metric']} of a class of {narrowest['table']} is known up to a range "
        f"that is {percent(round(narrowest['share'], 2))} as wide as its distance from the average"
    )


def cohorts_text(batch: Data) -> str:
    """Return the cohorts of a batch in words."""
    after = "" if batch["after"] is None else f" after {batch['after']}"
    return f"people enrolled in periods of {batch['every']}{after} through {batch['through']}"


def _checks(checks: Sequence[Data]) -> Table:
    """Return every rule; what to do has a column where there is something to do."""
    rows = []
    for check in checks:
        where = f" (violated in {check['classes']:,} places)" if check["holds"] is False and check["classes"] else ""
        says, remedy = f"{_capital(check['says'])}{where}.", "" if check["holds"] else check["remedy"]
        rows.append((check["rule"], _STATES[check["holds"]], says, remedy))
    columns = 4 if any(row[-1] for row in rows) else 3
    return _table(("rule", "state", "what it says", "what to do")[:columns], [row[:columns] for row in rows])


# ── what is open ───────────────────────────────────────────────────────────────────────────────

_OPINION = (
    "An opinion of Europe's data protection authorities (Article 29 Working Party, 05/2014, WP216) asks three "
    "questions of data that are handed on."
)


def _question(question: Data) -> Section:
    rows = [
        ("here", _ANSWERS[question["state"]]),
        ("what should hold" if question["state"] == "broken" else "what holds", " ".join(question["holds"])),
        ("what does not", " ".join(question["gaps"])),
        ("rules", ", ".join(question["rules"])),
        ("tests of Kanab", ", ".join(question["tests"])),
    ]
    asks = f"{question['asks'][:1].lower()}{question['asks'][1:]}"
    return Section(f"{_capital(question['question'])}: {asks}", (_table(("question", "answer"), rows),))


def _attacks(data: Data) -> Iterator[Part]:
    attacks, effective = data["attacks"], data["verdict"]["effective_k"]
    if attacks["broken"]:
        yield Alert(
            f"Something was learnt about fewer than {attacks['k']} people. It is not repeated here; kanab attack shows "
            "it.",
            "alarm",
        )
    elif noisy.all_noisy(data["releases"]):
        yield "Nothing was learnt that ε does not allow. No other attack on these files can, whatever it knows."
    else:
        yield (
            f"Nothing was learnt about fewer than {attacks['k']} people. That is what these attacks could do with the "
            "files alone; it does not prove that no other attack could learn more."
        )
    if effective is not None and any(attempt["why_not"] for attempt in attacks["tried"]):
        of_one = " of one experiment" if any(each["effective_k_within"] for each in data["releases"]) else ""
        yield (
            "Some attacks need to know who is in which class. The rules cover what k promises: even with that "
            f"knowledge, every combination of sums of one metric{of_one} rests on at least {effective:,} people."
        )
    rows = [(attempt["attack"], attempt["does"], _result(attempt)) for attempt in attacks["tried"]]
    yield _table(("attack", "what it does", "result"), rows)
    if data["together"]:
        yield Section("All files and their ledger together", (_checks(data["together"]),))


def _result(attempt: Data) -> str:
    where = [f"In {listed(attempt['where'], most=3)}."] if attempt["where"] else []
    more = attempt["why_not"] or " ".join([*where, *attempt.get("says", ())])
    state = _ATTACKS[attempt["state"]]
    return f"{state}. {more}" if more else state


def _risks(risks: Sequence[Data]) -> Table:
    return _table(("risk", "what it is", "what to do"), [(risk["risk"], risk["says"], risk["do"]) for risk in risks])


def _ledger(ledger: Data | None) -> Iterator[Part]:
    if ledger is None:
        yield "No ledger was given, so this report cannot say what else was released about these people."
        return
    if not ledger["verified"]:
        yield Alert("The ledger could not be verified. See the checks above.", "alarm")
        return
    entries = ledger["entries"]
    others = sum(entry["file"] is None for entry in entries)
    rest = f" {_counted(others, 'entry', 'entries')} of it {'is' if others == 1 else 'are'} not among these files."
    releases = _counted(len(entries), "release", "releases")
    yield f"It holds {releases}, and its chain is unbroken.{rest if others else ''}"
    if "noise" in ledger:
        yield noisy.spent_sentence(ledger["noise"])
    few = len(entries) <= MOST_ENTRIES
    rows = []
    for entry in entries:
        if few or entry["file"] is not None or entry is entries[-1]:
            people = "everybody" if entry["cohorts"] is None else cohorts_text(entry["cohorts"])
            rows.append((f"{entry['entry']:,}", entry["file"] or "another file", people, entry["hash"]))
    yield _table(("entry", "file", "people", "hash"), rows)
    yield from (f"{_capital(sentence)}." for sentence in (*ledger.get("voided", ()), *ledger.get("scans", ())))
    yield from _refused(ledger)


def _refused(ledger: Data) -> Iterator[Part]:
    """Yield the attempts that were refused: who asks often may be looking for somebody."""
    refused = ledger["refused"]
    if not refused:
        yield "No attempt to release into it was refused."
        return
    yield (
        f"{_counted(len(refused), 'refused attempt', 'refused attempts')}: "
        "whether a release is refused may tell about somebody, so look at what was asked."
    )
    rows = [
        (asked_text(attempt["asked"]), attempt["rule"], "yes" if attempt["reviewed"] else "no") for attempt in refused
    ]
    yield _table(("what was asked", "refused because", "reviewed"), rows)
    yield from (f"Why they were no reason to stop: {reason}" for reason in ledger["reviews"])


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _counted(number: int, singular: str, plural: str) -> str:
    return f"{number:,} {singular if number == 1 else plural}"
