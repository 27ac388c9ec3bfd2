"""deploy/chart as Kubernetes gets it: by helm where it is installed, else by the few rules that the chart uses."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).parents[2] / "deploy" / "chart"
_ACTION = re.compile(r"\s*\{\{-(.*?)\}\}|\{\{(?!-)(.*?)\}\}", re.DOTALL)


class ChartError(Exception):
    """A template says that a value is missing, or uses what is not known here."""


def rendered(values: dict[str, Any], folder: Path) -> list[dict[str, Any]]:
    """Return the documents of the chart with some values; its release is called shop."""
    helm = shutil.which("helm")
    if helm is None:
        texts = [render(path.read_text(), merged(values)) for path in sorted((CHART / "templates").iterdir())]
    else:
        file = folder / "values.json"
        file.write_text(json.dumps(values))
        command = [helm, "template", "shop", str(CHART), "--values", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ChartError(done.stderr)
        texts = [done.stdout]
    return [document for text in texts for document in yaml.safe_load_all(text) if document]


def merged(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values of the chart with some replaced, whole tables of them value by value."""
    own = yaml.safe_load((CHART / "values.yaml").read_text())
    return own | {name: own[name] | new if isinstance(new, dict) else new for name, new in values.items()}


def render(text: str, values: dict[str, Any]) -> str:
    """Render a template: values, pipes of the functions below, and `if` without `else`."""
    out, taken, place = "", [True], 0
    for match in _ACTION.finditer(text):
        out += text[place : match.start()] if all(taken) else ""
        place = match.end()
        action = (match[1] or match[2]).strip()
        if action.startswith("if "):
            taken.append(not all(taken) or bool(evaluate(action[3:], values)))
        elif action == "end":
            taken.pop()
        elif all(taken):
            out += str(evaluate(action, values))
    assert taken == [True]
    return out + text[place:]


def evaluate(action: str, values: dict[str, Any]) -> Any:
    """Return what an action says."""
    inner = re.search(r"\(([^()]*)\)", action)
    if inner is not None:
        return evaluate(action.replace(inner[0], json.dumps(evaluate(inner[1], values))), values)
    piped: list[Any] = []
    for step in action.split(" | "):
        words = shlex.split(step)
        arguments = [_value(word, values) for word in (words[1:] if words[0] in _FUNCTIONS else words)]
        piped = [_FUNCTIONS[words[0]](*arguments, *piped)] if words[0] in _FUNCTIONS else arguments
    (answer,) = piped
    return answer


def _value(word: str, values: dict[str, Any]) -> Any:
    if word == ".Release.Name":
        return "shop"
    if word.startswith(".Values."):
        found: Any = values
        for name in word.split(".")[2:]:
            found = found[name]
        return found
    return int(word) if word.isdigit() else word


def _required(sentence: str, value: Any) -> Any:
    if not value:
        raise ChartError(sentence)
    return value


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "quote": lambda value: json.dumps(str(value)),
    "toYaml": lambda value: yaml.safe_dump(value).rstrip(),
    "nindent": lambda width, text: "".join(f"\n{' ' * width}{line}" for line in text.splitlines()),
    "sha256sum": lambda text: hashlib.sha256(text.encode()).hexdigest(),
    "int": int,
    "gt": lambda one, other: one > other,
    "required": _required,
}
