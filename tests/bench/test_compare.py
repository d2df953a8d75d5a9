# SPDX-License-Identifier: Apache-2.0
"""What UET cures of RoCE, measured: only what was lost goes out again, every path is used, incast settles."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

import emu.cli.compare
from emu.bench.compare import LOSSES, WORKLOADS, Outcome, Workload, compare_transports, run
from emu.bench.network import RATE, Network
from emu.cli.main import app
from emu.clock import MS, NS_PER_S
from emu.nic.work import Transport

BULK = Workload("2 MiB write", (2 << 20,))
MOE, WHOLE, INCAST = WORKLOADS


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("paths", [1, 8])
def test_uet_repeats_what_was_lost_and_no_more(paths: int, loss: float) -> None:
    found = run(BULK, "uet-rud", paths, loss)
    assert found.failed == ""
    assert found.lost <= found.resent <= 1.2 * found.lost
    assert all(abs(share * paths - 1) <= 0.2 for share in found.shares)


def test_roce_repeats_far_more_on_its_one_path() -> None:
    found = run(BULK, "roce-rc", 8, 0.01)
    assert found.failed == ""
    assert found.lost > 0
    assert found.resent > 10 * found.lost
    # The others carried what tells switches where the hosts are.
    assert max(found.shares) > 0.9999


def test_spraying_reorders_and_is_faster_than_one_path() -> None:
    roce, uet = (run(BULK, transport, 8, 0.0) for transport in ("roce-rc", "uet-rud"))
    assert (roce.reordered, roce.resent, uet.resent) == (0, 0, 0)
    assert uet.reordered > 50
    assert uet.time < 0.6 * roce.time


def test_messages_of_many_sizes_keep_their_tail_under_loss() -> None:
    roce, uet = (run(MOE, transport, 8, 0.01) for transport in ("roce-rc", "uet-rud"))
    assert roce.failed == uet.failed == ""
    assert 1 <= uet.tail < 3
    assert uet.time < roce.time


def test_the_tail_is_no_matter_of_luck() -> None:
    found = [run(MOE, "uet-rud", 8, 0.01, seed) for seed in range(1, 17)]
    assert not any(outcome.failed for outcome in found)
    assert all(abs(share * 8 - 1) <= 0.1 for outcome in found for share in outcome.shares)
    # A run may lose the last packets, and the question about them too.
    tails = sorted(outcome.tail for outcome in found)
    assert tails[-2] < 3
    assert tails[-1] < 4


@pytest.mark.parametrize("paths", [1, 8])
def test_incast_settles_by_trimming_where_roce_has_to_pause(paths: int) -> None:
    """With one path the bottleneck is between the switches, with eight it is the receiver's link."""
    roce, uet = (run(INCAST, transport, paths, 0.0) for transport in ("roce-rc", "uet-rud"))
    assert roce.failed == uet.failed == ""
    assert roce.lost == roce.resent == 0
    assert 0 < uet.lost <= uet.resent <= 1.2 * uet.lost
    # Eight senders share one link: the least it can take is what the link needs for all bytes.
    assert uet.time < 1.2 * (8 << 20) * NS_PER_S // RATE
    if paths == 8:
        assert uet.queue < roce.queue / 2


@pytest.mark.parametrize("paths", [1, 8])
def test_an_incast_of_sixteen_does_not_collapse(paths: int) -> None:
    sixteen = run(Workload("incast of 16", (65536,) * 8, senders=16), "uet-rud", paths, 0.0)
    assert sixteen.failed == ""
    assert 0 < sixteen.resent <= 1.2 * sixteen.lost
    assert sixteen.queue < 1.5 * Network(Transport.UET_RUD, paths, 0.0).round_trip
    assert sixteen.time < 1.5 * (8 << 20) * NS_PER_S // RATE


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_two_flows_share_a_bottleneck_and_keep_its_queue_short(seed: int) -> None:
    size, count = 65536, 400
    network = Network(Transport.UET_RUD, 1, 0.0, seed)
    receiver = network.host(2 * size, receives=True)
    flows = []
    for number in range(2):
        host = network.host(2 * size)
        there, here = receiver.queue_pair(), host.queue_pair()
        there.connect(host, here.qpn)
        here.connect(receiver, there.qpn)
        for index in range(count):
            here.write(index, number * size, size)
        flows.append(here)
    network.scheduler.run(until=network.round_trip)
    for flow in flows:
        flow.host.serve(flow)
    network.scheduler.run(until=MS)
    early = [len(flow.done) for flow in flows]
    network.scheduler.run(until=3 * MS)
    done = [len(flow.done) - before for flow, before in zip(flows, early, strict=True)]
    assert max(done) < count
    assert min(done) >= 0.9 * max(done)
    # Hardly less than the link carries, and no more waiting than congestion control aims at.
    assert sum(done) * size * NS_PER_S / (2 * MS) > 0.95 * RATE
    (bottleneck,) = network.bottlenecks
    assert network.queue <= 0.75 * network.round_trip
    assert bottleneck.counters.dropped == 0


