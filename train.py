"""Run a sweep: python train.py -m precision=fp32,amp ckpt=on,off gpus=1,4,8

The config is under conf/; `python train.py --help` lists it. At the end the comparison of all runs
is printed, and written to the sweep's directory with a report for the browser.
"""

import sys
from pathlib import Path

CANCELLED = 130


def report(sweep_dir: Path) -> None:
    """Print the comparison and write it; what cannot be written is said, the runs stand."""
    # Imported only once there is something to compare.
    from analysis.html import write_page
    from analysis.report import TABLES_DIR, Report

    found = Report.of([sweep_dir])
    unwritten = None
    try:
        found.write(sweep_dir / TABLES_DIR)
    except OSError as error:
        unwritten = error
    print(found.text())
    try:
        print(f"report: {write_page(found, sweep_dir)}")
    except OSError as error:
        unwritten = unwritten or error
    if unwritten is not None:
        print(
            f"{unwritten.filename or sweep_dir}: cannot be written: {unwritten.strerror}\n"
            f"  -> put that right, then: python -m analysis report {sweep_dir}",
            file=sys.stderr,
        )


def main() -> int:
    sweep_dir = None
    try:
        from sweeper import cli  # takes a moment, in which a person may press Ctrl-C

        outcome = cli.run(sys.argv[1:], config_dir=Path(__file__).parent / "conf")
        sweep_dir = outcome.sweep_dir
        if sweep_dir is not None:
            report(sweep_dir)
        return outcome.exit_code
    except KeyboardInterrupt:
        if sweep_dir is not None:
            remedy = f"python -m analysis report {sweep_dir}"
            print(f"no report; make it with: {remedy}", file=sys.stderr)
        return CANCELLED


if __name__ == "__main__":
    sys.exit(main())
