"""Until every group holds enough people."""

import numpy as np
import pytest
from scipy import stats

from kanab.errors import AnalysisError
from kanab.planning.needed_people import enough_people


def test_it_is_the_fewest_by_the_added_binomial_chances():
    shares = np.array([0.6, 0.3, 0.1])
    n = enough_people([(shares, 10)], 0.9)
    assert stats.binom.cdf(9, n, shares).sum() <= 0.1 < stats.binom.cdf(9, n - 1, shares).sum()


def test_groups_may_need_different_numbers():
    both = enough_people([(np.array([0.5, 0.5]), 10), (np.array([0.2]), 30)])
    assert both >= max(enough_people([(np.array([0.5, 0.5]), 10)]), enough_people([(np.array([0.2]), 30)]))


def test_everybody_may_have_a_floor():
    assert enough_people([(np.array([1.0]), 1)], least=40) == 40
    assert enough_people([(np.array([1.0]), 7)]) == 7


def test_a_share_of_nothing_is_refused():
    with pytest.raises(AnalysisError, match="positive share"):
        enough_people([(np.array([0.0, 1.0]), 10)])
    with pytest.raises(AnalysisError, match="next to no share"):
        enough_people([(np.array([1e-14, 1.0]), 10)])
