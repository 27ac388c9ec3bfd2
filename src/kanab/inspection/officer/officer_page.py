"""The privacy officer's report: the account of releases as one self-contained page.

Everything on it is in the account; everything that comes from data or a plan is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any

from kanab.errors import listed
from kanab.inspection.officer import noisy
from kanab.privacy.ledger import asked_text
from kanab.report.digits import bind_numbers, percent
from kanab.report.html_page import Page, PageSection, card_table

Data = Mapping[str, Any]
Row = tuple[str, ...]

MOST_ENTRIES = 40
"""A longer ledger shows the entries of these files and its last one; the plain data hold all."""

OFFICER_STYLE = """
.call.verdict{margin:1rem 0 0;font-size:1.1rem}
nav ul{list-style:none;display:flex;flex-wrap:wrap;gap:.2rem 1.25rem;margin-top:1.25rem;font-size:.9rem}
nav li{min-width:0;overflow-wrap:anywhere}
a{color:var(--up)}
h3{margin:1.75rem 0 .6rem}
h2+h3,article:first-of-type h3{margin-top:0}
.told,.figures{max-width:46rem}
.told li+li{margin-top:.8rem}
.told{list-style:none}
.todo{display:block;color:var(--muted);font-size:.9rem}
.prose td{min-width:8rem}
.prose .n{min-width:0}
.prose th,.prose td{vertical-align:top}
.prose tbody th{min-width:6.5rem}
.wide tbody th,.wide td{overflow-wrap:anywhere}
.state{white-space:nowrap;font-weight:600}
.ok{color:var(--fine)}
.bad{color:var(--alarm)}
.open{color:var(--muted)}
code{overflow-wrap:anywhere}
.hash{color:var(--muted);font-size:.8em}
.hash b{color:var(--ink)}
@media screen and (max-width:40rem){
.prose tr{grid-template-columns:minmax(0,1fr)}
.cards td{min-width:0}
.cards td:empty{display:none}
}
@media print{
nav{display:none}
a{color:inherit;text-decoration:none}
.figures>*{break-inside:avoid}
}
"""
"""What the page adds to the style sheet of all reports."""

_TABLE = ("table", "why it is needed", "classes", "smallest class", "sums of", "squares of")
FIELD = ("field", "what is kept", "how it is limited", "why it is needed")
_CHECK = ("rule", "state", "what it says", "what to do")
_ENTRY = ("entry", "file", "people", "hash")
_REFUSED = ("what was asked", "refused because", "reviewed")

_STATES = {True: ("ok", "✓", "holds"), False: ("bad", "✕", "BROKEN"), None: ("open", "○", "not evaluated")}
_AUDITS = {True: ("ok", "✓", "passed"), False: ("bad", "✕", "FAILED")}
_ANSWERS = {
    "covered": ("ok", "✓", "covered by the rules"),
    "in part": ("open", "◐", "covered in part"),
    "broken": ("bad", "✕", "BROKEN"),
}
_ATTACKS = {
    "learnt nothing": ("ok", "✓", "learnt nothing"),
    "learnt something": ("bad", "✕", "LEARNT SOMETHING"),
    "not tried": ("open", "○", "not tried"),
}


def privacy_html(data: Data) -> str:
    """Return the report as one HTML file; see ``privacy_page``."""
    return privacy_page(data).to_html()


def privacy_page(data: Data) -> Page:
    """Return the report of an account in its sections; each released file has one, named file-1, file-2 and so on."""
    releases = data["releases"]
    sections = (
        PageSection("promises", "What is promised", _promises(data)),
        PageSection("flow", "Where the data go", f"{_flow(data['flow'])}{places_html(data['places'])}"),
        *(
            PageSection(f"file-{number}", f"Released: {release['file']}", _release(release))
            for number, release in enumerate(releases, start=1)
        ),
        PageSection("questions", "Three questions", _questions(data["questions"])),
        PageSection("attacks", "What an attacker could learn", _attacks(data)),
        PageSection("risks", "Residual risks", _risks(data["risks"])),
        PageSection("ledger", "The ledger", _ledger(data["ledger"])),
    )
    links = "".join(
        f'<li><a href="#{section.name}">{escape(section.heading.removeprefix("Released: "))}</a></li>'
        for section in sections
    )
    experiments = listed(dict.fromkeys(name for release in releases for name in release["experiments"]))
    header = f'{_header(data, experiments)}<nav aria-label="Contents"><ul>{links}</ul></nav>\n'
    made = "from the release files alone: facts about them, not legal advice"
    return Page(f"Privacy report: {experiments}", header, sections, made, OFFICER_STYLE)


def _header(data: Data, experiments: str) -> str:
    verdict = data["verdict"]
    alarm = ' alarm" role="alert' if verdict["state"] == "broken" else ""
    short = verdict["short"]
    return (
        f'<header>\n<p class="kicker">Privacy report</p>\n<h1>{escape(experiments)}</h1>\n'
        f'<p class="call verdict{alarm}"><strong>{escape(short)}</strong>'
        f"{escape(verdict['says'].removeprefix(short))}</p>\n"
        f"{_overview(data['releases'])}</header>\n"
    )


def _overview(releases: Sequence[Data]) -> str:
    """Return one line per file, where there are several."""
    if len(releases) == 1:
        return ""
    header = ("file", "about", "k", "smallest class", "effective k of class sums", "audit")
    rows = []
    for release in releases:
        effective = "not evaluated"
        if "noise" in release:
            effective = f"ε = {release['noise']['epsilon']:g} instead"
        elif release["effective_k"] is not None:
            effective = f"at least {release['effective_k']:,}{_within(release)}"
        audit = _state(_AUDITS[all(check["holds"] is not False for check in release["checks"])])
        about, size = listed(release["experiments"]), _size(release["smallest_class"])
        rows.append((release["file"], about, f"{release['k']:,}", size, effective, audit))
    return _cards("The files", header, rows, prose=False)


# ── what is promised ───────────────────────────────────────────────────────────────────────────


def _promises(data: Data) -> str:
    rows = [
        (*(each[key] for key in ("promise", "for", "says", "costs")), "these files" if each["made"] else "")
        for each in data["promises"]
    ]
    parts = [_cards("Two promises", ("promise", "for", "what it says", "what it costs", "made by"), rows)]
    if data["rules"]:
        rules = [(rule["rule"], _state(_STATES[rule["holds"]]), rule["says"]) for rule in data["rules"]]
        parts += ["<h3>The rules behind k</h3>", _cards("Rules", _CHECK[:3], rules)]
    if data["within"]:
        parts.append(f"<p>{escape(data['within'])}</p>")
    if data["not_covered"]:
        items = "".join(
            f"<li><strong>{escape(_capital(each['what']))}.</strong> {escape(each['example'])}</li>"
            for each in data["not_covered"]
        )
        parts += ["<h3>What k does not cover</h3>", f'<ul class="told">{items}</ul>', "<p>ε covers all of it.</p>"]
    return "\n".join(parts)


# ── where the data go ──────────────────────────────────────────────────────────────────────────


SIDES = {"visitor": "With the visitor", "curator": "Stays with the curator", "outside": "Leaves"}


def _flow(steps: Sequence[Data]) -> str:
    """Return the way of the data as a list, step by step."""
    rows = [(step["step"], step["says"], SIDES[step["side"]], step["kind"]) for step in steps]
    return _cards("The way of the data", ("step", "what happens", "where", "with"), rows)


def places_html(places: Sequence[Data]) -> str:
    """Return where data are, who can see them, and for how long."""
    header = ("where", "what is there", "who can see it", "for how long")
    rows = [[place[key] for key in ("place", "what", "who", "how_long")] for place in places]
    return _cards(", ".join(place["place"] for place in places).capitalize(), header, rows)


# ── one file ───────────────────────────────────────────────────────────────────────────────────


def _release(release: Data) -> str:
    file = release["file"]
    left_out = [_left_out_sentence(left) for left in release["left_out"]]
    costs, deviations = ([f"{_capital(text)}." for text in release[key]] for key in ("costs", "deviations"))
    parts = (
        ("In figures", _figures(release)),
        ("Tables", _cards(f"Tables of {file}", _TABLE, table_rows(release))),
        ("Why each field", _cards(f"Fields of {file}", FIELD, field_rows(release))),
        ("Left out or withheld", _list(left_out) or "<p>Nothing.</p>"),
        ("What it cost", _list(costs) or "<p>Nothing.</p>"),
        ("Deviations from defaults", _list(deviations) or "<p>None.</p>"),
        ("Every check", _checks(f"Checks of {file}", release["checks"])),
    )
    return "\n".join(f"<h3>{heading}</h3>\n{body}" for heading, body in parts)


def table_rows(release: Data) -> list[Row]:
    """Return one row per table: name, question, classes, smallest class, sums, squares."""
    return [
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


def _size(people: int | None) -> str:
    """Return the size of a smallest class; with noise nobody knows it."""
    return "with noise" if people is None else f"{people:,}"


def _squares(table: Data) -> Iterator[str]:
    for metric in table["metrics"]:
        if metric["squares"]:
            yield f"{metric['name']} by {', by '.join(' × '.join(by) for by in metric['squares'])}"
    for product in table["products"]:
        yield f"products of {' and '.join(product['metrics'])} by {' × '.join(product['by'])}"


def field_rows(release: Data) -> list[Row]:
    """Return one row per arm column, covariate and metric, whichever tables it is in, and one for people."""
    tables = release["tables"]
    arms = {factor["name"]: factor for table in tables for factor in table["arms"]}
    by_covariate = {table["covariate"]["name"]: table for table in tables if table["covariate"] is not None}
    metrics = {metric["name"]: metric for table in tables for metric in table["metrics"]}
    return [
        *(
            (
                f"{factor['name']} (arms)",
                listed(factor["levels"]),
                "declared in the plan" if factor["declared"] else "as found in the data",
                "says who is compared with whom",
            )
            for factor in arms.values()
        ),
        *(_covariate_row(table) for table in by_covariate.values()),
        (
            "people",
            "how many, class by class",
            "with noise" if "noise" in release else f"nobody or at least {release['k']}",
            "an average is a sum divided by people",
        ),
        *(_metric_row(metric, tables) for metric in metrics.values()),
    ]


def _covariate_row(table: Data) -> Row:
    covariate = table["covariate"]
    merged = [f"{new} stands for {listed(olds)}" for new, olds in covariate["merged"].items()]
    levels, limits = f"levels {listed(covariate['levels'])}", "; ".join([covariate["origin"], *merged])
    return (f"{covariate['name']} (covariate)", levels, limits, "; ".join(table["why"]))


def _metric_row(metric: Data, tables: Sequence[Data]) -> Row:
    copies = [copy for table in tables for copy in table["metrics"] if copy["name"] == metric["name"]]
    sums = "sums by class" if any(copy["sums"] == "class" for copy in copies) else "sums by arm"
    squares = any(copy["squares"] for copy in copies)
    why = f"the effect on {metric['name']}"
    why += ", and how sure it is" if squares or metric["binary"] else ""
    return (
        f"{metric['name']} (metric)", f"{sums}, sums of squares" if squares else sums, "; ".join(metric["limits"]), why,
    )  # fmt: skip


def _left_out_sentence(left: Data) -> str:
    """Return what was left out; its table is named once."""
    table = left["what"].partition(": ")[0]
    return f"{_capital(left['why'])}." if table in left["why"] else f"{left['what']}: {left['why']}."


def _figures(release: Data) -> str:
    rows = noisy.figures(release) if "noise" in release else _exact_figures(release)
    if release["cohorts"] is not None:
        rows.append(("Cohorts", cohorts_text(release["cohorts"])))
    rows.append(("Rows and people", _choices(release)))
    if release["ledger"] is not None:
        rows.append(("Ledger", release["ledger"]))
    terms = "".join(f"<dt>{escape(term)}</dt><dd>{escape(bind_numbers(value))}</dd>" for term, value in rows)
    return f'<dl class="figures">{terms}<dt>Hash</dt><dd>{_hash(release["hash"])}</dd></dl>'


def _exact_figures(release: Data) -> list[tuple[str, str]]:
    k, effective = release["k"], release["effective_k"]
    times = {0: "never", 1: "once"}.get(release["homogeneous"], f"{release['homogeneous']:,} times")
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
        ("Shape of amounts", _shapes(release["shapes"])),
        ("Cut to the bounds", _by_metric(release["clamped"], k)),
        ("Without a value", _by_metric(release["missing"], k)),
        ("In two arms, left out", floored_text(release["excluded"], k)),
        ("In no planned arm, left out", floored_text(release["outside"], k)),
    ]


def _shapes(shapes: Sequence[Data]) -> str:
    """Return how skewed metrics are, and how many people are off the commonest value, as a release says it.

    >>> _shapes([{"experiment": "checkout", "metric": "spend", "skewness": 8.0, "unusual": 0.08838834764831845}])
    'spend (checkout): skewness class 8, at least 8.84 % of people off the commonest value'
    """
    texts = [
        f"{shape['metric']} ({shape['experiment']}): skewness class {shape['skewness']:.2g}, at least "
        f"{100 * shape['unusual']:.3g} % of people off the commonest value"
        for shape in shapes
    ]
    return "; ".join(texts) or "not released"


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
    """Return what a count says that was floored to a multiple of k.

    >>> floored_text(0, 10), floored_text(30, 10)
    ('fewer than 10 people', '30 to 39 people')
    """
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
    """Return the cohorts of a batch in words.

    >>> cohorts_text({"every": "7d", "after": None, "through": "2026-03-02"})
    'people enrolled in periods of 7d through 2026-03-02'
    """
    after = "" if batch["after"] is None else f" after {batch['after']}"
    return f"people enrolled in periods of {batch['every']}{after} through {batch['through']}"


def _checks(name: str, checks: Sequence[Data]) -> str:
    """Return every rule; what to do has a column where there is something to do."""
    rows = []
    for check in checks:
        where = f" (violated in {check['classes']:,} places)" if check["holds"] is False and check["classes"] else ""
        says = f"{_capital(check['says'])}{where}."
        rows.append((check["rule"], _state(_STATES[check["holds"]]), says, "" if check["holds"] else check["remedy"]))
    columns = 4 if any(row[-1] for row in rows) else 3
    return _cards(name, _CHECK[:columns], [row[:columns] for row in rows])


# ── what is open ───────────────────────────────────────────────────────────────────────────────


def _questions(questions: Sequence[Data]) -> str:
    lead = (
        "An opinion of Europe's data protection authorities (Article 29 Working Party, 05/2014, WP216) asks three "
        "questions of data that are handed on."
    )
    return f'<p class="key">{lead}</p>\n' + "\n".join(map(_question, questions))


def _question(question: Data) -> str:
    rows = (
        ("Here", _state(_ANSWERS[question["state"]])),
        ("What should hold" if question["state"] == "broken" else "What holds", _list(question["holds"])),
        ("What does not", _list(question["gaps"])),
        ("Rules", escape(", ".join(question["rules"]))),
        ("Tests of Kanab", ", ".join(f"<code>{escape(test)}</code>" for test in question["tests"])),
    )
    terms = "".join(f"<dt>{term}</dt><dd>{value}</dd>" for term, value in rows)
    heading = f"{question['question'].capitalize()}: {question['asks'][:1].lower()}{question['asks'][1:]}"
    return f'<article>\n<h3>{escape(heading)}</h3>\n<dl class="figures">{terms}</dl>\n</article>'


def _attacks(data: Data) -> str:
    attacks, effective = data["attacks"], data["verdict"]["effective_k"]
    said = (
        f"Nothing was learnt about fewer than {attacks['k']} people. That is what these attacks could do with the "
        "files alone; it does not prove that no other attack could learn more."
    )
    if attacks["broken"]:
        said = (
            f"Something was learnt about fewer than {attacks['k']} people. It is not repeated here; kanab attack shows "
            "it."
        )
    elif noisy.all_noisy(data["releases"]):
        said = "Nothing was learnt that ε does not allow. No other attack on these files can, whatever it knows."
    if effective is not None and any(attempt["why_not"] for attempt in attacks["tried"]):
        of_one = " of one experiment" if any(each["effective_k_within"] for each in data["releases"]) else ""
        said += (
            " Some attacks need to know who is in which class. The rules cover what k promises: even with that "
            f"knowledge, every combination of sums of one metric{of_one} rests on at least {effective:,} people."
        )
    rows = [(attempt["attack"], attempt["does"], _result(attempt)) for attempt in attacks["tried"]]
    table = _cards("Attacks", ("attack", "what it does", "result"), rows)
    between = _checks("Checks of all files together", data["together"]) if data["together"] else ""
    together = f"\n<h3>All files and their ledger together</h3>\n{between}" if between else ""
    return f"<p>{escape(said)}</p>\n{table}{together}"


def _result(attempt: Data) -> Html:
    where = [f"In {listed(attempt['where'], most=3)}."] if attempt["where"] else []
    more = attempt["why_not"] or " ".join([*where, *attempt.get("says", ())])
    return Html(f"{_state(_ATTACKS[attempt['state']])}{f' {escape(more)}' if more else ''}")


def _risks(risks: Sequence[Data]) -> str:
    items = "".join(
        f"<li><strong>{escape(risk['risk'].capitalize())}.</strong> {escape(risk['says'])} "
        f'<span class="todo">What to do: {escape(risk["do"][:1].lower() + risk["do"][1:])}</span></li>'
        for risk in risks
    )
    return f'<ul class="told">{items}</ul>'


def _ledger(ledger: Data | None) -> str:
    if ledger is None:
        return "<p>No ledger was given, so this report cannot say what else was released about these people.</p>"
    if not ledger["verified"]:
        return '<p class="call alarm"><strong>The ledger could not be verified.</strong> See the checks above.</p>'
    entries = ledger["entries"]
    others = sum(entry["file"] is None for entry in entries)
    rest = f" {_counted(others, 'entry', 'entries')} of it {'is' if others == 1 else 'are'} not among these files."
    summary = (
        f"It holds {_counted(len(entries), 'release', 'releases')}, and its chain is unbroken.{rest if others else ''}"
    )
    few = len(entries) <= MOST_ENTRIES
    rows = []
    for entry in entries:
        if few or entry["file"] is not None or entry is entries[-1]:
            people = "everybody" if entry["cohorts"] is None else cohorts_text(entry["cohorts"])
            rows.append((f"{entry['entry']:,}", entry["file"] or "another file", people, Html(_hash(entry["hash"]))))
    table = _cards("Entries of the ledger", _ENTRY, rows)
    sentences = (*ledger.get("voided", ()), *ledger.get("scans", ()))
    said = "".join(f"<p>{escape(sentence[:1].upper() + sentence[1:])}.</p>" for sentence in sentences)
    spent = f"<p>{escape(noisy.spent_sentence(ledger['noise']))}</p>\n" if "noise" in ledger else ""
    return f"<p>{summary}</p>\n{spent}{table}{said}{_refused(ledger)}"


def _refused(ledger: Data) -> str:
    """Return the attempts that were refused: who asks often may be looking for somebody."""
    refused = ledger["refused"]
    if not refused:
        return "<p>No attempt to release into it was refused.</p>"
    rows = [
        (asked_text(attempt["asked"]), attempt["rule"], "yes" if attempt["reviewed"] else "no") for attempt in refused
    ]
    reasons = "".join(f"<p>Why they were no reason to stop: {escape(reason)}</p>" for reason in ledger["reviews"])
    return (
        f"<p>{_counted(len(refused), 'refused attempt', 'refused attempts')}: "
        "whether a release is refused may tell about somebody, so look at what was asked.</p>"
        f"{_cards('Refused attempts', _REFUSED, rows)}{reasons}"
    )


class Html(str):
    """A cell that is markup already."""

    __slots__ = ()


def _cards(name: str, header: Sequence[str], rows: Iterable[Sequence[str]], *, prose: bool = True) -> str:
    """Return a table whose texts are escaped, and whose markup is not."""
    cells = [[cell if isinstance(cell, Html) else escape(cell) for cell in row] for row in rows]
    return card_table(name, header, cells, "cards wide prose" if prose else "cards wide")


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _counted(number: int, singular: str, plural: str) -> str:
    return f"{number:,} {singular if number == 1 else plural}"


def _hash(text: str) -> str:
    """Return the whole hash, its beginning in bold for the eye."""
    return f'<code class="hash"><b>{escape(text[:12])}</b>{escape(text[12:])}</code>'


def _state(state: tuple[str, str, str]) -> Html:
    kind, mark, words = state
    return Html(f'<span class="state {kind}"><span aria-hidden="true">{mark}</span> {words}</span>')


def _list(sentences: Iterable[str]) -> str:
    items = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)
    return f'<ul class="said">{items}</ul>' if items else ""
