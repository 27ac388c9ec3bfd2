"""Releases that somebody might have thought safe, and that the attacker must break. All people are made up.

No gate was asked: tables are counted as they are. ``known`` is what the attacker knows of people besides.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kanab.description import DEFAULT_K
from kanab.inspection.attack.known_people import KnownPeople
from kanab.inspection.attack.published import AttackedRelease, AttackedTable, Axis
from kanab.privacy.merging import LevelMap
from kanab.tally.cell_arrays import Cells
from kanab.tally.metric import Metric
from kanab.tally.moments import By, Cross, Moments

Ints = NDArray[np.int64]

BOUGHT = Metric("bought", 1, (0.0, 1.0))
SPEND = Metric("spend", 100, (0.0, 500.0))
ORDERS = Metric("orders", 1, (0.0, 20.0))
PRICE = Metric("price", 100, (0.0, 50.0))
GROSS, NET, REVENUE = (Metric(name, 100, (0.0, 500.0)) for name in ("gross", "net", "revenue"))
BEFORE = Metric("spend_before", 100, (0.0, 20_000.0))

COUNTRIES = {"north": ("Norway", "Sweden"), "south": ("Spain", "Italy"), "west": ("Ireland", "France")}


@dataclass(frozen=True, eq=False)
class BadRelease:
    """Releases to break, who the people were (amounts in grid steps), and what the attacker knows of them."""

    releases: tuple[AttackedRelease, ...]
    people: Mapping[str, Any]
    known: KnownPeople | None = None


def tabulate(
    name: str,
    people: Mapping[str, Any],
    sides: Sequence[Axis],
    values: Mapping[Metric, Ints],
    squares: Sequence[By],
) -> AttackedTable:
    """Count people into a table, without any rule."""
    shape = tuple(len(side.levels) for side in sides)
    codes = [
        np.array([side.place(value) for value in np.asarray(people[side.name]).tolist()], dtype=np.int64)
        for side in sides
    ]

    def added(weights: Ints, by: By) -> Cells:
        axes = [i for i, side in enumerate(sides) if side.name in by]
        cells = np.zeros([shape[i] for i in axes], dtype=np.int64)
        np.add.at(cells, tuple(codes[i] for i in axes), weights)
        return cells.astype(object)

    everybody = tuple(side.name for side in sides)
    counts = added(np.ones(len(codes[0]), dtype=np.int64), everybody)
    moments = tuple(
        Moments(
            metric, counts, added(steps, everybody), {by: added(steps**2, by) for by in squares if not metric.binary}
        )
        for metric, steps in values.items()
    )
    return AttackedTable(name, tuple(sides), counts, np.zeros(shape, dtype=bool), moments)


def arm_axis(name: str, arms: str) -> Axis:
    """Return the axis of an experiment whose arms are single letters."""
    return Axis(name, tuple(arms), "arm")


def draw_spend(rng: np.random.Generator, total: int, rate: float) -> Ints:
    """Draw amounts in cents: most people spend nothing."""
    amounts = np.minimum(50_000, (1_000 + rng.gamma(2.0, 1_500.0, total)).astype(np.int64))
    return np.where(rng.random(total) < rate, amounts, 0)


def products_by_arm(table: AttackedTable, arms: Ints, values: dict[Metric, Ints]) -> Cross:
    """Return the products of two metrics by arm, the first axis of a table."""
    (first, y), (second, z) = values.items()

    def added(steps: Ints) -> Cells:
        return np.array([int(steps[arms == arm].sum()) for arm in table.axes[0].levels], dtype=object)

    return Cross((first.name, second.name), table.names[:1], added(np.ones_like(y)), (added(y), added(z)),
                 (added(y**2), added(z**2)), added(y * z))  # fmt: skip


def _first_people(
    name: str, many: int, people: Mapping[str, Any], spend: Ints, *, axes: Sequence[Axis], squares: Sequence[By]
) -> AttackedRelease:
    """Release the table of the people who came first."""
    rows = {key: column[:many] for key, column in people.items()}
    values = {BOUGHT: (spend > 0).astype(np.int64)[:many], SPEND: spend[:many]}
    return AttackedRelease(name, (tabulate("/".join(axis.name for axis in axes), rows, axes, values, squares),))


def _arms(rng: np.random.Generator, total: int, experiments: int) -> dict[str, NDArray[Any]]:
    return {f"experiment {i + 1}": rng.choice(["A", "B"], total) for i in range(experiments)}


def _pairs(arms: Mapping[str, NDArray[Any]], values: Mapping[Metric, Ints]) -> BadRelease:
    tables = tuple(
        tabulate(
            f"{first}/{second}", arms, [arm_axis(first, "AB"), arm_axis(second, "AB")], values, [(first,), (second,)]
        )
        for first, second in combinations(arms, 2)
    )
    people = {**arms, **{metric.name: steps for metric, steps in values.items()}}
    return BadRelease((AttackedRelease("pairs", tables, sensitive=frozenset({"bought"})),), people, KnownPeople(arms))


def _blacked_out(table: AttackedTable, k: int) -> AttackedTable:
    """Black out small classes, and the smallest other class of a town where one would be alone."""
    hidden = np.asarray((table.people > 0) & (table.people < k))
    for town in range(hidden.shape[1]):
        if hidden[:, town].sum() == 1:
            others = [(int(table.people[arm, town]), arm) for arm in range(hidden.shape[0]) if not hidden[arm, town]]
            hidden[min(others)[1], town] = True
    people = np.where(hidden, 0, table.people)
    moments = tuple(Moments(part.metric, people, np.where(hidden, 0, part.sums), {}) for part in table.moments)
    return AttackedTable(table.name, table.axes, people, hidden, moments)


def _crowd(rng: np.random.Generator, total: int, covariates: int) -> dict[str, Any]:
    levels = {f"covariate {i + 1}": rng.choice(["low", "middle", "high"], total) for i in range(covariates)}
    return {"variant": rng.choice(["A", "B"], total), **levels}


def _tables(people: dict[str, Any], values: dict[Metric, Ints]) -> list[AttackedTable]:
    """Cross the variant with every covariate."""
    return [
        tabulate(
            f"variant/{side}", people, [arm_axis("variant", "AB"), Axis(side, ("low", "middle", "high"))], values, []
        )
        for side in people
        if side != "variant"
    ]


def _sensitive(people: dict[str, Any], tables: Sequence[AttackedTable], bought: Ints) -> BadRelease:
    """Return tables of a sensitive metric, whose attacker knows everybody's classes."""
    release = AttackedRelease("sensitive", tuple(tables), sensitive=frozenset({"bought"}))
    return BadRelease((release,), {**people, "bought": bought}, KnownPeople(people))


