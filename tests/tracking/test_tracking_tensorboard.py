"""The TensorBoard tracker, read back by TensorBoard's own reader."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from sweeper.errors import UserError
from sweeper.record import Identity, Record, Status
from sweeper.tracking.factory import check_tracker, make_tracker
from sweeper.tracking.summary import record_of, summary_of

NODE = {"_target_": "sweeper.tracking.tensorboard.TensorboardTracker"}


def test_series_figures_and_record_can_be_read_back(identity: Identity, run_dir: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    record = Record(identity=identity, status=Status.COMPLETED, config={"batch": {"size": 64}})
    warnings: list[str] = []
    tracker = make_tracker(NODE, warnings, finish_timeout_s=90.0)
    tracker.start(identity, record.config, run_dir)
    for step in range(3):
        tracker.log(step, {"train/loss": 1.0 / 2**step})
    tracker.summary({**summary_of(record), "memory/peak_mib": 1.5})
    tracker.finish(record.status)
    assert warnings == []

    events = accumulator.EventAccumulator(str(run_dir / "tensorboard")).Reload()
    series = [(event.step, event.value) for event in events.Scalars("train/loss")]
    assert series == [(0, 1.0), (1, 0.5), (2, 0.25)]
    (peak,) = events.Scalars("memory/peak_mib")
    assert peak.value == 1.5
    (text,) = events.Tensors("record/text_summary")
    stored = text.tensor_proto.string_val[0].decode()
    assert record_of({"record": stored}) == record
    hparams = events.PluginTagToContent("hparams")
    started = hparams["_hparams_/session_start_info"]
    for name in (b"precision", b"amp", identity.variant.encode(), b"completed"):
        assert name in started


def test_without_tensorboard_the_check_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "tensorboard" else find(name)
    )
    with pytest.raises(UserError, match=r"sweeper\[tensorboard\]"):
        check_tracker(NODE)
