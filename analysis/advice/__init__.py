"""Advice from the runs' own figures; no rule fires without the figures that it rests on.

A rule is a function from a study to pieces of advice, in a file of its own.
"""

from __future__ import annotations

from collections.abc import Callable

from analysis.advice import memory, practice, scaling, utilization
from analysis.advice.advice import Advice
from analysis.study import Study

# Name of the rules -> the function, in the order in which a report shows them.
RULES: dict[str, Callable[[Study], list[Advice]]] = {
    "memory": memory.advise,
    "utilization": utilization.advise,
    "scaling": scaling.advise,
    "practice": practice.advise,
}


def advise(study: Study) -> list[Advice]:
    """Everything that the rules have to say about these runs."""
    if not len(study.configurations):
        return []
    return [advice for rule in RULES.values() for advice in rule(study)]


def as_text(found: list[Advice]) -> str:
    """Advice for a terminal."""
    if not found:
        return "No advice: the runs show nothing that a rule knows.\n"
    return "\n".join(f"{number}. {advice}\n" for number, advice in enumerate(found, 1))
