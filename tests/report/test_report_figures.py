"""Figures: what they show, what they refuse, and that they can be embedded."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from analysis_records import MIB, plain, record, write_sweep
from report_sweeps import full_grid, whole_sweep

from analysis import figures
from analysis.figures import batch, loss, tradeoff
from analysis.figures.figure import Figure, Omitted
from analysis.figures.labels import common_label
from analysis.load import from_records, load
from analysis.study import Study


def _study(*records: object) -> Study:
    return Study(from_records((f"r{i}", plain(one)) for i, one in enumerate(records)))  # type: ignore[arg-type]  # records


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    return Study(load([whole_sweep(tmp_path_factory.mktemp("sweeps") / "s")], workers=1))


@pytest.fixture(scope="module")
def drawn(study: Study) -> dict[str, Figure]:
    found = figures.draw_all(study)
    assert all(isinstance(one, Figure) for one in found), found
    return {one.name: one for one in found if isinstance(one, Figure)}


def test_every_figure_is_drawn_where_the_runs_have_what_it_needs(drawn: dict[str, Figure]) -> None:
    assert list(drawn) == list(figures.FIGURES)


def test_every_figure_is_a_well_formed_svg_without_outside_references(
    drawn: dict[str, Figure],
) -> None:
    for figure in drawn.values():
        ElementTree.fromstring(figure.svg)
        assert not re.search(r'(href|src)="(?!#)', figure.svg)
        assert "url(http" not in figure.svg


def test_ids_are_unique_over_all_figures_of_a_page(drawn: dict[str, Figure]) -> None:
    ids = [found for one in drawn.values() for found in re.findall(r'\bid="([^"]+)"', one.svg)]
    assert len(ids) == len(set(ids))
    for figure in drawn.values():
        own = set(re.findall(r'\bid="([^"]+)"', figure.svg))
        referred = re.findall(r'(?:url\(#|href="#)([^")]+)', figure.svg)
        assert set(referred) <= own


def test_the_same_runs_give_the_same_bytes(study: Study, drawn: dict[str, Figure]) -> None:
    again = figures.draw("tradeoff", study)
    assert isinstance(again, Figure)
    assert again.svg == drawn["tradeoff"].svg


def test_captions_name_machine_and_baseline(drawn: dict[str, Figure]) -> None:
    for figure in drawn.values():
        assert "A100" in figure.caption
    for name in ("memory", "tradeoff", "loss"):
        assert "Baseline: precision=fp32 ckpt=off accum=1 gpus=1" in drawn[name].caption


def test_axes_carry_units(drawn: dict[str, Figure]) -> None:
    words = {
        "memory": "peak memory of one device (MiB)",
        "tradeoff": "throughput (samples per s)",
        "loss": "optimizer step",
        "scaling": "speed-up over 1 GPU (times)",
        "utilization": "time since the samples began (s)",
        "batch": "micro-batch (samples per device and backward pass)",
    }
    for name, label in words.items():
        assert label in drawn[name].svg


def test_the_pareto_front_is_what_nothing_beats_in_both() -> None:
    memory = np.array([1.0, 2.0, 3.0, 2.5, 1.0])
    rate = np.array([10.0, 20.0, 30.0, 15.0, 10.0])
    # (2.5, 15) needs more memory than (2, 20) and is slower; the two equal points are both on it.
    assert tradeoff.front(memory, rate).tolist() == [True, True, True, False, True]


def test_the_front_is_labelled(drawn: dict[str, Figure]) -> None:
    # amp with ckpt on 2 GPUs holds least, amp without is fastest.
    assert "amp ckpt=on gpus=2" in drawn["tradeoff"].svg
    assert "amp ckpt=off gpus=2" in drawn["tradeoff"].svg
    assert "not named" not in drawn["tradeoff"].caption


def test_machines_never_share_a_front() -> None:
    study = _study(
        *(record(ckpt=c, device_name="A100") for c in ("off", "on")),
        *(record(ckpt=c, device_name="H100", memory_mib=50) for c in ("off", "on")),
    )
    found = figures.draw("tradeoff", study)
    assert isinstance(found, Figure)
    assert found.svg.count(">Pareto front<") == 2


def test_a_run_out_of_memory_is_shown_as_that(drawn: dict[str, Figure]) -> None:
    assert ">oom<" in drawn["batch"].svg
    assert "limit 256.0 MiB" in drawn["batch"].svg
    assert "oom<" in drawn["memory"].svg


def test_a_line_of_batches_differs_in_batch_alone() -> None:
    study = _study(record(batch=32), record(batch=64), record(batch=64, precision="amp"))
    assert [len(rows) for rows in batch.lines(study)] == [2]


def test_without_a_gpu_the_processor_is_shown(tmp_path: Path) -> None:
    sweep = write_sweep(tmp_path / "s", [record()])
    rows = "elapsed_s,gpu_percent,cpu_percent\n0.5,,80\n1.0,,90\n1.5,,\n"
    (sweep / "run000" / "utilization.csv").write_text(rows)
    found = figures.draw("utilization", Study(load([sweep], workers=1)))
    assert isinstance(found, Figure)
    assert "cores busy (%)" in found.svg
    assert "(mean 85 %)" in found.svg


def test_loss_curves_that_coincide_are_one_line(study: Study) -> None:
    curves = loss.read_curves(study)
    groups = loss.group_alike(curves)
    assert sum(map(len, groups)) == len(curves)
    assert len(groups) < len(curves)


def test_loss_is_compared_with_the_baseline_step_by_step(tmp_path: Path) -> None:
    sweep = write_sweep(tmp_path / "s", [record(), record(precision="amp")])
    for name, losses in (("run000", (2.0, 1.0)), ("run001", (2.0, 1.1))):
        rows = "".join(f"{step},{value}\n" for step, value in enumerate(losses))
        (sweep / name / "steps.csv").write_text("step,loss\n" + rows)
    study = Study(load([sweep], workers=1))
    (found,) = loss.deviations(study, loss.read_curves(study))
    assert found.loss.tolist() == pytest.approx([0.0, 10.0])


@pytest.mark.parametrize(
    "text", ["", "step,loss\n", "step\n1\n", "\x00\xff", "step,loss\na,b\nc,d\n"]
)
def test_a_broken_series_is_no_series(tmp_path: Path, text: str) -> None:
    sweep = write_sweep(tmp_path / "s", [record(), record(precision="amp")])
    (sweep / "run000" / "steps.csv").write_text(text)
    found = figures.draw("loss", Study(load([sweep], workers=1)))
    assert isinstance(found, Omitted)
    assert "steps.csv" in found.reason


def test_what_cannot_be_drawn_says_why() -> None:
    found = {one.name: one for one in figures.draw_all(_study(record(memory_mib=None)))}
    reasons = {name: one.reason for name, one in found.items() if isinstance(one, Omitted)}
    assert set(reasons) == set(figures.FIGURES)
    assert "parts of its memory" in reasons["memory"]
    assert "number of GPUs does not vary" in reasons["scaling"]
    assert "samples" in reasons["utilization"]


def test_without_a_run_on_one_gpu_there_is_no_scaling_curve() -> None:
    found = figures.draw("scaling", _study(record(gpus=2), record(gpus=4)))
    assert isinstance(found, Omitted)


def test_markup_and_formulas_in_a_value_stay_text() -> None:
    records = [record(note="<b>$x_1$ & co"), record(note="plain", memory_mib=50, step_s=0.2)]
    found = figures.draw("tradeoff", _study(*records))
    assert isinstance(found, Figure)
    texts = "".join(ElementTree.fromstring(found.svg).itertext())
    assert "note=<b>$x_1$ & co" in texts


def test_labels_of_a_group_say_what_it_has_in_common() -> None:
    assert common_label(["amp ckpt=on gpus=8", "amp ckpt=off gpus=8"]) == "amp gpus=8 (2 alike)"
    assert common_label(["amp", "fp32"]) == "all 2 alike"


def test_labels_do_not_lie_upon_each_other() -> None:
    grid = full_grid()
    for number, one in enumerate(grid):  # all on the front, close together
        one.memory.warm.peak_allocated_bytes = (100 + number) * MIB
        one.time.samples_per_s = 1000.0 + number
    from matplotlib.text import Annotation

    with figures.style.in_style():
        canvas = tradeoff.build(_study(*grid)).canvas
    canvas.draw_without_rendering()
    texts = [t for t in canvas.findobj(Annotation) if t.get_text()]
    renderer = canvas.canvas.get_renderer()  # type: ignore[attr-defined]  # an Agg canvas has one
    boxes = [super(Annotation, t).get_window_extent(renderer) for t in texts]
    assert len(boxes) >= 4
    for i, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:i])
