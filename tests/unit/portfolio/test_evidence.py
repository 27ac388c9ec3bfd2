"""E-values and e-BH: that a stake does not grow by itself, and that few discoveries are false."""

import math

import numpy as np
import pytest
from scipy import integrate, stats

from kanab.errors import AnalysisError
from kanab.portfolio import e_bh
from kanab.stats.multiplicity import correct
from kanab.stats.sequential import log_evidence


@pytest.mark.parametrize("sides", [1, 2])
@pytest.mark.parametrize("share", [0.1, 1.0, 30.0])
def test_evidence_of_nothing_is_1_on_average(sides, share):
    def stake(z):
        return math.exp(log_evidence(z, share, 0.05, sides) + stats.norm.logpdf(z))

    most = 12 * math.sqrt(1 + 9 * share)  # the mixture of means has this much room
    assert integrate.quad(stake, -most, most, points=[0], limit=800)[0] == pytest.approx(1, rel=1e-6)


def by_definition(e, alpha):
    """Return the discoveries of e-BH as its authors write them."""
    order = sorted(range(len(e)), key=lambda place: -e[place])
    most = max((k for k in range(1, len(e) + 1) if e[order[k - 1]] >= len(e) / (k * alpha)), default=0)
    return set(order[:most])


def test_discoveries_are_those_of_the_definition():
    rng = np.random.default_rng(2)
    for _ in range(200):
        e = np.exp(rng.exponential(2, 12)).tolist()
        q = e_bh([math.log(value) for value in e])
        for alpha in (0.01, 0.05, 0.2):
            assert {place for place, value in enumerate(q) if value <= alpha} == by_definition(e, alpha)


def test_no_evidence_is_no_discovery():
    assert e_bh([]) == []
    assert e_bh([-3.0, 0.0]) == [1.0, 1.0]
    assert e_bh([math.inf, 0.0])[0] == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.95])
def test_the_share_of_false_discoveries_is_bounded_under_dependence_and_stopping(correlation):
    # Thirty experiments share their noise, and each is stopped at the first of twenty looks at which |z| is above 3.
    rng = np.random.default_rng(7)
    tests, real, looks = 30, 6, 20
    times = np.arange(1, looks + 1) / looks
    shares, power = {"e": [], "p": []}, []
    for _ in range(250):
        common, own = rng.normal(size=looks), rng.normal(size=(tests, looks))
        walk = np.cumsum(math.sqrt(correlation) * common + math.sqrt(1 - correlation) * own, axis=1) / math.sqrt(looks)
        walk[:real] += 6 * times
        z = walk / np.sqrt(times)
        clear = np.abs(z) > 3
        stop = np.where(clear.any(axis=1), clear.argmax(axis=1), looks - 1)
        seen = [(float(z[i, k]), float(times[k])) for i, k in enumerate(stop)]
        by_e = e_bh([log_evidence(value, time, 0.05, 2) for value, time in seen])
        by_p = correct([2 * float(stats.norm.sf(abs(value))) for value, _ in seen], "bh")
        for kind, q in (("e", by_e), ("p", by_p)):
            chosen = [place for place, value in enumerate(q) if value <= 0.1]
            shares[kind].append(sum(place >= real for place in chosen) / max(1, len(chosen)))
        at_the_end = e_bh([log_evidence(float(value), 1.0, 0.05, 2) for value in z[:, -1]])
        power.append(sum(value <= 0.1 for value in at_the_end[:real]) / real)
    assert np.mean(shares["e"]) <= 0.1
    if not correlation:
        assert np.mean(shares["p"]) > 0.11  # ordinary p-values, stopped when they look clear, promise too much
    assert np.mean(power) > 0.6


def test_what_is_no_number_is_refused():
    with pytest.raises(AnalysisError, match="evidence must be numbers"):
        e_bh([1.0, math.nan])