# ── the bad releases ───────────────────────────────────────────────────────────────────────────


def daily_dashboard() -> BadRelease:
    """Make sixteen days of one growing table; on the last nobody joins, and one person buys again."""
    rng = np.random.default_rng(15)
    newcomers = [1_500, *rng.integers(95, 125, 14).tolist(), 0]
    total = sum(newcomers)
    regions = [f"region {i}" for i in range(1, 10)]
    shares = np.array([24, 18, 15, 12, 10, 8, 6, 4, 3]) / 100
    people = {"variant": rng.choice(["A", "B"], total), "region": rng.choice(regions, total, p=shares)}
    spend = draw_spend(rng, total, 0.12)
    axes = arm_axis("variant", "AB"), Axis("region", tuple(regions))
    releases = []
    for day, here in enumerate(np.cumsum(newcomers).tolist(), 1):
        if day == len(newcomers):
            spend = spend + np.where(np.arange(total) == np.argmax(spend > 0), 2_350, 0)
        releases.append(_first_people(f"day {day}", here, people, spend, axes=axes, squares=[("variant",)]))
    return BadRelease(tuple(releases), {**people, "spend": spend})


def two_cuts() -> BadRelease:
    """Make one table of the first 1,000 people, and one of the first 1,003."""
    rng = np.random.default_rng(3)
    people = {"variant": rng.choice(["A", "B"], 1_003), "tier": rng.choice([1, 2, 3], 1_003)}
    spend = np.where(np.arange(1_003) < 1_000, draw_spend(rng, 1_003, 0.12), rng.integers(1_000, 9_000, 1_003))
    axes = arm_axis("variant", "AB"), Axis("tier", (1, 2, 3))
    squares = [("variant",), ("tier",)]
    releases = tuple(
        _first_people(f"the first {cut:,} people", cut, people, spend, axes=axes, squares=squares)
        for cut in (1_000, 1_003)
    )
    return BadRelease(releases, {**people, "spend": spend})


