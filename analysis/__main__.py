"""`python -m analysis report DIR`: the tables of one sweep or several, again or otherwise."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from analysis.advice import command as advice
from analysis.claims import DEFAULT_FILE, read_claims
from analysis.dashboard import command as dashboard
from analysis.html import write_page
from analysis.question import MIXABLE, Question
from analysis.render import FORMATS, terminal
from analysis.report import FILE_FORMATS, SHOWN, TABLES_DIR, Report, terminal_width
from analysis.sources import read
from analysis.study import Study
from analysis.tables import TABLES
from analysis.tables.claims import table_of
from analysis.testing import test
from sweeper.errors import UserError


def _pairs(words: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for word in words:
        key, sign, value = word.partition("=")
        if not sign or not key:
            raise UserError(word, "is not key=value", "type for example --baseline precision=amp")
        if key in found:
            raise UserError(word, f"is also given as {found[key]}", "state it once")
        found[key] = value
    return found


def _add_sources(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source", nargs="*", help="a sweep's directory, or a CSV file of imported measurements"
    )
    parser.add_argument(
        "--published", action="store_true", help="add the published measurements that come along"
    )
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
        choices=MIXABLE,
        help="what a run and its baseline need not have in common; batch is the global batch",
    )


def _add_report(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("report", help="write the tables of sweeps and print the main one")
    _add_sources(parser)
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
        default=list(SHOWN),
        metavar="TABLE",
        help=f"tables to print: all, or some of {', '.join(TABLES)}",
    )
    parser.add_argument(
        "--output",
        type=Path,
        help=f"directory of the files (default: {TABLES_DIR}/ below the sweep, where it is one)",
    )
    parser.set_defaults(function=_report)


def _question(options: argparse.Namespace) -> Question:
    return Question(_pairs(options.baseline), tuple(options.by), frozenset(options.mix))


def _report(options: argparse.Namespace) -> int:
    report = Report(read(options.source, published=options.published), _question(options))
    names = list(TABLES) if options.show == ["all"] else options.show
    text = report.text(names)
    output = options.output
    if output is None and not options.published and len(options.source) == 1:
        alone = Path(options.source[0])
        output = alone / TABLES_DIR if alone.is_dir() else None
    written = report.write(output, options.format) if output is not None else []
    print(text)
    if output is not None:
        written.append(write_page(report, output.parent if options.output is None else output))
    for path in written:
        print(path)
    if not written:
        print("No files written: name a directory for them with --output")
    return 0


def _add_check(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("check", help="test claims; exit code 1 where one does not hold")
    _add_sources(parser)
    parser.add_argument(
        "--claims",
        type=Path,
        default=DEFAULT_FILE,
        help="file of claims (default: those of the source documents)",
    )
    parser.set_defaults(function=_check)


def _check(options: argparse.Namespace) -> int:
    claims = read_claims(options.claims)
    study = Study(read(options.source, published=options.published), _question(options))
    outcomes = test(study, claims)
    print(terminal(table_of(outcomes, study), width=terminal_width(), rows=len(outcomes)))
    failed = sorted({o.claim.id for o in outcomes if o.verdict == "does not hold"})
    if failed:
        print(f"does not hold: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit codes: 0 done; 1 a claim does not hold; 2 the command cannot be carried out."""
    parser = argparse.ArgumentParser(prog="python -m analysis", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    _add_report(commands)
    _add_check(commands)
    advice.add(commands, _add_sources, _question)
    dashboard.add(commands)
    options = parser.parse_args(arguments)
    try:
        return int(options.function(options))
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


if __name__ == "__main__":
    sys.exit(main())
