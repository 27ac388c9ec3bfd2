"""What to believe of an effect, given what was believed before: posteriors, and which arm is best."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kanab.analysis.compare import against_control
from kanab.analysis.effect_rows import typed
from kanab.analysis.methods.base import Data, Facts, Findings, Method
from kanab.dataframes import Row, Tables
from kanab.errors import AnalysisError
from kanab.report.digits import adjusted_for, figures_of, is_share, named_with_unit, percent
from kanab.report.document import Part
from kanab.report.words import headlines, method_of, metrics_of
from kanab.stats.effect import contrast
from kanab.stats.posteriors import Candidate, Posterior, best_arm, posterior
from kanab.tabular import Table, number
from kanab.tally.factor import label


@dataclass(frozen=True)
class BayesRow:
    """One metric read with a prior: every arm's effect, and which arm is best. A prior without an end has no sd."""

    metric: str
    method: str
    covariates: Sequence[str]
    prior: Mapping[str, Any]
    better: str
    effects: Sequence[Row]
    arms: Sequence[Row]


class Bayes(Method):
    """Read the same estimates with a prior, for the metrics that have one."""

    name = "bayes"
    heading = "What to believe, given the prior"
    tables = ("bayes",)

    def asked(self, facts: Facts) -> bool:
        """Return whether a prior is given."""
        return bool(facts.options.priors)

    def read(self, facts: Facts) -> Findings:
        """Return a row for every metric and way of adjusting; what cannot be read so is a note."""
        options, rows, notes = facts.options, [], []
        for means in (each.means for each in facts.means if each.means.metric in options.priors):
            prior, better = options.priors[means.metric], options.better(means.metric)
            try:
                effects = [
                    contrast(means, weights, confidence=options.confidence)
                    for weights in against_control(means, options)
                ]
                candidates = best_arm(means, prior, control=options.control, better=better)
                in_units = prior.in_units(float(means.means[means.arms.index(options.control)]))
                believed = [_effect(posterior(effect, in_units)) for effect in effects]
            except AnalysisError as problem:
                notes.append(f"{means.metric} is not read with its prior: {problem.fact}.")
                continue
            arms = [_arm(arm) for arm in candidates]
            rows.append(BayesRow(means.metric, means.method, means.covariates, vars(prior), better, believed, arms))
        return Findings({"bayes": rows}, notes)

    def parts(self, data: Data) -> Sequence[Part]:
        """Return the prior and the posterior of every metric that has a prior, as its verdict is adjusted."""
        parts: list[Part] = []
        for metric in metrics_of(data):
            wanted = {method_of(row) for row in headlines(data, metric)}
            of_metric = [row for row in data.get("bayes", ()) if row["metric"] == metric and method_of(row) in wanted]
            for row in of_metric[:1]:
                (read,) = typed([row], BayesRow)
                parts += [_prior_sentence(data, read, adjusted_for(row)), _table(data, read)]
        return parts

    def frames(self, data: Data) -> Tables:
        """Return the effects, and the arms."""
        rows = typed(data["bayes"], BayesRow)
        return {
            "bayes": [{**_beside(row), **effect} for row in rows for effect in row.effects],
            "bayes_arms": [{**_beside(row), **arm} for row in rows for arm in row.arms],
        }


def _beside(row: BayesRow) -> dict[str, Any]:
    return {name: value for name, value in vars(row).items() if name not in ("effects", "arms")}


def _effect(believed: Posterior) -> Row:
    return {
        "arm": label(believed.arm), "control": label(believed.control), "mean": believed.mean, "sd": believed.sd,
        "interval": believed.interval, "positive": believed.positive,
    }  # fmt: skip


def _arm(arm: Candidate) -> Row:
    return {"arm": label(arm.arm), "mean": arm.mean, "best": arm.best, "loss": arm.loss}


def _prior_sentence(data: Data, row: BayesRow, adjusted: str) -> str:
    share, relative = is_share(data, row.metric), row.prior.get("relative")
    unit = f" % of the mean of {data['control']}" if relative else " points" if share else ""
    scale = 100 if share or relative else 1
    mean, sd = row.prior["mean"], row.prior["sd"]
    prior = "none" if sd is None else f"{scale * mean:g} ± {scale * sd:g}{unit} (one standard deviation)"
    less = "; less is better" if row.better == "lower" else ""
    estimate = f"; its estimate is{adjusted.removeprefix(',')}" if adjusted else ""
    return f"Prior for the effect on {row.metric}: {prior}{less}{estimate}."


def _table(data: Data, row: BayesRow) -> Table:
    share = is_share(data, row.metric)
    effects = {each["arm"]: {"estimate": each["mean"], "interval": each["interval"]} for each in row.effects}
    chances = {each["arm"]: each["positive"] for each in row.effects}
    figures = figures_of(effects.values(), share=share)
    cells = []
    for arm in row.arms:
        effect = effects.get(arm["arm"], {"estimate": None, "interval": None})
        cells.append(
            (
                arm["arm"],
                figures.bare(effect["estimate"], signed=True),
                figures.between(effect["interval"]),
                chance(chances.get(arm["arm"])),
                chance(arm["best"]),
                number(100 * arm["loss"] if share else arm["loss"], 2),
            )
        )
    credible = f"{percent(data['confidence'])} credible"
    header = (named_with_unit(data, row.metric), "effect", credible, "above 0", "best arm", "expected loss")
    return Table(header, tuple(cells))


def chance(probability: float | None) -> str:
    """Return a probability in percent, never quite certain."""
    if probability is None:
        return "–"
    return "> 99.9 %" if probability > 0.9995 else "< 0.1 %" if probability < 0.0005 else percent(probability, 1)
