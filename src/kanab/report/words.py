"""A readout in sentences: verdicts that someone without statistics can act on."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from kanab.choices import INTERNAL, OWN_ROWS
from kanab.errors import listed
from kanab.report.digits import Digits, Row, is_share, metric_figures, percent, spoken_p
from kanab.report.noise_words import NO_ACCOUNT, noise_sentences
from kanab.stats.srm import FAULTY_RESIDUAL, SAMPLE_RATIO_ALARM, alarm_limit, is_alarm
from kanab.tabular import number

Data = Mapping[str, Any]
Kind = Literal["up", "down", "watch", "hint", "unclear", "untestable", "early"]

SegmentKind = Literal["differs", "nothing found", "not testable"]
"""Whether the effect differs by a covariate, in the words of a scan."""

MARKS: dict[Kind, str] = {
    "up": "▲", "down": "▼", "watch": "◇", "hint": "△", "unclear": "○", "early": "○", "untestable": "–",
}  # fmt: skip

_NO_NAMES = {"true", "false", "missing", "on", "off", "yes", "no", "in", "out"}
"""What an arm may be called that does not read as a name: no effect of on on orders."""

CORRECTIONS: dict[str, str] = {
    "none": "",
    "bonferroni": "Bonferroni",
    "sidak": "Šidák",
    "holm": "Holm",
    "bh": "Benjamini–Hochberg",
    "by": "Benjamini–Yekutieli",
    "dunnett": "Dunnett",
}


@dataclass(frozen=True)
class Verdict:
    """What is said about one metric and arm, why, and the row of effects that it rests on."""

    row: Row
    kind: Kind
    claim: str
    evidence: str

    @property
    def sentence(self) -> str:
        """The claim and its evidence in one sentence."""
        return f"{self.claim}{self.evidence}"


def metrics_of(data: Data) -> list[str]:
    """Return the metrics, in the order of the effects; of a readout that is narrowed to one metric, that one."""
    return data.get("narrowed") or list(dict.fromkeys(row["metric"] for row in data["effects"]))


def title(data: Data) -> str:
    """Return the experiment, its people and its arms, in one line."""
    named = "" if data["control"].lower() == "control" else f", control {data['control']}"
    if data.get("control_chosen") == "unknown":
        named = f", compared with {data['control']}"
    return f"{data['experiment']}: {counted_units(data)} in {len(data['arms'])} arms{named}"


def counted_units(data: Data) -> str:
    """Return how many people were counted, or how many clusters of people."""
    clusters = data.get("clusters")
    if not clusters:
        return f"{data['people']:,} people"
    of = "" if clusters["people"] is None else f" of {sum(clusters['people'].values()):,} people"
    return f"{data['people']:,} clusters ({' and '.join(clusters['by'])}){of}"


def cluster_sentences(data: Data) -> list[str]:
    """Return how clusters are read, where arms were assigned to them."""
    clusters = data.get("clusters")
    if not clusters:
        return []
    by = " and ".join(clusters["by"])
    sentence = (
        f"Arms were assigned by {by}, so each {by} counts once: effects are on the mean of all people, errors those "
        "between clusters."
    )
    if is_internal(data):
        return [sentence]
    return [
        f"{sentence} Where people are counted or hidden among others here, clusters are meant: k = {data['k']} "
        "clusters in every class, and so at least as many people."
    ]


def alarmed(data: Data) -> bool:
    """Return whether people arrived in shares that chance does not explain (a sample ratio mismatch, SRM)."""
    return is_alarm(data["sample_ratio"]["p"])


def sample_ratio_sentence(data: Data) -> str:
    """Return that the sample ratio is fine, or an alarm that names the arm at fault."""
    ratio = data["sample_ratio"]
    test = f"χ²({ratio['df']}) = {number(ratio['chi2'], 3)}, {spoken_p(ratio['p'])}"
    if ratio.get("p_any_time") is not None:  # which is not the p of that χ²
        test = f"{spoken_p(ratio['p_any_time'])}, however often you look"
    shares = "the planned shares" if ratio["declared"] else "equal shares"
    if not alarmed(data):
        assumed = "" if ratio["declared"] else "; none were declared, so equal ones are assumed"
        return f"Sample ratio: fine. People arrived in {shares} ({test}; {alarm_limit(SAMPLE_RATIO_ALARM)}{assumed})."
    hint = "" if ratio["declared"] else " If the split was meant to be unequal, declare its shares."
    return (
        f"Sample ratio: ALARM. People did not arrive in {shares} ({test}; {alarm_limit(SAMPLE_RATIO_ALARM)}): "
        f"{_at_fault(data)}. "
        f"Find the cause before acting on any number below.{hint}"
    )


def _at_fault(data: Data) -> str:
    """Return the arms whose residuals are beyond the limit, else the worst; of two arms, both."""
    ratio, arms = data["sample_ratio"], data["arms"]
    residuals = ratio["residuals"]
    worst = max(residuals, key=lambda arm: abs(residuals[arm]))
    chosen = [arm for arm in residuals if len(arms) == 2 or arm == worst or abs(residuals[arm]) > FAULTY_RESIDUAL]
    parts = []
    for arm in chosen:
        expected = data["people"] * ratio["shares"][arm]
        excess = arms[arm] / expected - 1
        side = "more" if excess > 0 else "fewer"
        parts.append(f"{arm} holds {arms[arm]:,} people, {number(abs(excess) * 100, 2)} % {side} than expected")
    return "; ".join(parts)


# ── balance ────────────────────────────────────────────────────────────────────────────────────


def balance_alarmed(data: Data) -> bool:
    """Return whether arms hold different people, or differ in who has a value, beyond what chance explains."""
    return bool(_unbalanced(data))


def _unbalanced(data: Data) -> list[Row]:
    return [row for row in balance_rows(data) if row["alarm"]]


def balance_rows(data: Data) -> list[Row]:
    """Return the checks of balance, covariates before metrics."""
    rows = data.get("balance", {}).get("rows", ())
    return sorted(rows, key=lambda row: bool(row["about"] == "values"))


def faults(data: Data) -> list[str]:
    """Return why the comparison is not to be trusted, a short clause each; nothing where no alarm rings."""
    rows = any(caution["kind"] == "rows-not-people" for caution in data.get("cautions", ()))
    counted = ["rows are not people, so name the column of people (--unit)"] * rows
    return [*counted, *["people did not arrive as planned"] * alarmed(data), *balance_faults(data)]


def balance_faults(data: Data) -> list[str]:
    """Return what is out of balance, a short clause each: for a line of a list, and after a "But"."""
    return [_fault(row) for row in _unbalanced(data)]


def _fault(row: Row) -> str:
    if row["about"] != "values":
        return f"{row['name']} is spread unevenly over the arms"
    often = "more" if row["share"] > row["elsewhere"] else "less"
    return f"people of {spoken_arm(row['arm'])} have a value of {row['name']} {often} often"


def balance_sentences(data: Data) -> list[str]:
    """Return that the arms are alike, in one line, or an alarm for every check that is not fine."""
    rows, alarms = balance_rows(data), _unbalanced(data)
    fine = [row for row in rows if row not in alarms]
    sentences = [_balance_alarm(data, row) for row in alarms]
    if not fine:
        return sentences
    limit = alarm_limit(data["balance"]["limit"])
    corrected = "corrected " if len(rows) > 1 else ""
    least = f"smallest {corrected}{spoken_p(min(row['p_adjusted'] for row in fine))}; {limit}"
    verb = "is" if len(fine) == 1 and fine[0]["about"] != "values" else "are"
    alike = f"{_checked(fine, other=bool(alarms))} {verb} alike across arms ({least})."
    return [*sentences, alike[:1].upper() + alike[1:] if alarms else f"Balance: fine. {alike[:1].upper()}{alike[1:]}"]


def alarm_sentences(data: Data) -> list[str]:
    """Return the sentences that are alarms: of the sample ratio, and of balance."""
    ratio = [sample_ratio_sentence(data)] if alarmed(data) else []
    return [*ratio, *(_balance_alarm(data, row) for row in _unbalanced(data))]


def _checked(rows: list[Row], *, other: bool) -> str:
    parts = []
    abouts = [row["about"] for row in rows]
    metrics = abouts.count("values")
    covariates = len(abouts) - metrics
    of = " other" if other else ""
    if covariates:
        parts.append(f"{covariates}{of} covariate{'s' * (covariates > 1)}")
    if metrics:
        parts.append(f"the missing values of {metrics}{of} metric{'s' * (metrics > 1)}")
    return " and ".join(parts)


def _balance_alarm(data: Data, row: Row) -> str:
    p = f"{'corrected ' * (len(balance_rows(data)) > 1)}{spoken_p(row['p_adjusted'])}"
    ever = "" if row["p_any_time"] is None else ", however often you look"
    test = f"χ²({row['df']}) = {number(row['chi2'], 3)}, {p}{ever}; {alarm_limit(data['balance']['limit'])}"
    here, there = (f"{number(100 * row[side], 3)} %" for side in ("share", "elsewhere"))
    rest = [spoken_arm(arm) for arm in data["arms"] if arm != row["arm"]]
    others = rest[0] if len(rest) == 1 else "the others"
    fault = _fault(row)
    fault = fault if row["about"] != "values" else f"{fault[:1].upper()}{fault[1:]}"
    cause = (
        f"The arms hold different people: find the cause before acting on any number below. Perhaps {row['name']} was "
        "measured after the assignment, people of one arm were lost, or arms were assigned by something that people "
        "share."
    )
    if row["about"] == "number":
        here, there = (number(row[side], 4) for side in ("share", "elsewhere"))
        off = f"its mean is {here} in {spoken_arm(row['arm'])}, but {there} in {others}{_standardised(data, row)}"
        return f"Balance: ALARM. {fault} ({test}): {off}. {cause}"
    start = f"Balance: ALARM. {fault} ({test}): {here} of {spoken_arm(row['arm'])}"
    if row["about"] == "values":
        return (
            f"{start}, but {there} of {others}. So the effect on {row['name']} compares different people. Find out why "
            "values are missing before acting on it; where no value means none, count it as 0."
        )
    return f"{start} have {row['name']} {row['level']}, but {there} of {others}{_standardised(data, row)}. {cause}"


def _standardised(data: Data, row: Row) -> str:
    differences = row["differences"]
    arm = (
        row["arm"] if row["arm"] in differences else max(differences, key=lambda arm: abs(differences[arm]), default="")
    )
    if not arm:
        return ""
    size, side = number(abs(differences[arm]), 2), "above" if differences[arm] > 0 else "below"
    return f"; its mean in {spoken_arm(arm)} is {size} standard deviations {side} that in {spoken_arm(data['control'])}"


# ── verdicts ───────────────────────────────────────────────────────────────────────────────────


def headlines(data: Data, metric: str) -> list[Row]:
    """Return the rows that carry the verdict, one per arm."""
    return [row for row in data["effects"] if row["metric"] == metric and row["carries_verdict"]]


def verdict_rows(data: Data) -> list[Row]:
    """Return the rows that carry the verdicts on all metrics."""
    rows = []
    for metric in metrics_of(data):
        rows += headlines(data, metric)
    return rows


def role_of(data: Data, metric: str) -> str | None:
    """Return the role of a metric; None where nobody named any."""
    return next((row.get("role") for row in data["effects"] if row["metric"] == metric), None)


def lower_is_better(data: Data, metric: str) -> bool:
    """Return whether less of a metric is better."""
    return any(row.get("better") == "lower" for row in data["effects"] if row["metric"] == metric)


def several_roles(data: Data) -> bool:
    """Return whether metrics have different roles, so that each has to be named."""
    return len({row.get("role") for row in data["effects"]}) > 1


def is_better(row: Row) -> bool | None:
    """Return whether an effect is clearly for the better; None where nothing is clear."""
    if row["verdict"] not in ("up", "down"):
        return None
    return bool((row["verdict"] == "up") == (row.get("better", "higher") == "higher"))


def kind_of(row: Row) -> Kind:
    """Return the verdict as people read it: "early" for what is seen before the planned people are in."""
    kind: Kind = row["verdict"]
    return "early" if row.get("early") and kind in ("up", "down", "watch", "hint") else kind


def tone(row: Row) -> str:
    """Return which colour a row has: "better" or "worse" where it carries a clear verdict, else that verdict."""
    kind = kind_of(row)
    return kind if kind == "early" else {True: "better", False: "worse", None: kind or "beside"}[is_better(row)]


def colour_key(data: Data) -> str:
    """Return what the colours mean: more and less, or better and worse where less of something is better."""
    lower = [metric for metric in metrics_of(data) if lower_is_better(data, metric)]
    beside = any(not row["carries_verdict"] for row in data["effects"])
    only = " Of each arm, only the row that carries the verdict has a colour." if beside else ""
    if not lower:
        return f"Blue is clearly more than the control, orange clearly less, grey neither.{only}"
    return (
        "Blue is clearly better than the control, orange clearly worse, grey neither; "
        f"less is better for {listed(lower)}.{only}"
    )


def verdicts(data: Data, metric: str) -> list[Verdict]:
    """Return one verdict for every arm of a metric."""
    share = is_share(data, metric)
    return [_beside_plain(data, _verdict(data, row, share=share)) for row in headlines(data, metric)]


def _beside_plain(data: Data, verdict: Verdict) -> Verdict:
    """Add the plain effect to the evidence where it would read differently, both without correction."""
    key = ("metric", "arm", "method")
    wanted = (verdict.row["metric"], verdict.row["arm"], "difference")
    plain = next((row for row in data["effects"] if tuple(row[name] for name in key) == wanted), None)
    alpha = 1 - data["confidence"]
    if plain is None or plain["p"] is None or _side(plain, alpha) == _side(verdict.row, alpha):
        return verdict
    change = metric_figures(data, plain["metric"])[0].change(plain["estimate"], signed=True)
    return replace(verdict, evidence=f"{verdict.evidence} Without adjustment: {change}; {spoken_ps(plain)}.")


def _side(row: Row, alpha: float) -> int:
    """Return on which side of 0 an effect lies by its own p; 0 where that is not clear."""
    return 0 if row["p"] is None or not row["p"] < alpha else 1 if row["estimate"] > 0 else -1


def _verdict(data: Data, row: Row, *, share: bool) -> Verdict:
    kind = kind_of(row)
    figures, relative = metric_figures(data, row["metric"])
    claim = f"{_claim(data, row, kind, figures)}{_relative(row, relative)}"
    if claim.startswith(("arm ", "no ", "watch: ", "so far ")):  # else it begins with a name
        claim = claim[:1].upper() + claim[1:]
    if kind == "untestable":
        change = f"; the difference is {figures.change(row['estimate'])}" if row["estimate"] is not None else ""
        why = "too noisy to tell" if row.get("too_noisy") else "nothing varies"
        return Verdict(row, kind, claim, f": {why}{change}.")
    adjusted = f" (adjusted for {listed(row['covariates'])})" if row["method"] == "adjusted" else ""
    interval = f", {percent(data['confidence'])} interval {figures.spoken(row['interval'])}" if row["interval"] else ""
    evidence = f"{interval}; {spoken_ps(row)}{adjusted}"
    return Verdict(row, kind, claim, f"{evidence}{_doubt(row, share=share)}." if kind == "watch" else f"{evidence}.")


def _doubt(row: Row, *, share: bool) -> str:
    usual = spoken_p(row["p_usual_adjusted"]).removeprefix("p ").removeprefix("= ")
    test = "score test" if row["test"] == "score" else "t-test"
    alone = f", but {usual} by the {test} alone, which a few people can mislead"
    if share:  # which cannot be cut
        return f"{alone}: wait for more people"
    return (
        f"{alone}. Wait for more people, or declare a bound of {row['metric']} near the 99 % point of an earlier "
        "period, where larger values are cut"
    )


def _claim(data: Data, row: Row, kind: Kind, figures: Digits) -> str:
    arm, metric = spoken_arm(row["arm"]), row["metric"]
    if kind == "untestable":
        return f"{arm} cannot be tested on {metric}"
    if kind in ("up", "down"):
        return f"{arm} {'raises' if kind == 'up' else 'lowers'} {metric} by {figures.change(abs(row['estimate']))}"
    change = figures.change(row["estimate"], signed=True)
    side = "higher" if row["estimate"] > 0 else "lower"
    if kind == "early":
        return f"so far {metric} is {side} with {arm}: {change}"
    if kind == "watch":
        return f"watch: {metric} may be {side} with {arm}, or a few people made it: {change}"
    if kind == "hint":
        verb = "raise" if row["estimate"] > 0 else "lower"
        size = _by_role(data["effects"])[row.get("role")]
        return f"{arm} may {verb} {metric}, but {size} comparisons leave it in doubt: {change}"
    if data["alternative"] == "two-sided" or row.get("role") == "guardrail":
        return f"no clear effect of {arm} on {metric}: {change}"
    return f"no sign that {arm} {'raises' if data['alternative'] == 'greater' else 'lowers'} {metric}: {change}"


def moves_by(data: Data, row: Row, what: str) -> str:
    """Return what a clear effect does: "raises bought by 1.0 points (+9 %)"."""
    figures, relative = metric_figures(data, row["metric"])
    change = figures.change(abs(row["estimate"]))
    return f"{'raises' if row['verdict'] == 'up' else 'lowers'} {what} by {change}{_relative(row, relative)}"


def _relative(row: Row, figures: Digits) -> str:
    if row["relative"] is None or row["relative_interval"] is None:
        return ""
    relative = f"{figures.bare(row['relative'], signed=True)} %"
    # where a share of the control is open above although the effect is not, the share alone would say too much
    is_open = row["relative_interval"][1] is None and row["interval"] is not None and row["interval"][1] is not None
    return f" ({relative}, {figures.spoken(row['relative_interval'])} %)" if is_open else f" ({relative})"


def method_of(row: Row) -> tuple[str, tuple[str, ...]]:
    """Return how a row was computed: plain, or adjusted and for what."""
    return row["method"], tuple(row["covariates"])


def _by_role(rows: Iterable[Row]) -> Counter[str | None]:
    """Return how many comparisons are corrected together: those of a role that carry verdicts, if testable."""
    return Counter(row.get("role") for row in rows if row["carries_verdict"] and row["p"] is not None)


def families(rows: Iterable[Row]) -> str:
    """Return the families that are corrected by themselves, in words; empty where each comparison stands alone."""
    sizes = _by_role(rows)
    if max(sizes.values(), default=0) < 2:
        return ""
    if len(sizes) == 1:
        return f"the {sizes.total()} comparisons that carry a verdict"
    return f"each role by itself, {listed(f'{size} {role}' for role, size in sizes.items())}"


def correction_name(data: Data) -> str:
    """Return the correction for multiple comparisons as people write it; empty for none."""
    correction: str = data["correction"]
    return CORRECTIONS.get(correction, correction)


def spoken_ps(row: Row) -> str:
    """Return the p-value, and the corrected one where it reads differently."""
    alone, corrected = spoken_p(row["p"]), spoken_p(row["p_adjusted"])
    if row["p_adjusted"] is None or alone == corrected:
        return alone
    return f"{alone}, corrected {corrected.removeprefix('p ').removeprefix('= ')}"


def spoken_arm(arm: str) -> str:
    """Return an arm as the subject of a sentence; "arm 1" where its name does not read as one."""
    return arm if arm[:1].isalpha() and arm.lower() not in _NO_NAMES else f"arm {arm}"


def summary(data: Data) -> str:
    """Return how many of the comparisons are clear; before the planned people are in, that none is yet."""
    rows = verdict_rows(data)
    if not rows:
        return _no_effect(data)
    if any(row.get("early") for row in rows):
        planned = f"Planned for {data['rule']['people']:,} people; at {data['people']:,} nothing is shown yet"
        return f"{planned}, because p and intervals hold for one look at the end. Use --sequential to decide early."
    kinds = [row["verdict"] for row in rows]
    clear = len([kind for kind in kinds if kind in ("up", "down")])
    method = correction_name(data)
    apart = ", each role by itself" if several_roles(data) else ""
    corrected = f" after correction ({method}{apart})" if method and families(data["effects"]) else ""
    warned = f" But {', and '.join(faults(data))}." if faults(data) and not data.get("decision") else ""
    if len(kinds) == 1:
        watched = ": watch it" if kinds == ["watch"] else ""
        return f"1 comparison, and it shows {'a' if clear else 'no'} clear effect{watched}.{warned}"
    watched = f"; {kinds.count('watch')} to be watched" if "watch" in kinds else ""
    return f"{clear or 'None'} of {len(kinds)} comparisons show a clear effect{corrected}{watched}.{warned}"


def _no_effect(data: Data) -> str:
    if any(" is not given" in note for note in data["notes"]):
        return "No effect could be computed; the notes say why."
    if data["privacy"]["left_out"]:
        return "No effect could be computed; the privacy section says why."
    return "No effect was computed: no metric is compared."


UNCHAINED = "In no ledger: what else was released about these people was not checked."


def is_internal(data: Data) -> bool:
    """Return whether something was computed on rows, without the gate."""
    return bool(data.get("scope") == OWN_ROWS)


def privacy_sentences(data: Data) -> list[str]:
    """Return the receipt: the rule, the smallest class, what was merged and what was left out."""
    privacy = data["privacy"]
    if is_internal(data):
        sentences = [INTERNAL]
    elif privacy.get("noise"):
        sentences = noise_sentences(data)
    else:
        effective = privacy["effective_k"]
        where = f"over everything in ledger {privacy['ledger']}" if privacy.get("ledger") else "over all tables"
        where = "within each experiment" if privacy.get("effective_k_within") else where
        over_all = f"; effective k of class sums {where} at least {effective:,}" if effective is not None else ""
        smallest = f"{privacy['smallest_class']:,} {'clusters' if data.get('clusters') else 'people'}"
        sentences = [
            f"k-anonymous at k = {privacy['k']}: {privacy['classes']:,} classes, the smallest holds "
            f"{smallest}{over_all}; audit {privacy['audit']}."
        ]
    if not is_internal(data) and not privacy["chained"]:
        sentences.append(NO_ACCOUNT if privacy.get("noise") else UNCHAINED)
    merged = {}  # for joint adjustment, all pairs of a covariate have one map
    for table, levels in privacy["merged"].items():
        pair, _, covariate = table.rpartition(": ")
        name = f"{covariate} for joint adjustment" if pair else table.removeprefix(f"{data['experiment']}/")
        merged[name] = "; ".join(f"{listed(olds)} → {new}" for new, olds in levels.items())
    sentences += [f"Merged levels of {name}: {into}." for name, into in merged.items() if into]
    sentences += [account] if (account := account_sentence(privacy)) else []
    sentences += [ended(text) for text in privacy["left_out"].values()]
    sentences += [f"Differs from the defaults: {ended(text)}" for text in privacy["deviations"]]
    return sentences


def account_words(states: Mapping[str, int]) -> str:
    """Return what became of the people of a collector's experiment."""
    return ", ".join(f"{people:,} {state.replace('_', ' ')}" for state, people in states.items())


