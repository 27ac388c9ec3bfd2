import pytest

from kanab.errors import PlanError
from kanab.plan.metric_windows import MetricWindow, metric_window, windows_by_column


@pytest.mark.parametrize(
    ("name", "window"),
    [
        ("spend@7d..14d", MetricWindow("spend", 7 * 86_400, 14 * 86_400)),
        ("visit@0m..36h", MetricWindow("visit", 0, 36 * 3_600)),
        ("a@b@1w..2w", MetricWindow("a@b", 604_800, 2 * 604_800)),
    ],
)
def test_a_name_says_which_part_of_the_time_counts(name: str, window: MetricWindow) -> None:
    assert metric_window(name) == window


@pytest.mark.parametrize("name", ["spend", "spend@7", "spend@7d", "@7d..14d", "spend@7d..14", "spend@7d...14d"])
def test_other_names_are_names(name: str) -> None:
    assert metric_window(name) is None


@pytest.mark.parametrize("name", ["spend@7d..7d", "spend@2w..7d"])
def test_a_window_without_length_is_refused(name: str) -> None:
    with pytest.raises(PlanError, match=f"the window of '{name}' is empty. Write the earlier time first"):
        metric_window(name)


def test_several_windows_of_a_column_stand_in_the_order_of_time() -> None:
    names = ["spend@10d..14d", "spend@9d..14d", "spend", "visit@1d..2d", "spend@9d..10d"]
    assert windows_by_column(names) == {"spend": ["spend@9d..10d", "spend@9d..14d", "spend@10d..14d"]}
    assert metric_window("spend@12h..36h").days == (0.5, 1.5)  # type: ignore[union-attr]