def test_a_run_repeats_exactly_and_seeds_differ() -> None:
    first = run(BULK, "uet-rud", 8, 0.05)
    assert run(BULK, "uet-rud", 8, 0.05) == first
    assert run(BULK, "uet-rud", 8, 0.05, seed=2) != first


def test_a_link_that_carries_nothing_is_a_failure_not_a_hang() -> None:
    for transport in ("roce-rc", "uet-rud"):
        assert run(Workload("one", (4096,)), transport, 1, 1.0).failed


@pytest.mark.full
def test_every_comparison_ends_right() -> None:
    for outcome in compare_transports():
        assert outcome.failed == "", outcome
        if outcome.transport == "uet-rud":
            assert outcome.lost <= outcome.resent <= 1.2 * outcome.lost, outcome
            assert all(abs(share * outcome.paths - 1) <= 0.2 for share in outcome.shares), outcome


def vrnic(monkeypatch: pytest.MonkeyPatch, outcomes: list[Outcome], *words: str) -> tuple[int, str]:
    monkeypatch.setattr(emu.cli.compare, "compare_transports", lambda **_: outcomes)
    monkeypatch.setenv("COLUMNS", "120")
    done = CliRunner().invoke(app, ["compare", "transports", *words])
    return done.exit_code, done.stdout


def test_the_command_prints_a_table_and_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    workload = Workload("small", (65536,), losses=(0.0, 0.01), paths=(8,))
    outcomes = compare_transports([workload], progress=told.append)
    assert told == ["small, 8 paths, loss 0", "small, 8 paths, loss 0.01"]
    code, text = vrnic(monkeypatch, outcomes)
    assert code == 0
    for outcome in outcomes:
        assert f"{outcome.time / 1e6:.3f} ms" in text
    assert max(len(line) for line in text.splitlines()) <= 80
    bars = [line.count("█") for line in text.splitlines() if "█" in line]
    longest = max(outcome.time for outcome in outcomes)
    assert bars == [max(1, round(36 * outcome.time / longest)) for outcome in outcomes]


def test_the_command_fails_when_a_run_did(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = run(Workload("one", (4096,)), "roce-rc", 1, 1.0)
    code, text = vrnic(monkeypatch, [broken], "--json")
    assert code == 1
    assert json.loads(text)[0]["failed"] == broken.failed
    assert broken.failed in vrnic(monkeypatch, [broken])[1]


def test_the_command_draws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    workload = Workload("two & more", (65536, 65536), losses=(0.0, 0.05))
    outcomes = compare_transports([workload])
    path = tmp_path / "compare.svg"
    code, _ = vrnic(monkeypatch, outcomes, "--plot", str(path))
    assert code == 0
    drawing = ElementTree.parse(path).getroot()
    names = "{http://www.w3.org/2000/svg}"
    titles = [title.text for title in drawing.iter(f"{names}title")]
    # A bar for each time, and for each run that sent something again.
    assert len(titles) == len(outcomes) + sum(outcome.resent > 0 for outcome in outcomes)
    bars = [float(bar.get("height", "")) for bar in drawing.iter(f"{names}rect") if len(bar)]
    times = {outcome.time: bar for outcome, bar in zip(_in_order(outcomes), bars, strict=False)}
    assert sorted(times) == [time for time, _ in sorted(times.items(), key=lambda entry: entry[1])]
    shown = [text.text or "" for text in drawing.iter(f"{names}text")]
    assert {"two & more: time, ms", "roce-rc, 1 path", "uet-rud, 8 paths", "5 % loss"} <= set(shown)


def _in_order(outcomes: list[Outcome]) -> list[Outcome]:
    """As the drawing has them: by loss, then transport and paths."""
    return sorted(outcomes, key=lambda outcome: (outcome.loss, outcome.transport, outcome.paths))


def test_a_drawing_that_cannot_be_written_is_told_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    code, _ = vrnic(monkeypatch, [], "--plot", str(tmp_path / "nowhere" / "compare.svg"))
    assert code == 1
