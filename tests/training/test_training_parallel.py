"""Runs of several ranks, each a real process, joined by gloo."""

import json
import os
import socket
import threading

import pytest
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from training_cases import (
    CPU,
    Linear,
    MeanOfUnits,
    Norms,
    Ranks,
    SumOutput,
    Tokens,
    Twice,
    Weighted,
    amp,
    build_and_train,
    equal,
    global_batch,
    make_config,
    on_ranks,
    relative,
    train,
    weights_of,
    with_sgd,
)

from sweeper.place import Place
from sweeper.training import build_step
from sweeper.training.rendezvous import RENDEZVOUS_FILE, open_store


@pytest.mark.parametrize(
    ("world", "sizes", "objective"),
    [(4, [4] * 4, "samples"), (2, [1, 7, 5, 3], "samples"), (2, [1, 7, 5, 3], "tokens")],
    ids=["four equal ranks", "unequal micro-batches", "tokens"],
)
def test_ranks_train_like_one(tmp_path, world, sizes, objective):
    config = make_config() if objective == "samples" else make_config(objective=Tokens)
    config.accum.steps = len(sizes) // world
    config.train.max_grad_norm = 0.5
    alone = build_step(config, CPU)
    expected = train(alone, 20, [16])
    # The two ranks add up their weights by themselves; the four are told the sum.
    results = on_ranks(build_and_train, world, tmp_path, config, 20, sizes, world == 2)
    for losses, weights in results:
        assert relative(expected, losses) < 1e-5
        assert equal(weights, results[0][1])  # all ranks hold the same


def token_step(group, rank):
    step = build_step(with_sgd(make_config(Weighted, MeanOfUnits)), CPU, process_group=group)
    tokens = [[5, 10], [20, 3]][rank]
    means = [[1.0, 2.0], [3.0, 4.0]][rank]
    batches = [
        {"mean": torch.tensor(mean), "tokens": torch.tensor(float(count))}
        for mean, count in zip(means, tokens, strict=True)
    ]
    result = step(batches, [torch.tensor(count) for count in tokens])
    return result.loss.item(), step.model.weight.item()


def test_gradient_of_tokens_is_their_mean_over_ranks_and_micro_batches(tmp_path):
    """Case C24: 97 / 38, neither the mean of means nor the mean of the ranks' means."""
    (loss0, weight0), (loss1, weight1) = on_ranks(token_step, 2, tmp_path)
    assert loss0 + loss1 == pytest.approx(97 / 38)
    assert weight0 == weight1 == pytest.approx(-97 / 38)


def twice_step(group, rank, unused, find_unused):
    config = with_sgd(make_config(Twice, SumOutput, unused=unused), lr=1.0)
    config.ckpt.enabled, config.ckpt.blocks = True, "block"
    config.parallel.find_unused_parameters = find_unused
    step = build_step(config, CPU, process_group=group)
    before = weights_of(step)
    x = torch.randn(8, 4, generator=torch.Generator().manual_seed(0)).split(4)[rank]
    step([{"x": x}], [4], global_weight=8)
    return {name: before[name] - value for name, value in weights_of(step).items()}


@pytest.mark.parametrize(("unused", "find_unused"), [(False, False), (False, True), (True, True)])
def test_checkpointed_block_used_twice(tmp_path, unused, find_unused):
    """Case C32: with SGD and lr 1, an update is the gradient."""
    results = on_ranks(twice_step, 2, tmp_path, unused, find_unused)
    config = with_sgd(make_config(Twice, SumOutput, unused=unused), lr=1.0)
    alone = build_step(config, CPU)
    before = weights_of(alone)
    alone([{"x": torch.randn(8, 4, generator=torch.Generator().manual_seed(0))}], [8])
    for name, value in weights_of(alone).items():
        torch.testing.assert_close(results[0][name], before[name] - value, rtol=1e-5, atol=1e-6)
    assert equal(*results)


