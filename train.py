"""Run a sweep: python train.py -m precision=fp32,amp ckpt=on,off gpus=1,4,8

The config is under conf/; `python train.py --help` lists it. At the end the comparison of all runs
is printed, and written to the sweep's directory with a report for the browser.
"""

import sys
from pathlib import Path

from sweeper import cli


def main() -> int:
    outcome = cli.run(sys.argv[1:], config_dir=Path(__file__).parent / "conf")
    if outcome.sweep_dir is not None:
        # Imported only once there is something to compare.
        from analysis.html import write_page
        from analysis.report import TABLES_DIR, Report

        report = Report.of([outcome.sweep_dir])
        report.write(outcome.sweep_dir / TABLES_DIR)
        print(report.text())
        print(f"report: {write_page(report, outcome.sweep_dir)}")
    return outcome.exit_code


if __name__ == "__main__":
    sys.exit(main())