def suppressed() -> BadRelease:
    """Make a table with small classes blacked out, others to protect them, and linked tables that give totals."""
    rng = np.random.default_rng(22)
    towns = [f"town {i}" for i in range(1, 9)]
    sizes = np.array([22, 20, 18, 14, 11, 5, 4.5, 4]) / 98.5
    total = 700
    people = {"variant": rng.choice(["A", "B", "C"], total), "town": rng.choice(towns, total, p=sizes)}
    spend = draw_spend(rng, total, 0.2)
    values = {BOUGHT: (spend > 0).astype(np.int64), SPEND: spend}
    axes = arm_axis("variant", "ABC"), Axis("town", tuple(towns))
    counties = LevelMap(
        "town", (("north", ("town 1", "town 6")), ("east", ("town 2", "town 7")), ("south", ("town 3", "town 8")),
                 ("west", ("town 4", "town 5"))), {},
    )  # fmt: skip
    full = tabulate("variant/town", people, axes, values, [])
    linked = tabulate("variant/county", people, axes, values, [])
    county = Axis("town", tuple(new for new, _ in counties.groups), "covariate", counties)
    into = [county.place(town) for town in towns]
    tables = (_blacked_out(full, DEFAULT_K), linked.folded(county, into), full.by(("town",)), full.by(("variant",)))
    return BadRelease((AttackedRelease("towns", tables),), {**people, "spend": spend})


def class_squares() -> BadRelease:
    """Make squares in every class, as some analyses would like to have them."""
    rng = np.random.default_rng(6)
    total, shops = 280, [f"shop {i}" for i in range(1, 9)]
    people = {"variant": rng.choice(["A", "B"], total), "shop": rng.choice(shops, total)}
    orders = rng.poisson(0.3, total)
    spend = np.where(orders > 0, rng.integers(500, 2_000, total) * orders, 0)
    spend[rng.integers(0, total, 3)] = 38_000
    axes = arm_axis("variant", "AB"), Axis("shop", tuple(shops))
    table = tabulate("variant/shop", people, axes, {ORDERS: orders, SPEND: spend}, [("variant", "shop")])
    return BadRelease((AttackedRelease("shops", (table,)),), {**people, "orders": orders, "spend": spend})


def paper() -> BadRelease:
    """Make the table of the paper's attack: three people, a sum and a sum of squares."""
    minutes = Metric("minutes", 100, (0.0, 100.0))
    people: dict[str, Any] = {"treatment": ["A"] * 9 + ["B"] * 9, "tier": [1, 2, 3] * 6}
    values = [217, 205, 82, 0, 219, 135, 0, 197, 89, 84, 22, 269, 29, 67, 214, 30, 82, 241]
    axes = arm_axis("treatment", "AB"), Axis("tier", (1, 2, 3))
    table = tabulate("treatment/tier", people, axes, {minutes: np.array(values)}, [("treatment", "tier")])
    return BadRelease((AttackedRelease("paper", (table,), k=3),), {**people, "minutes": np.array(values)})


def pair_scan() -> BadRelease:
    """Make all pairs of thirty experiments on three hundred people."""
    rng = np.random.default_rng(30)
    total = 300
    spend = np.maximum(draw_spend(rng, total, 0.5), rng.integers(0, 300, total))
    return _pairs(_arms(rng, total, 30), {SPEND: spend})


def pair_scan_sparse() -> BadRelease:
    """Make all pairs of twenty-five experiments on a thousand people, of whom few bought."""
    rng = np.random.default_rng(25)
    total = 1_000
    bought = (rng.random(total) < 0.02).astype(np.int64)
    return _pairs(_arms(rng, total, 25), {BOUGHT: bought})


def blind_seal() -> BadRelease:
    """Make the tables of device, system and browser of 1,000 people; systems nearly follow from devices."""
    rng = np.random.default_rng(8)
    total = 1_000
    device = rng.choice(["phone", "desktop"], total, p=[0.6, 0.4])
    system = np.where(
        device == "phone", rng.choice(["iOS", "Android"], total), rng.choice(["Windows", "macOS"], total, p=[0.7, 0.3])
    )
    system[np.flatnonzero(device == "desktop")[0]] = "Android"  # the only person with such a desktop
    apple = np.isin(system, ["iOS", "macOS"])
    browser = np.where(apple, "Safari", rng.choice(["Chrome", "other"], total, p=[0.8, 0.2]))
    people = {"variant": rng.choice(["A", "B"], total), "device": device, "system": system, "browser": browser}
    spend = draw_spend(rng, total, 0.9)
    axes = (
        Axis("device", ("phone", "desktop")),
        Axis("system", ("iOS", "Android", "Windows", "macOS")),
        Axis("browser", ("Safari", "Chrome", "other")),
    )
    tables = tuple(
        tabulate(f"variant/{axis.name}", people, (arm_axis("variant", "AB"), axis), {SPEND: spend}, [("variant",)])
        for axis in axes
    )
    releases = (AttackedRelease("batch", tables),)
    return BadRelease(releases, {**people, "spend": spend}, KnownPeople(people))


