"""An HPA asks any operator and hears the leading one's number, or that there is none; never somebody else's."""

from __future__ import annotations

import shutil
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest
from own_certificate import make
from tidegate_operator.observed import ServiceKey
from tidegate_operator.resource import InferenceServiceStatus, ScalingStatus
from tidegate_operator.world import external_metrics
from tidegate_operator.world.certificate import Certificate
from tidegate_operator.world.leader import Holder
from tidegate_operator.world.relay import FORWARDED_BY, NoAnswer, Relay, authority
from tidegate_operator.world.service_metrics import FAMILIES, ServiceMetrics

ROOT = "/apis/external.metrics.k8s.io/v1beta1"


def showing(desired: int) -> ServiceMetrics:
    """Numbers of ns/web."""
    metrics = ServiceMetrics(lambda: 0.0)
    scaling = ScalingStatus(desired=desired, current=desired, reason="Fixed", data_state="Flowing")
    metrics.show(ServiceKey("ns", "web"), InferenceServiceStatus(scaling=scaling))
    return metrics


class Lease:
    """What all operators of a test see of it."""

    def __init__(self) -> None:
        self.holder: Holder | None = None


class Operator:
    """The API as one operator serves it; it may know numbers that nobody should hear."""

    def __init__(self, name: str, lease: Lease, tls: Path, desired: int) -> None:
        self.name, self.leads, self.address, self.asked = name, False, "", 0
        self.certificate = Certificate(tls)
        self.relay = Relay(name, lambda: lease.holder, lambda: self.certificate.fingerprints)
        self._source = external_metrics.Source(showing(desired), self._leads, self.relay)

    def _leads(self) -> bool:
        self.asked += 1
        return self.leads

    async def run(self, until: AsyncExitStack) -> None:
        runner = await external_metrics.serve(self._source, 0, self.certificate)
        until.push_async_callback(runner.cleanup)
        until.push_async_callback(self.relay.close)
        port = next(address[1] for address in runner.addresses if address[0] == "0.0.0.0")  # one family of two
        self.address = f"127.0.0.1:{port}"

    async def says(self, **headers: str) -> tuple[int, str]:
        """The code, and the number or the reason why there is none."""
        path = f"{ROOT}/namespaces/ns/tidegate_service_desired_replicas?labelSelector=service%3Dweb"
        code, body = await self.get(path, **headers)
        return code, body["items"][0]["value"] if code == 200 else body["message"]

    async def get(self, path: str, **headers: str) -> tuple[int, dict[str, list[dict[str, str]]]]:
        trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"https://{self.address}{path}", ssl=trust, headers=headers) as answer,
        ):
            return answer.status, await answer.json()


@pytest.fixture
def lease() -> Lease:
    return Lease()


@pytest.fixture
def tls(tmp_path: Path) -> Path:
    folder = tmp_path / "tls"
    make(folder)
    return folder


@pytest.fixture
async def pair(lease: Lease, tls: Path) -> AsyncIterator[tuple[Operator, Operator]]:
    """`a`, which leads and wants 7, and `b`, which stands by."""
    async with AsyncExitStack() as until:
        a, b = Operator("a", lease, tls, 7), Operator("b", lease, tls, 99)
        for one in (a, b):
            await one.run(until)
        a.leads, lease.holder = True, Holder("a", a.address)
        yield a, b


async def test_both_say_the_leaders_number(pair: tuple[Operator, Operator]) -> None:
    a, b = pair
    assert await a.says() == (200, "7000m")
    assert await b.says() == (200, "7000m")


async def test_the_one_that_takes_over_answers_by_itself_and_the_former_passes_on(
    pair: tuple[Operator, Operator], lease: Lease
) -> None:
    a, b = pair
    a.leads, b.leads = False, True
    assert (await a.says())[0] == 503, "the lease was not read again yet"
    lease.holder = Holder("b", b.address)
    assert (await b.says(), await a.says()) == ((200, "99000m"), (200, "99000m"))


