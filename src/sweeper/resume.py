"""What a run has done and measured so far, and how its next attempt takes it over.

A run's losses are those of an uninterrupted one. Its times are of the windows that were in fact
measured, each in one process after a warm-up of its own; its memory peaks are the highest of all
attempts.
"""

from __future__ import annotations

from sweeper.data.loader import Loader
from sweeper.fence import Superseded, check_newest
from sweeper.measure.clock import StepClock
from sweeper.measure.memory import combine_ranks
from sweeper.place import Place
from sweeper.ranks import Ranks
from sweeper.record import Memory, Numerics, Record, Utilization, from_plain, to_plain
from sweeper.results import Results
from sweeper.snapshot import SNAPSHOT_FILE, Snapshot, SnapshotError
from sweeper.training.step import TrainStep


class Progress:
    """How far a run has come on this rank, over all its attempts.

    Attributes:
        results: of its steps.
        resumed_at: steps that earlier attempts did.
        validation_first: held-out loss before the first step, and its samples.
        training_s: in training, without the present attempt.
        evaluation_s: in evaluations.
    """

    def __init__(
        self,
        place: Place,
        ranks: Ranks,
        record: Record,
        step: TrainStep,
        loader: Loader,
        clock: StepClock,
        steps: int,
    ) -> None:
        self._place, self._ranks, self._record = place, ranks, record
        self._step, self._loader, self._clock = step, loader, clock
        self._device = step.device
        self.results = Results(steps)
        self.resumed_at = 0
        self.validation_first: tuple[float, int] | None = None
        self.training_s = 0.0
        self.evaluation_s = 0.0
        self._memory: Memory | None = None

    def memory(self, now: Memory) -> Memory:
        """The rank's memory over all attempts, the present one's being `now`."""
        return now if self._memory is None else combine_ranks([self._memory, now])

    def save(self, memory: Memory, training_s: float) -> None:
        """Write the snapshot; returns, or raises, on all ranks once rank 0 is through with it.

        Args:
            memory: over all attempts.
            training_s: in training, this attempt's included.

        Raises:
            SnapshotError: it cannot be written.
            Superseded: a newer attempt exists; nothing was written.
        """
        training = self._step.state_dict()
        own = {
            "random": training.pop("random"),
            "loader": self._loader.state_dict(),
            "results": self.results.state_dict(),
            "clock": self._clock.state_dict(),
            "memory": to_plain(memory),
        }
        snapshot = Snapshot(
            config_id=self._record.identity.config_id,
            device=self._device.type,
            step=self.results.count,
            training=training,
            figures={
                "device_name": self._device_name(),
                "validation_first": self.validation_first,
                "training_s": training_s,
                "evaluation_s": self.evaluation_s,
                "numerics": to_plain(self._record.numerics),
                "utilization": to_plain(self._record.utilization),
            },
            ranks=self._ranks.gather(own),
        )
        problem: Exception | None = None
        if self._place.rank == 0:
            try:
                check_newest(self._place)
                snapshot.save(self._place.run_dir)
            except (SnapshotError, Superseded) as error:
                problem = error
        # A rank that left now would take the others with it, and rank 0 is still writing.
        for found in filter(None, self._ranks.gather(problem)):
            raise found

    def resume(self) -> bool:
        """Take over where an earlier attempt was interrupted. Returns whether there is such a one.

        A snapshot that cannot be used is left out with a warning in the record.
        """
        snapshot, problem = self._load()
        found = self._ranks.gather(snapshot is not None)
        problems = [text for text in self._ranks.gather(problem) if text]
        if any(found) and not all(found) and not problems:
            problems = ["not every rank can see it"]
        if problems:
            self._record.warnings.append(
                f"{SNAPSHOT_FILE} is not used, the run starts from the beginning: {problems[0]}"
            )
        if snapshot is None or not all(found):
            return False
        self._take_over(snapshot)
        return True

    def _load(self) -> tuple[Snapshot | None, str]:
        try:
            snapshot = Snapshot.load(self._place.run_dir)
            if snapshot is not None:
                config_id = self._record.identity.config_id
                snapshot.check(
                    config_id, self._device.type, self._place.world_size, self._step.model
                )
        except SnapshotError as error:
            return None, str(error)
        return snapshot, ""

    def _take_over(self, snapshot: Snapshot) -> None:
        own, figures = snapshot.ranks[self._place.rank], snapshot.figures
        same = all(self._ranks.gather(figures["device_name"] == self._device_name()))
        if not same:
            self._record.warnings.append(
                f"the steps before {snapshot.step} ran on {figures['device_name']}; "
                "their times are left out"
            )
        self._step.load_state_dict({**snapshot.training, "random": own["random"]})
        self._loader.load_state_dict(own["loader"])
        self.results.load_state_dict(own["results"], self._device)
        self._clock.load_state_dict(own["clock"], measured=same)
        self._memory = from_plain(Memory, own["memory"], SNAPSHOT_FILE)
        self._record.numerics = from_plain(Numerics, figures["numerics"], SNAPSHOT_FILE)
        self._record.utilization = from_plain(Utilization, figures["utilization"], SNAPSHOT_FILE)
        first = figures["validation_first"]
        self.validation_first = None if first is None else (first[0], first[1])
        self.training_s, self.evaluation_s = figures["training_s"], figures["evaluation_s"]
        self.resumed_at = snapshot.step

    def _device_name(self) -> str | None:
        return self._record.hardware.device_name or self._record.hardware.cpu_name
