"""`python -m analysis advice DIR`: what the runs' own figures advise."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from analysis.advice import advise, as_text
from analysis.question import Question
from analysis.sources import read
from analysis.study import Study


def add(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    add_sources: Callable[[argparse.ArgumentParser], None],
    question: Callable[[argparse.Namespace], Question],
) -> None:
    """Add the subcommand.

    Args:
        add_sources: adds the arguments that name the runs and the question.
        question: the question that these arguments ask.
    """
    parser = commands.add_parser("advice", help="what the runs' own figures advise")
    add_sources(parser)

    def run(options: argparse.Namespace) -> int:
        study = Study(read(options.source, published=options.published), question(options))
        print(as_text(advise(study)), end="")
        return 0

    parser.set_defaults(function=run)
