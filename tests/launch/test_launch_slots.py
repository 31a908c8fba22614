"""One machine shared out to runs: who gets what, and who has to wait."""

from __future__ import annotations

import pytest

from sweeper.launch.devices import Node
from sweeper.launch.runs import Resources
from sweeper.launch.slots import Slots

EIGHT_CORES = tuple(range(8))
TWO_GPUS = Node(gpus=("GPU-8932f937", "MIG-377e0049"), cores=EIGHT_CORES)
CPU_ONLY = Node(gpus=(), cores=EIGHT_CORES)


def test_each_run_gets_gpus_of_its_own_by_their_tokens() -> None:
    slots = Slots(TWO_GPUS)
    first, second = slots.take(Resources(gpus=1)), slots.take(Resources(gpus=1))
    assert first is not None
    assert second is not None
    assert (first.gpus, second.gpus) == (("GPU-8932f937",), ("MIG-377e0049",))
    assert slots.take(Resources(gpus=1)) is None
    slots.give_back(first)
    third = slots.take(Resources(gpus=1))
    assert third is not None
    assert third.gpus == ("GPU-8932f937",)


def test_a_run_that_needs_more_than_there_is_can_never_run() -> None:
    slots = Slots(TWO_GPUS)
    assert slots.why_never(Resources(gpus=8)) == "needs 8, has 2 GPUs"
    assert slots.why_never(Resources(gpus=2)) is None
    assert slots.why_never(Resources(nodes=2)) == "needs 2, has 1 node"


def test_a_large_run_waits_while_a_small_one_that_fits_goes_first() -> None:
    slots = Slots(TWO_GPUS)
    assert slots.take(Resources(gpus=1)) is not None
    assert slots.take(Resources(gpus=2)) is None
    assert slots.take(Resources(gpus=1)) is not None


def test_cores_and_threads_are_divided_by_gpu() -> None:
    slots = Slots(TWO_GPUS)
    first, second = slots.take(Resources(gpus=1)), slots.take(Resources(gpus=1))
    assert first is not None
    assert second is not None
    assert (first.threads, first.cores) == (4, ((0, 1, 2, 3),))
    assert (second.threads, second.cores) == (4, ((4, 5, 6, 7),))


def test_runs_per_gpu_lets_runs_share() -> None:
    slots = Slots(TWO_GPUS, runs_per_gpu=2)
    leases = [slots.take(Resources(gpus=1)) for _ in range(5)]
    assert leases[4] is None
    held = [lease.gpus[0] for lease in leases[:4] if lease is not None]
    assert held == [*TWO_GPUS.gpus, *TWO_GPUS.gpus]
    assert {core for lease in leases[:4] if lease for core in lease.cores[0]} == set(EIGHT_CORES)


def test_a_run_never_gets_the_same_gpu_twice() -> None:
    lease = Slots(TWO_GPUS, runs_per_gpu=2).take(Resources(gpus=2))
    assert lease is not None
    assert lease.gpus == TWO_GPUS.gpus


def test_gpus_that_others_use_are_left_alone() -> None:
    slots = Slots(TWO_GPUS)
    lease = slots.take(Resources(gpus=1), avoid={"GPU-8932f937"})
    assert lease is not None
    assert lease.gpus == ("MIG-377e0049",)
    assert slots.take(Resources(gpus=1), avoid={"GPU-8932f937"}) is None


@pytest.mark.parametrize(("ranks", "threads"), [(1, 8), (2, 4), (3, 2)])
def test_without_gpus_one_run_has_all_cores_and_divides_them(ranks: int, threads: int) -> None:
    slots = Slots(CPU_ONLY)
    lease = slots.take(Resources(gpus=ranks))
    assert lease is not None
    assert lease.threads == threads
    assert [len(cores) for cores in lease.cores] == [threads] * ranks
    assert len({core for cores in lease.cores for core in cores}) == ranks * threads
    assert slots.take(Resources(gpus=1)) is None  # exclusive by default


def test_more_processes_than_cores_are_not_bound() -> None:
    lease = Slots(CPU_ONLY).take(Resources(gpus=16))
    assert lease is not None
    assert (lease.threads, lease.cores) == (1, ())


def test_without_gpus_runs_may_share_the_cores_if_asked_to() -> None:
    slots = Slots(CPU_ONLY, exclusive=False)
    leases = [slots.take(Resources(gpus=1, cpus_per_task=3)) for _ in range(3)]
    assert leases[2] is None
    assert [lease.cores for lease in leases if lease] == [((0, 1, 2),), ((3, 4, 5),)]


def test_max_parallel_and_exclusive_bound_the_number_of_runs() -> None:
    slots = Slots(TWO_GPUS, max_parallel=1)
    assert slots.take(Resources(gpus=1)) is not None
    assert slots.take(Resources(gpus=1)) is None
    exclusive = Slots(TWO_GPUS, exclusive=True)
    lease = exclusive.take(Resources(gpus=1))
    assert lease is not None
    assert lease.threads == 8
    assert exclusive.take(Resources(gpus=1)) is None


def test_runs_without_gpus_on_a_machine_with_gpus_are_bounded_by_cores() -> None:
    slots = Slots(TWO_GPUS)
    leases = [slots.take(Resources(gpus=0, ranks=4)) for _ in range(3)]
    assert [lease is not None for lease in leases] == [True, True, False]
    assert leases[0] is not None
    assert leases[0].gpus == ()


def test_a_run_of_an_earlier_command_holds_its_gpus() -> None:
    slots = Slots(TWO_GPUS)
    slots.hold(["GPU-8932f937"])
    lease = slots.take(Resources(gpus=1))
    assert lease is not None
    assert lease.gpus == ("MIG-377e0049",)
    assert slots.take(Resources(gpus=1)) is None
