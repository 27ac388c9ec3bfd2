"""Write what an installation of kanab[all] holds here as CycloneDX JSON: python .ci/sbom.py FILE."""

from __future__ import annotations

import json
import sys
import uuid
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def resolved(own: str, extras: set[str]) -> dict[str, set[str]]:
    """Return everything that a distribution needs with its extras on this platform, each with what it needs itself."""
    edges: dict[str, set[str]] = {}
    left, seen = [(own, frozenset(extras))], set()
    while left:
        name, wanted = left.pop()
        if (name, wanted) in seen:
            continue
        seen.add((name, wanted))
        edges.setdefault(name, set())
        for need in map(Requirement, distribution(name).requires or ()):
            if need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in {"", *wanted}):
                other = canonicalize_name(need.name)
                edges[name] |= {other} - {name}
                left.append((other, frozenset(need.extras)))
    return edges


def component(name: str, kind: str = "library") -> dict[str, Any]:
    """Return a distribution as CycloneDX lists it."""
    metadata = distribution(name).metadata
    purl = f"pkg:pypi/{name}@{metadata['Version']}"
    entry = {"type": kind, "bom-ref": purl, "name": name, "version": metadata["Version"], "purl": purl}
    if licence := metadata.get("License-Expression"):
        entry["licenses"] = [{"expression": licence}]
    return entry


edges = resolved("kanab", {"all"})
parts = {name: component(name) for name in sorted(edges) if name != "kanab"}
refs = {name: part["bom-ref"] for name, part in parts.items()} | {"kanab": component("kanab")["bom-ref"]}
bom: dict[str, Any] = {
    "bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
    "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, ' '.join(sorted(refs.values())))}",
    "metadata": {"component": component("kanab", "application")},
    "components": list(parts.values()),
    "dependencies": [
        {"ref": refs[name], "dependsOn": sorted(refs[other] for other in edges[name])} for name in sorted(edges)
    ],
}  # fmt: skip
Path(sys.argv[1]).write_text(json.dumps(bom, indent=1) + "\n", encoding="utf-8")
print(f"{sys.argv[1]}: kanab {bom['metadata']['component']['version']} and {len(parts)} packages")