def whole_numbers() -> BadRelease:
    """Make three tables of 300 people whose rates run from hardly anybody to nearly all."""
    rng = np.random.default_rng(76)
    total, levels = 300, {"tier": 4, "device": 3, "region": 4}
    known: dict[str, Any] = {"variant": rng.choice(["A", "B"], total)}
    logit = np.zeros(total)
    for covariate, size in levels.items():
        known[covariate] = rng.integers(1, size + 1, total)
        logit = logit + rng.normal(0, 2, size)[known[covariate] - 1]
    bought = (rng.random(total) < 1 / (1 + np.exp(-logit))).astype(np.int64)
    tables = tuple(
        tabulate(
            f"variant/{covariate}",
            known,
            [arm_axis("variant", "AB"), Axis(covariate, tuple(range(1, size + 1)))],
            {BOUGHT: bought},
            [],
        )
        for covariate, size in levels.items()
    )
    return _sensitive(known, tables, bought)


def rare_in_one_arm() -> BadRelease:
    """Make eight tables of a metric that many people of B have, and one person of A."""
    rng = np.random.default_rng(5)
    people = _crowd(rng, 2_000, 8)
    upgraded = ((people["variant"] == "B") & (rng.random(2_000) < 0.3)).astype(np.int64)
    upgraded[np.flatnonzero(people["variant"] == "A")[:1]] = 1
    return _sensitive(people, _tables(people, {BOUGHT: upgraded}), upgraded)


def arms_only() -> BadRelease:
    """Make the arm totals of twenty-five experiments on a thousand people, of whom three bought."""
    rng = np.random.default_rng(26)
    people = {f"experiment {i + 1}": rng.choice(["A", "B"], 1_000) for i in range(25)}
    bought = np.zeros(1_000, dtype=np.int64)
    bought[rng.permutation(1_000)[:3]] = 1
    tables = [tabulate(own, people, [arm_axis(own, "AB")], {BOUGHT: bought}, []) for own in people]
    return _sensitive(people, tables, bought)


def unusual_price() -> BadRelease:
    """Make eight tables of a price that nearly everybody pays, and of whole fees but for one with odd cents."""
    rng = np.random.default_rng(10)
    people = _crowd(rng, 2_000, 8)
    price = np.full(2_000, 999)
    for arm in "AB":
        price[rng.choice(np.flatnonzero(people["variant"] == arm))] = 499
    release = AttackedRelease("prices", tuple(_tables(people, {PRICE: price})))
    return BadRelease((release,), {**people, "price": price}, KnownPeople(people, {"price": price / 100}))


def nested_levels() -> BadRelease:
    """Make tables by region and by country; countries with few people are one level, wherever they are."""
    rng = np.random.default_rng(43)
    total = 1_200
    region = rng.choice([*COUNTRIES], total)
    country = np.array([rng.choice([*COUNTRIES[home], "other"], p=[0.45, 0.42, 0.13]) for home in region])
    variant = rng.choice(["A", "B"], total)
    spend = draw_spend(rng, total, 0.05)
    people = {"variant": variant, "region": region, "country": country}
    values = {BOUGHT: (spend > 0).astype(np.int64), SPEND: spend}
    arms = arm_axis("variant", "AB")
    regions = Axis("region", tuple(COUNTRIES))
    countries = Axis("country", (*(each for inside in COUNTRIES.values() for each in inside), "other"))
    tables = (
        tabulate("variant/region", people, (arms, regions), values, [("variant",)]),
        tabulate("variant/country", people, (arms, countries), values, [("variant",)]),
        tabulate("variant/region/country", people, (arms, regions, countries), {}, []),
    )
    release = AttackedRelease("places", tables, contributors={"spend": "bought"})
    return BadRelease((release,), {**people, "spend": spend})