def scaled_step(group, rank):
    config = amp(make_config(), "float16")
    config.train.max_grad_norm = 1.0
    step = build_step(config, CPU, process_group=group)
    train(step, 2, [4, 4, 4, 4], rank)
    assert step.update.skipped == 0
    batch = global_batch(5, 4)
    if rank == 1:
        batch["noise"] += 1e30  # this rank alone overflows
    skipped = step([batch], [4], global_weight=8).skipped
    return skipped, step.update.loss_scale, weights_of(step)


def test_ranks_skip_an_overflow_together(tmp_path):
    first, second = on_ranks(scaled_step, 2, tmp_path)
    assert first[0] is second[0] is True
    assert first[1] == second[1] == 32768.0
    assert equal(first[2], second[2])


def clipped_step(group, rank):
    config = amp(with_sgd(make_config(Linear, SumOutput), lr=1.0), "float16")
    config.train.max_grad_norm = 1.0
    step = build_step(config, CPU, process_group=group)
    sizes = [[1, 3], [2, 2]][rank]
    parts = [{"x": torch.full((size, 4), 10.0)} for size in sizes]
    result = step(parts, sizes)
    return float(result.grad_norm), float(step.model.linear.weight.detach().norm())


def test_clipping_acts_on_the_true_gradient_of_all_ranks(tmp_path):
    """Case C27 with ranks, accumulation and a loss scale of 65,536 at once."""
    for norm, moved in on_ranks(clipped_step, 2, tmp_path):
        assert norm == pytest.approx(20.0)
        assert moved == pytest.approx(1.0)


def reductions(group, rank, accumulation):
    config = make_config()
    config.accum.steps = accumulation
    step = build_step(config, CPU, process_group=group)
    reduced = []

    def count(state, bucket):
        reduced.append(bucket.buffer().numel())
        return default_hooks.allreduce_hook(group, bucket)

    step.replica.register_comm_hook(None, count)
    train(step, 2, [4] * 2 * accumulation, rank)
    return sum(reduced) / sum(p.numel() for p in step.model.parameters() if p.requires_grad)


@pytest.mark.parametrize("accumulation", [1, 3])
def test_gradients_travel_once_a_step(tmp_path, accumulation):
    assert on_ranks(reductions, 2, tmp_path, accumulation) == [2.0, 2.0]  # in two steps


def bucket_storages(group, rank, accumulation, view):
    config = make_config()
    config.accum.steps, config.parallel.gradient_as_bucket_view = accumulation, view
    config.parallel.bucket_cap_mib = 0.02
    steps = []

    class Watcher:
        """Storages that gradients live in, seen before each backward after the first step."""

        def phase(self, name):
            if name == "backward" and steps and steps[0].steps >= 2:
                grads = [p.grad for p in steps[0].model.parameters() if p.grad is not None]
                seen.append({g.untyped_storage().data_ptr() for g in grads})

    seen = []
    steps.append(build_step(config, CPU, observer=Watcher(), process_group=group))
    train(steps[0], 4, [4] * accumulation * 2, rank)
    held = steps[0].persistent_tensors()["gradients"]
    held = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in held}
    parameters = [p for p in steps[0].model.parameters() if p.requires_grad]
    return sum(held.values()), 4 * sum(p.numel() for p in parameters), seen, set(held)


@pytest.mark.parametrize("accumulation", [1, 3])
def test_gradients_in_buckets_are_held_once(tmp_path, accumulation):
    ((held, size, seen, storages), _) = on_ranks(bucket_storages, 2, tmp_path, accumulation, True)
    assert held == size  # between steps, too
    if accumulation > 1:
        assert all(step <= storages for step in seen)  # no gradient beside the buckets
        assert all(seen)
    else:
        assert not any(seen)  # released, and put into the bucket by the backward


def test_gradients_beside_buckets_are_released(tmp_path):
    ((held, _, seen, _), _) = on_ranks(bucket_storages, 2, tmp_path, 1, False)
    assert held == 0
    assert not any(seen)


