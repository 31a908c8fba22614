"""Claims as data: what is said, and the range within which it would hold.

`docs/claims.md` describes the file. A claim is of one of four shapes:

    change   `metric` of `variant` against `baseline`, all else equal
    figure   `metric` of every run that `where` selects
    fits     whether the runs that `where` selects train within so much memory
    trend    whether a figure grows `along` a key, all else equal
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from analysis.evidence import CHANGES, RUN_FIGURES, as_number
from sweeper.errors import UserError, nearest

DEFAULT_FILE = Path(__file__).parent / "claims.yaml"

Shape = Literal["change", "figure", "fits", "trend"]

# How many of the configurations a range must hold for.
Scope = Literal["all", "most", "some"]
_SCOPES: dict[str, Scope] = {"all": "all", "most": "most", "some": "some"}

_KEYS = (
    "id",
    "says",
    "source",
    "metric",
    "baseline",
    "variant",
    "where",
    "range",
    "at_least",
    "at_most",
    "configurations",
    "fits",
    "trend",
    "along",
)


@dataclass(frozen=True)
class Claim:
    """One claim; `low` and `high` are the ends of its range, None where it is open.

    Attributes:
        metrics: the figure; of a trend several, of which the first that was measured counts.
        along: of a trend, the keys of which the first that tells runs apart counts.
    """

    id: str
    says: str
    source: str
    shape: Shape
    metrics: tuple[str, ...] = ()
    baseline: Mapping[str, Any] = field(default_factory=dict)
    variant: Mapping[str, Any] = field(default_factory=dict)
    where: Mapping[str, Any] = field(default_factory=dict)
    low: float | None = None
    high: float | None = None
    scope: Scope = "all"
    gib: float | None = None
    machine: str | None = None
    along: tuple[str, ...] = ()

    @property
    def metric(self) -> str:
        """The figure it is about; "" of what fits."""
        return self.metrics[0] if self.metrics else ""

    @property
    def range_text(self) -> str:
        """`35 to 45 %`, `at least 1 in most configurations`, `fits 24 GiB`, `grows with ...`."""
        if self.shape == "fits":
            return f"fits {self.gib:g} GiB"
        if self.shape == "trend":
            return f"grows with {' or '.join(self.along)}"
        scope = "" if self.scope == "all" else f" in {self.scope} configurations"
        return f"{self._ends_text}{scope}"

    @property
    def _ends_text(self) -> str:
        unit = " %" if self.metric.endswith("_percent") else ""
        if self.low is None or self.high is None:
            end = self.low if self.high is None else self.high
            return f"{'at least' if self.high is None else 'at most'} {end:g}{unit}"
        if self.low == self.high:
            return f"{self.low:g}{unit}"
        return f"{self.low:g} to {self.high:g}{unit}"


def _wrong(path: Path, number: int, problem: str) -> UserError:
    return UserError(f"{path} claim {number}", problem, "see docs/claims.md")


def _range(entry: Mapping[str, Any]) -> tuple[float | None, float | None]:
    low, high = entry.get("at_least"), entry.get("at_most")
    if "range" in entry:
        low, high = entry["range"]
    for end in (low, high):
        if end is not None and as_number(end) is None:
            raise ValueError(f"{end!r} is not a number")
    low, high = (None if end is None else as_number(end) for end in (low, high))
    if low is None and high is None:
        raise ValueError("it has no range: give range, at_least or at_most")
    if low is not None and high is not None and low > high:
        raise ValueError(f"its range {low:g} to {high:g} is empty")
    return low, high


def _shape(entry: Mapping[str, Any]) -> Shape:
    if "fits" in entry:
        return "fits"
    if "trend" in entry:
        return "trend"
    return "change" if "baseline" in entry or "variant" in entry else "figure"


def _checked(names: Mapping[str, Any], metric: Any) -> str:
    if metric in names:
        return str(metric)
    near = nearest(str(metric), names)
    hint = f"; did you mean {near}?" if near else f"; use one of {', '.join(names)}"
    raise ValueError(f"{metric!r} cannot be measured here{hint}")


def _several(value: Any) -> list[Any]:
    found = value if isinstance(value, list) else [value]
    if not found:
        raise ValueError("trend and along need a name each")
    return found


def _claim(entry: Mapping[str, Any]) -> Claim:
    """Raises ValueError, TypeError or KeyError for what is wrong with it."""
    for key in entry:
        if key not in _KEYS:
            raise ValueError(f"unknown key {key!r}; known are {', '.join(_KEYS)}")
    shape = _shape(entry)
    common: dict[str, Any] = {
        "id": str(entry["id"]),
        "says": str(entry.get("says", entry["id"])),
        "source": str(entry.get("source", "")),
        "shape": shape,
    }
    for key in ("baseline", "variant", "where"):
        value = entry.get(key) or {}
        if not isinstance(value, Mapping):
            raise TypeError(f"{key} is not a list of keys and values")
        common[key] = value
    if shape == "fits":
        machine = entry["fits"].get("machine")
        machine = None if machine is None else str(machine)
        return Claim(gib=float(entry["fits"]["gib"]), machine=machine, **common)
    if shape == "trend":
        metrics = tuple(_checked(RUN_FIGURES, name) for name in _several(entry["trend"]))
        along = tuple(str(key) for key in _several(entry["along"]))
        return Claim(metrics=metrics, along=along, **common)
    low, high = _range(entry)
    scope = entry.get("configurations", "all")
    if scope not in _SCOPES:
        raise ValueError(f"configurations is {scope!r}; use one of {', '.join(_SCOPES)}")
    metric = _checked(CHANGES if shape == "change" else RUN_FIGURES, entry.get("metric"))
    if shape == "change" and not (common["baseline"] and common["variant"]):
        raise ValueError("baseline and variant belong together")
    return Claim(metrics=(metric,), low=low, high=high, scope=_SCOPES[scope], **common)


def read_claims(path: Path = DEFAULT_FILE) -> list[Claim]:
    """Read a claims file.

    Raises:
        UserError: it cannot be read, or an entry is wrong; names the entry and what is wrong.
    """
    try:
        entries = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UserError(str(path), f"cannot be read ({error})", "name a claims file") from error
    if not isinstance(entries, list):
        raise UserError(str(path), "is not a list of claims", "see docs/claims.md")
    claims = []
    for number, entry in enumerate(entries, 1):
        if not isinstance(entry, Mapping):
            raise _wrong(path, number, "is not a claim")
        try:
            claims.append(_claim(entry))
        except KeyError as error:
            raise _wrong(path, number, f"lacks {error.args[0]}") from error
        except (ValueError, TypeError) as error:
            raise _wrong(path, number, str(error)) from error
    doubled = {c.id for c in claims if sum(c.id == other.id for other in claims) > 1}
    if doubled:
        raise UserError(
            str(path), f"has {', '.join(sorted(doubled))} twice", "give each its own id"
        )
    return claims
