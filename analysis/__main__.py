"""`python -m analysis report DIR`: the tables of one sweep or several, again or otherwise."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from analysis.render import FORMATS
from analysis.report import FILE_FORMATS, TABLES_DIR, Report
from analysis.study import CONTEXT, Question
from analysis.tables import TABLES
from sweeper.errors import UserError


def _pairs(words: Sequence[str]) -> dict[str, str]:
    found = {}
    for word in words:
        key, sign, value = word.partition("=")
        if not sign or not key:
            raise UserError(word, "is not key=value", "type for example --baseline precision=amp")
        found[key] = value
    return found


def _add_report(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("report", help="write the tables of sweeps and print the main one")
    parser.add_argument("directory", nargs="+", type=Path, help="a sweep's directory")
    parser.add_argument(
        "--baseline",
        nargs="+",
        default=[],
        metavar="KEY=VALUE",
        help="compare with the runs that have these values; "
        "where not given: precision=fp32 ckpt=off accum=1 gpus=1",
    )
    parser.add_argument(
        "--by", nargs="+", default=[], metavar="KEY", help="show these keys first, varying or not"
    )
    parser.add_argument(
        "--mix",
        nargs="+",
        default=[],
        choices=CONTEXT,
        help="what a run and its baseline need not have in common",
    )
    parser.add_argument(
        "--format",
        nargs="+",
        default=list(FILE_FORMATS),
        choices=list(FORMATS),
        help="formats of the files (default: %(default)s)",
    )
    parser.add_argument(
        "--show",
        nargs="+",
        default=["runs", "left_out"],
        metavar="TABLE",
        help=f"tables to print: all, or some of {', '.join(TABLES)}",
    )
    parser.add_argument(
        "--output",
        type=Path,
        help=f"directory of the files (default: {TABLES_DIR}/ below the sweep, where it is one)",
    )
    parser.set_defaults(function=_report)


def _report(options: argparse.Namespace) -> int:
    question = Question(_pairs(options.baseline), tuple(options.by), frozenset(options.mix))
    report = Report.of(options.directory, question)
    names = list(TABLES) if options.show == ["all"] else options.show
    print(report.text(names))
    output = options.output
    if output is None and len(options.directory) == 1:
        output = options.directory[0] / TABLES_DIR
    if output is None:
        print("No files written: name a directory for the tables of several sweeps with --output")
        return 0
    for path in report.write(output, options.format):
        print(path)
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit codes: 0 done; 1 a claim fails; 2 the command cannot be carried out."""
    parser = argparse.ArgumentParser(prog="python -m analysis", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    _add_report(commands)
    options = parser.parse_args(arguments)
    try:
        return int(options.function(options))
    except UserError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
