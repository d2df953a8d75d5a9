# SPDX-License-Identifier: Apache-2.0
"""What goes on the wire for guests that know only RoCE: their reliable connections and datagrams, carried by
another transport.
"""

from __future__ import annotations

from emu.lab.datagrams import CarriedDatagrams
from emu.lab.topology import Lab, NicFunction
from emu.nic.endpoint import Endpoint, EndpointHost
from emu.nic.engine import Engine, EngineHost
from emu.nic.work import Transport
from emu.roce import create_engine
from emu.uet import Fep, NsccConfig, Parameters
from emu.uet.tss_keys import SecureDomain

__all__ = ["Carrier", "uet_parameters"]

_RELIABLE: dict[str, Transport] = {
    "roce": Transport.ROCE_RC,
    "uet-rod": Transport.UET_ROD,
    "uet-rud": Transport.UET_RUD,
}


def uet_parameters(lab: Lab, nic: NicFunction) -> Parameters:
    """How a NIC of a lab speaks UET: congestion control for the slowest link, and security with a secret."""
    speeds = [other.queueing.rate for other in lab.nics if other.queueing.rate]
    trimming = lab.trim_kib is not None
    nscc = NsccConfig(bytes_per_second=min(speeds), trimming=trimming) if speeds else NsccConfig()
    security = SecureDomain((nic.secret,)) if nic.secret else None
    return Parameters(nscc=nscc, security=security)


class Carrier:
    """Makes the endpoint of one NIC, and engines for its queue pairs.

    :param carry: one of :data:`emu.lab.topology.CARRIES`, for reliable connections; unless that is RoCE,
        datagrams go by UUD. Other services stay
    :param seed: of the endpoint's random choices
    :param parameters: how the endpoint speaks UET
    """

    def __init__(self, carry: str, seed: int, parameters: Parameters | None = None) -> None:
        self._reliable = _RELIABLE[carry]
        self._seed = seed
        self._parameters = parameters or Parameters()
        self._endpoint: Endpoint | None = None

    def create_endpoint(self, host: EndpointHost) -> Endpoint:
        """The NIC's endpoint, as :data:`emu.nic.endpoint.EndpointFactory`."""
        self._endpoint = Fep(host, self._parameters, self._seed)
        return self._endpoint

    def create_engine(self, transport: Transport, host: EngineHost) -> Engine:
        """A queue pair's engine, as :data:`emu.nic.engine.EngineFactory`.

        :raises ValueError: the transport is not offered.
        """
        endpoint = self._endpoint if self._reliable is not Transport.ROCE_RC else None
        if endpoint is not None and transport is Transport.ROCE_RC:
            return endpoint.create_engine(self._reliable, host)
        if endpoint is not None and transport is Transport.ROCE_UD:
            return CarriedDatagrams(endpoint, host)
        return create_engine(transport, host)