def normed(group, rank):
    step = build_step(make_config(Norms, SumOutput), CPU, process_group=group)
    draw = torch.Generator().manual_seed(rank)
    for _ in range(2):
        step([{"x": torch.randn(8, 4, generator=draw)}], [8], global_weight=16)
    own = weights_of(step)
    held_out = [({"x": torch.ones(2, 4)}, 2)] * (rank + 1)  # ranks have different numbers
    total, weight = step.evaluate(held_out)
    return own, weights_of(step), float(total / weight), float(weight)


def test_evaluation_uses_the_same_statistics_and_any_number_of_batches(tmp_path):
    first, second = on_ranks(normed, 2, tmp_path)
    assert not equal(first[0], second[0])  # each rank's last batch is its own
    assert equal(first[1], second[1])
    assert first[2] == pytest.approx(second[2])
    assert (first[3], second[3]) == (2, 4)


def draws_of(group, rank):
    step = build_step(make_config(dropout=0.5), CPU, process_group=group)
    batch = global_batch(0, 4)
    return [float(step([batch], [4], global_weight=8).loss) for _ in range(2)]


def test_ranks_draw_their_own_dropout(tmp_path):
    first, second = on_ranks(draws_of, 2, tmp_path)
    assert first[0] != second[0]  # the same data and weights


def group_facts(group, rank):
    total = torch.ones(())
    dist.all_reduce(total)
    return dist.get_world_size(group), float(total), os.environ.get("GLOO_SOCKET_IFNAME")


def test_two_groups_at_once_beside_a_taken_port(tmp_path, monkeypatch):
    """Case C17: what the environment says of ranks and ports plays no part."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        for name, value in {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(taken.getsockname()[1]),
            "RANK": "7",
            "WORLD_SIZE": "99",
            "LOCAL_RANK": "7",
        }.items():
            monkeypatch.setenv(name, value)
        groups = [Ranks(group_facts, 2, tmp_path / name) for name in ("a", "b")]
        facts = [fact for group in groups for fact in group.results()]
    assert [(world, total) for world, total, _ in facts] == [(2, 2.0)] * 4
    ports = set()
    for name in ("a", "b"):
        rendezvous = json.loads((tmp_path / name / "attempt0" / RENDEZVOUS_FILE).read_text())
        assert rendezvous["hosts"] == ["127.0.0.1"]
        ports.add(rendezvous["port"])
    assert len(ports) == 2


def test_interface_that_the_user_set_is_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    monkeypatch.setenv("TP_SOCKET_IFNAME", "lo")
    assert {facts[2] for facts in on_ranks(group_facts, 2, tmp_path / "one")} == {"lo"}


def test_stale_address_of_a_dead_attempt_is_not_taken(tmp_path):
    """Another store listens where the file of a dead attempt points."""
    places = [Place(tmp_path, rank, 2, rank, 2) for rank in range(2)]
    other = open_store(Place(tmp_path / "other", 0, 2, 0, 2), 10)
    path = places[0].attempt_dir / RENDEZVOUS_FILE
    path.parent.mkdir(parents=True)
    stale = {"hosts": ["127.0.0.1"], "port": other.port, "token": "of another"}
    path.write_text(json.dumps(stale))
    stores = {}

    def join(rank):
        stores[rank] = open_store(places[rank], 20)

    second = threading.Thread(target=join, args=(1,))
    second.start()
    second.join(0.5)
    assert second.is_alive()  # it waits for rank 0
    join(0)
    second.join(20)
    stores[0].set("word", "here")
    assert stores[1].get("word") == b"here"
    assert stores[1].port == stores[0].port != other.port


def test_several_nodes_publish_an_address_that_others_reach(tmp_path):
    open_store(Place(tmp_path, 0, 4, 0, 2), 10)
    rendezvous = json.loads((tmp_path / "attempt0" / RENDEZVOUS_FILE).read_text())
    assert rendezvous["hosts"]
    assert not any(host.startswith("127.") for host in rendezvous["hosts"])


def test_missing_rank_0_is_told_after_the_time_limit(tmp_path):
    with pytest.raises(TimeoutError, match=r"rank 1 .* the file was not there"):
        open_store(Place(tmp_path, 1, 2, 1, 2), 0.3)
