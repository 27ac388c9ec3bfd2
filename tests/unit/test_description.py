import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import kanab as kb
from kanab.description import covariate_values, metric_values
from kanab.errors import ArgumentError
from kanab.fields import described


def test_a_name_stands_for_the_value_with_its_defaults() -> None:
    assert metric_values(["bought", kb.Ratio("revenue", "orders")]) == [
        kb.Mean("bought"),
        kb.Ratio("revenue", "orders"),
    ]
    assert covariate_values("tier", "adjust") == [kb.Covariate("tier")]


def test_values_are_equal_however_they_are_written() -> None:
    assert kb.Mean("spend", bounds=[0, 500], margin="2%") == kb.Mean("spend", bounds=(0.0, 500.0), margin=(0.02, True))
    assert kb.Mean("spend", bounds=(np.float64(0), np.int64(500))) == kb.Mean("spend", bounds=(0, 500))
    assert kb.Quantile("latency", at=[0.9, 0.5, 0.9]) == kb.Quantile("latency", at=(0.5, 0.9))
    assert kb.Rows(cluster="shop") == kb.Rows(cluster=["shop"])


def test_a_value_with_another_field_is_checked_as_the_first() -> None:
    spend = kb.Mean("spend", bounds=(0, 500), margin="2%")
    assert replace(spend, role="guardrail") == kb.Mean("spend", bounds=(0, 500), margin="2%", role="guardrail")
    with pytest.raises(ArgumentError, match=r"Mean\(\): role must be 'primary' or 'guardrail' or 'secondary'"):
        replace(spend, role="main")


def test_everything_that_is_wrong_with_a_value_is_said_at_once() -> None:
    with pytest.raises(ArgumentError) as refused:
        kb.Mean(bounds=5, missing="drop", winsorise=3)  # type: ignore[call-arg, arg-type]
    assert str(refused.value).rstrip(".").split("; ") == [
        "Mean(): bounds must be two numbers: lower, upper, for example bounds=(0, 500)",
        "missing must be 'exclude' or 'zero', for example missing='exclude'",
        "there is no 'winsorise'",
        "did you mean 'bounds'?",
        "column is missing, for example column='spend'",
    ]


def test_roles_of_values_are_those_of_the_plan() -> None:
    spend = kb.Mean("spend", role="guardrail", better="lower", margin="2%")
    plan = kb.make_plan("variant", [kb.Mean("bought", role="primary"), spend])
    experiment = plan.experiment()
    assert (experiment.primary, experiment.guardrails, experiment.lower_is_better) == (
        ("bought",),
        ("spend",),
        ("spend",),
    )
    assert experiment.non_inferiority == {"spend": (0.02, True)}


def test_every_field_says_what_it_is_for_and_every_example_can_be_read() -> None:
    for cls in (kb.Mean, kb.Ratio, kb.Quantile, kb.Covariate, kb.Number, kb.Rows, kb.Reading):
        for field in described(cls).values():
            assert field.setting.help.endswith("."), field.name
            is_code = field.name in ("looks", "margins", "prior")
            if field.setting.example is not None and not is_code:
                field.read(field.setting.example)


def test_descriptions_compute_nothing() -> None:
    code = "import sys, kanab.description; print({'numpy', 'scipy', 'click'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
