"""kb.fit: the same fit of a tally and of the release that it is in."""

import numpy as np
import pytest

import kanab as kb
from kanab.datasets import shop_rows
from kanab.errors import AnalysisError, PrivacyError

ROWS = shop_rows(4000)
COUNTED = kb.count(ROWS, arm="variant", metrics=["bought", "spend"], segments=["device", "tier"])
RELEASE = kb.release(COUNTED)


def test_a_release_is_fitted_by_its_table_of_what_the_formula_names():
    table = RELEASE.tables["variant/device"]
    fitted = kb.fit(RELEASE, "arm * device", "bought")
    assert np.array_equal(fitted.b, kb.stats.fit(table, "arm * device", "bought").b)
    assert np.array_equal(fitted.se, kb.fit(table, "variant * device", "bought").se)


def test_without_covariates_the_smallest_table_is_taken():
    assert kb.fit(RELEASE, "arm", "spend", experiment="variant").n == 4000


def test_a_cross_that_no_table_holds_is_refused_with_the_tables_that_there_are():
    with pytest.raises(AnalysisError, match=r"crosses what the formula names\. Its tables: variant/device"):
        kb.fit(RELEASE, "arm + device + country", "bought")


def test_what_was_counted_but_not_released_is_refused():
    for source in (COUNTED, ROWS):
        with pytest.raises(PrivacyError, match=r"only a Tally or a Release can be fitted\. Call release\(\)"):
            kb.fit(source, "arm", "bought")