def account_sentence(privacy: Data) -> str:
    """Return the account of a collector's people as of the seal; empty where there is none."""
    if not privacy.get("people"):
        return ""
    steps = f"in steps of k = {privacy['k']}"
    return f"People whose enrollment was acknowledged until this seal, {steps}: {account_words(privacy['people'])}."


def note_sentences(data: Data) -> list[str]:
    """Return the notes that the receipt does not already hold."""
    receipt = {ended(text) for text in (*data["privacy"]["left_out"].values(), *data["privacy"]["deviations"])}
    return [ended(text) for text in data["notes"] if ended(text) not in receipt]


def method_sentences(data: Data) -> list[str]:
    """Return which variance, which estimand and which family were used: what a statistician asks next."""
    methods = {row["method"] for row in data["effects"]}
    level = percent(data["confidence"])
    sentences = (
        [f"Intervals ({level}) and p are for the population that these people were drawn from."] if methods else []
    )
    tests = {row.get("test", "welch") for row in data["effects"] if row["method"] == "difference"}
    if "score" in tests:
        sentences.append(
            "Plain effects of 0/1 metrics: score test and interval of Miettinen and Nurminen, also of the ratio of the "
            "rates and of the odds ratio."
        )
    if "welch" in tests:
        other = " of other metrics" if "score" in tests else ""
        of = "means of all people, errors between clusters" if data.get("clusters") else "means"
        sentences.append(f"Plain effects{other}: difference of {of}, each arm with its own variance (Welch).")
    if "adjusted" in methods:
        variance = "Ding's" if data.get("variance") == "paper" else "its exact"
        how = f"one regression per arm (Lin) with {variance} variance"
        if data.get("slopes") == "one":
            how = "one regression for all arms (CUPED), and Welch's variance of what it leaves"
        unless = ", unless it adds too much noise" if data["privacy"].get("noise") else ""
        sentences.append(f"Adjusted effects: {how}; where an adjustment was asked for, it carries the verdict{unless}.")
    if {"welch", "regression"} & {row.get("test", "welch") for row in data["effects"]}:
        subject = "The t-test of other metrics, and of adjusted effects," if "score" in tests else "The t-test"
        sentences.append(
            f"{subject} corrects for the skewness of a metric, on the side where a few large values would mislead it. "
            "Where skewness is not known, or few people have another than the commonest value, the t-test with one "
            "variance for all arms has to agree: p is the larger, and the interval the wider of both."
        )
    method = correction_name(data)
    if method and families(data["effects"]):
        beside = "; rows beside them are not corrected" if len(methods) > 1 else ""
        sentences.append(f"p ({method}) is corrected over metrics × arms: {families(data['effects'])}{beside}.")
    if data["alternative"] != "two-sided" and methods:
        side = "rise" if data["alternative"] == "greater" else "fall"
        guards = (
            "; guardrails are tested on both sides"
            if any(row.get("role") == "guardrail" for row in data["effects"])
            else ""
        )
        sentences.append(f"One-sided: only a {side} was looked for{guards}.")
    if any(row["interval"] is not None and row["relative_interval"] is None for row in data["effects"]):
        sentences.append("No relative effect is given where the control's mean cannot be told from 0.")
    return sentences


def ended(text: str) -> str:
    """Return a sentence with its full stop."""
    return text if text.endswith(".") else f"{text}."
