# SPDX-License-Identifier: Apache-2.0
"""What is read out of perftest's tables, as Debian's perftest prints them."""

from __future__ import annotations

from emu.lab.perftest import Latency, Throughput, latencies, throughputs

RULE = "-" * 87
BANDWIDTH = f"""
{RULE}
                    RDMA_Write BW Test
 Dual-port       : OFF          Device         : mlx5_0
 Number of qps   : 1            Transport type : IB
 local address: LID 0000 QPN 0x0100 PSN 0x1d3a06
{RULE}
 #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]
 2          5000             0.10               0.08                 0.043691
 1048576    50               263.77             263.50               0.000264
{RULE}
""".splitlines()
LATENCY = (
    " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]"
    "    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]",
    " 8 500 74.05          2371.01      84.68    \t       164.67      \t341.77 \t\t2079.33 \t\t2371.01",
    RULE,
)


def test_bandwidth_rows() -> None:
    rows = throughputs(BANDWIDTH)
    assert rows == [Throughput(2, 5000, 0.08, 0.043691), Throughput(1 << 20, 50, 263.5, 0.000264)]
    assert rows[0].messages == 43691
    assert latencies(BANDWIDTH) == []


def test_latency_rows() -> None:
    assert latencies(LATENCY) == [Latency(8, 500, 84.68, 164.67)]
    assert throughputs(LATENCY) == []


def test_what_is_no_table_is_none() -> None:
    assert throughputs(["1 2 3 4 5", " #bytes something else", "1 2 3 4 5"]) == []
    assert throughputs([]) == []