def two_experiments() -> BadRelease:
    """Make two site-wide experiments; one person came in only one of them."""
    rng = np.random.default_rng(6)
    total = 800
    tier = rng.choice([1, 2, 3], total)
    people = {"layout": rng.choice(["A", "B"], total), "price": rng.choice(["A", "B"], total), "tier": tier}
    spend = draw_spend(rng, total, 0.3)
    spend[-1] = 7_346
    values = {BOUGHT: (spend > 0).astype(np.int64), SPEND: spend}
    tables = []
    for experiment, here in (("layout", total), ("price", total - 1)):
        rows = {key: column[:here] for key, column in people.items()}
        axes = arm_axis(experiment, "AB"), Axis("tier", (1, 2, 3))
        own = {metric: steps[:here] for metric, steps in values.items()}
        tables.append(tabulate(f"{experiment}/tier", rows, axes, own, [(experiment,)]))
    return BadRelease(
        (AttackedRelease("sealed", tuple(tables)),),
        {**people, "spend": spend},
        KnownPeople({**people, "price": [*people["price"][:-1], None]}),
    )


def metric_differences() -> BadRelease:
    """Make two tables of gross and net revenue: in each arm a person or two sent something back."""
    rng = np.random.default_rng(33)
    total, tiers, regions = 3_000, (1, 2, 3, 4), ("east", "north", "south", "west")
    people = {"variant": rng.choice(["A", "B"], total), "tier": rng.choice(tiers, total),
              "region": rng.choice(regions, total)}  # fmt: skip
    gross = draw_spend(rng, total, 0.3)
    back = rng.choice(np.flatnonzero(gross), 3, replace=False)
    net = gross.copy()
    net[back] -= np.array([1_799, gross[back[1]], 2_350])
    values = {GROSS: gross, NET: np.maximum(net, 0)}
    axes = [(arm_axis("variant", "AB"), Axis("tier", tiers)), (arm_axis("variant", "AB"), Axis("region", regions))]
    tables = tuple(tabulate(f"variant/{side[1].name}", people, side, values, [("variant",)]) for side in axes)
    return BadRelease(
        (AttackedRelease("revenue", tables),),
        {**people, "gross": gross, "net": net},
        KnownPeople(people, {"gross": gross / 100, "net": net / 100}),
    )


def products() -> BadRelease:
    """Make a table whose ratio revenue ÷ bought needs their products: one person has revenue and bought nothing."""
    rng = np.random.default_rng(44)
    total = 2_000
    people = {"variant": rng.choice(["A", "B"], total)}
    revenue = draw_spend(rng, total, 0.2)
    bought = (revenue > 0).astype(np.int64)
    revenue[np.flatnonzero((bought == 0) & (people["variant"] == "B"))[0]] = 17_346
    values = {REVENUE: revenue, BOUGHT: bought}
    table = tabulate("variant", people, [arm_axis("variant", "AB")], values, [("variant",)])
    release = AttackedRelease(
        "revenue per buyer", (replace(table, crosses=(products_by_arm(table, people["variant"], values),)),)
    )
    known = KnownPeople(people, {"revenue": revenue / 100, "bought": bought.astype(float)})
    return BadRelease((release,), {**people, "revenue": revenue, "bought": bought}, known)


def outlier_in_number() -> BadRelease:
    """Make a table with spend and what people spent before, and the products that a regression needs."""
    rng = np.random.default_rng(55)
    total, tiers = 3_000, (1, 2, 3)
    people = {"variant": rng.choice(["A", "B"], total), "tier": rng.choice(tiers, total)}
    before, spend = draw_spend(rng, total, 0.6), draw_spend(rng, total, 0.3)
    before[1_234], spend[1_234] = 1_950_000, 47_315
    values = {BEFORE: before, SPEND: spend}
    table = tabulate("variant/tier", people, [arm_axis("variant", "AB"), Axis("tier", tiers)], values, [("variant",)])
    crosses = (products_by_arm(table, people["variant"], values),)
    release = AttackedRelease("spend, adjusted for spend_before", (replace(table, crosses=crosses),))
    known = KnownPeople(people, {"spend_before": before / 100})
    return BadRelease((release,), {**people, "spend_before": before, "spend": spend}, known)


BAD_RELEASES: Mapping[str, Callable[[], BadRelease]] = {
    made.__name__: cache(made)
    for made in (
        daily_dashboard, two_cuts, suppressed, class_squares, paper, pair_scan, pair_scan_sparse,
        blind_seal, whole_numbers, rare_in_one_arm, arms_only, unusual_price, nested_levels, two_experiments,
        metric_differences, products, outlier_in_number,
    )
}  # fmt: skip
"""Every bad release by its name."""