async def test_a_question_goes_one_step_even_where_each_takes_the_other_for_the_leader(
    pair: tuple[Operator, Operator],
) -> None:
    a, b = pair
    a.leads = False
    code, why = await b.says()
    assert (code, a.asked, b.asked) == (503, 1, 1)
    assert "b took this operator for the leading one, which it is not" in why


async def test_one_that_leads_answers_whoever_passes_a_question_on(pair: tuple[Operator, Operator]) -> None:
    a, _ = pair
    assert await a.says(**{FORWARDED_BY: "b"}) == (200, "7000m")


def nobody_listens() -> str:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{taken.getsockname()[1]}"


@pytest.mark.parametrize(
    ("holder", "words"),
    [
        pytest.param(None, "no operator leads at the moment", id="the lease was given back"),
        pytest.param(
            Holder("b", "127.0.0.1:1"), "no operator leads at the moment", id="its own lease, and it does not lead yet"
        ),
        pytest.param(
            Holder("a", None), "the leading operator, a, does not say where", id="that one serves no external metrics"
        ),
        pytest.param(
            Holder("a", nobody_listens()), "the leading operator, a, did not answer at 127.0.0.1:", id="it is dead"
        ),
        pytest.param(Holder("a", "example.org:443/?"), "gives an address that is none", id="no address"),
        pytest.param(Holder("a", "10.0.0.1:0"), "gives an address that is none", id="no port"),
    ],
)
async def test_without_a_leader_that_answers_there_is_no_number_and_the_reason_is_told(
    pair: tuple[Operator, Operator], lease: Lease, holder: Holder | None, words: str
) -> None:
    _, b = pair
    lease.holder = holder
    code, why = await b.says()
    assert code == 503
    assert words in why
    assert why.endswith("an HPA holds meanwhile")
    assert await b.says() == (code, why), "told again in the same words, or the HPA's status would change at every look"


async def test_one_that_accepts_and_says_nothing_is_not_waited_for_long() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        holder = Holder("a", f"127.0.0.1:{silent.getsockname()[1]}")
        relay = Relay("b", lambda: holder, lambda: (bytes(32),), patience=0.05)
        with pytest.raises(NoAnswer, match=r"a, did not answer at 127\.0\.0\.1:\d+: no answer in time"):
            await relay.ask(ROOT)
        await relay.close()


async def test_the_api_is_there_without_a_leader_or_no_namespace_could_be_deleted(
    pair: tuple[Operator, Operator], lease: Lease
) -> None:
    _, b = pair
    lease.holder = None
    code, body = await b.get(ROOT)
    assert (code, len(body["resources"])) == (200, len(FAMILIES))


async def test_a_pod_that_got_the_address_of_a_dead_leader_cannot_answer_for_it(
    pair: tuple[Operator, Operator], lease: Lease, tmp_path: Path
) -> None:
    _, b = pair
    make(tmp_path / "stranger")  # the same name in it, and another key
    async with AsyncExitStack() as until:
        stranger = Operator("a", lease, tmp_path / "stranger", 1)
        await stranger.run(until)
        stranger.leads, lease.holder = True, Holder("a", stranger.address)
        code, why = await b.says()
    assert code == 503
    assert "has another certificate" in why
    assert stranger.asked == 0, "it did not even hear the question"


async def test_a_renewed_certificate_that_one_of_them_has_first_stops_nothing(
    pair: tuple[Operator, Operator], tls: Path, tmp_path: Path
) -> None:
    a, b = pair
    make(tmp_path / "new")
    for file in ("tls.crt", "tls.key"):
        shutil.copy(tmp_path / "new" / file, tls)
    b.certificate.renew()
    b.certificate.renew()  # that nothing has changed since makes the former one no newer
    assert await b.says() == (200, "7000m"), "b has the new one"
    a.certificate.renew()
    assert await b.says() == (200, "7000m"), "both have it"


@pytest.mark.parametrize(("ip", "written"), [("10.1.2.3", "10.1.2.3:8443"), ("fd00::7", "[fd00::7]:8443")])
def test_an_address_is_written_as_in_a_url(ip: str, written: str) -> None:
    assert authority(ip, 8443) == written
