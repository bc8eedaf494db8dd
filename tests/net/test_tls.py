"""TLS: certificates that change and break, clients that never finish their handshake, and floods of them."""

from __future__ import annotations

import asyncio
import math
import os
import shutil
import socket
import ssl
import struct
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.certificates import Authority, certificate, client_context
from harness.own_address import own_address
from harness.public_door import connect, place_of, public_door, up
from harness.raw_http import Observed, RawConnection, get
from harness.waiting import eventually
from sidecar.net.address_gate import AddressGate, parse_networks
from sidecar.net.client_tls import KeyPair
from sidecar.net.tls import ServerTls, client_ca_problem, problem
from sidecar.server import public
from sidecar.server.public_answer import PublicAnswer

if TYPE_CHECKING:
    from sidecar.server.public import PublicServer
    from sidecar.server.public_request import PublicRequest

DAY_S = 86_400
UP = get("/up")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), "ours")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("stranger"), "theirs")


@pytest.fixture(scope="module")
def first(authority: Authority) -> KeyPair:
    return KeyPair(*map(str, authority.sign("first")))


@pytest.fixture(scope="module")
def second(authority: Authority) -> KeyPair:
    return KeyPair(*map(str, authority.sign("second")))


class Files:
    """A pair of files that changes, and what ``ServerTls`` reports of it."""

    def __init__(self, directory: Path, pair: KeyPair) -> None:
        self.pair = KeyPair(str(directory / "tls.crt"), str(directory / "tls.key"))
        self.client_ca = directory / "clients.pem"
        self.expires: list[float] = []
        self.failures: list[Exception] = []
        self.replace(pair)

    def replace(self, by: KeyPair, *names: str) -> None:
        """Put these files in place of the present ones, as renewal tools do."""
        for name in names or ("cert", "key"):
            place = getattr(self.pair, name)
            shutil.copy(getattr(by, name), f"{place}.new")
            Path(f"{place}.new").replace(place)

    def spoil(self, how: str) -> None:
        """Make the certificate ``empty``, ``gone``, ``garbage`` or ``half``."""
        cert = Path(self.pair.cert)
        whole = cert.read_text()
        if how == "gone":
            cert.unlink()
        else:
            cert.write_text({"half": whole[: len(whole) // 2], "garbage": "\0" * 3_000}.get(how, ""))

    def pipe(self) -> Path:
        """Put a pipe in place of the key."""
        key = Path(self.pair.key)
        key.unlink()
        os.mkfifo(key)
        return key

    def tls(self, client_ca: Path | None = None) -> ServerTls:
        """The TLS of these files; ``client_ca``: the authority of the clients at first."""
        path = "" if client_ca is None else str(shutil.copy(client_ca, self.client_ca))
        return ServerTls(self.pair, path, on_loaded=self.expires.append, on_failure=self.failures.append)


@pytest.fixture
def files(tmp_path: Path, first: KeyPair) -> Files:
    return Files(tmp_path, first)


@pytest.fixture
def observed() -> Observed:
    return Observed()


async def _connect(server: PublicServer, context: ssl.SSLContext | None = None) -> RawConnection:
    return await connect(server, context=context or client_context())


async def _shown(server: PublicServer) -> bytes | None:
    """The certificate that the listener shows, in DER."""
    reader, writer = await asyncio.open_connection(*place_of(server), ssl=client_context())
    shown: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    await writer.wait_closed()
    assert await reader.read() == b""
    return shown


# -- the pair of files --------------------------------------------------------------------------------------


@pytest.mark.parametrize("days", [2, 0], ids=["valid", "expired"])
def test_expiry_is_what_openssl_says(authority: Authority, tmp_path: Path, days: int) -> None:
    files = Files(tmp_path, KeyPair(*map(str, authority.sign(f"for-{days}", days=days))))
    files.tls()
    decoded = ssl._ssl._test_decode_cert(files.pair.cert)  # type: ignore[attr-defined]  # as openssl reads it
    assert files.expires == [ssl.cert_time_to_seconds(decoded["notAfter"])]
    assert files.failures == []


def test_expiry_of_a_certificate_that_no_client_accepts_is_not_known(authority: Authority, tmp_path: Path) -> None:
    cert, key = authority.sign("clients-only", extensions="extendedKeyUsage=clientAuth\n")
    files = Files(tmp_path, KeyPair(str(cert), str(key)))
    files.tls()
    assert [math.isnan(each) for each in files.expires] == [True]
    assert files.failures == []


@pytest.mark.parametrize(
    ("cert", "key", "sentence"),
    [
        ("first.cert", "first.key", None),
        ("first.cert", "second.key", "key values mismatch"),
        ("first.key", "first.key", "are no certificate and its key"),
        ("first.cert", "first.cert", "are no certificate and its key"),
        ("/nowhere/tls.crt", "first.key", "/nowhere/tls.crt cannot be read: no such file or directory"),
        ("first.cert", "/etc", "/etc cannot be read: is a directory"),
        ("first.cert", "/dev/null", "are no certificate and its key"),
    ],
    ids=["pair", "two pairs", "key for both", "certificate for both", "missing", "directory", "empty"],
)
def test_problem_of_a_pair_is_a_sentence(
    first: KeyPair, second: KeyPair, cert: str, key: str, sentence: str | None
) -> None:
    known = {
        f"{name}.{part}": getattr(pair, part)
        for name, pair in (("first", first), ("second", second))
        for part in pair._fields
    }
    found = problem(KeyPair(known.get(cert, cert), known.get(key, key)))
    assert found == sentence or (sentence is not None and found is not None and sentence in found)


def test_key_with_a_password_is_refused_without_asking_for_it(
    authority: Authority, first: KeyPair, tmp_path: Path
) -> None:
    locked = str(tmp_path / "locked.key")
    authority._openssl("ec", "-in", first.key, "-aes256", "-passout", "pass:secret", "-out", locked)
    assert "are no certificate and its key" in str(problem(KeyPair(first.cert, locked)))


async def test_without_a_pair_no_handshake_succeeds_until_there_is_one(
    files: Files, observed: Observed, first: KeyPair, second: KeyPair
) -> None:
    files.replace(second, "key")
    tls = files.tls()
    async with public_door(observed, tls=tls) as server:
        assert [str(error).rpartition(": ")[2] for error in files.failures] == ["key values mismatch"]
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await _shown(server)
        files.replace(first)
        await tls.reload()
        assert await _shown(server) == certificate(first.cert)
    assert observed.words == ["handshake"]


async def test_new_pair_is_shown_to_new_connections_and_old_ones_go_on(
    files: Files, observed: Observed, first: KeyPair, second: KeyPair
) -> None:
    tls = files.tls()
    async with public_door(observed, tls=tls) as server, await _connect(server) as before:
        assert (await before.ask(UP)).status == 200
        assert await _shown(server) == certificate(first.cert)
        files.replace(second)
        await tls.reload()
        assert await _shown(server) == certificate(second.cert)
        assert (await before.ask(UP)).status == 200
        await tls.reload()
    assert [round(at - time.time(), -4) for at in files.expires] == [pytest.approx(2 * DAY_S, abs=DAY_S / 8)] * 2
    assert files.failures == []


@pytest.mark.parametrize("half", ["cert", "key"])
async def test_half_of_a_new_pair_changes_nothing_until_the_other_half_is_there(
    files: Files, observed: Observed, first: KeyPair, second: KeyPair, half: str
) -> None:
    tls = files.tls()
    async with public_door(observed, tls=tls) as server:
        files.replace(second, half)
        for count in (1, 2):
            await tls.reload()
            assert len(files.failures) == count, "it is tried again, though nothing has changed"
            assert await _shown(server) == certificate(first.cert)
        files.replace(second)
        await tls.reload()
        assert await _shown(server) == certificate(second.cert)
    assert len(files.failures) == 2


@pytest.mark.parametrize("broken", ["empty", "gone", "garbage", "half"])
async def test_broken_file_keeps_the_previous_pair(
    files: Files, observed: Observed, first: KeyPair, broken: str
) -> None:
    tls = files.tls()
    async with public_door(observed, tls=tls) as server:
        files.spoil(broken)
        await tls.reload()
        assert await _shown(server) == certificate(first.cert)
        files.replace(first)
        await tls.reload()
        assert await _shown(server) == certificate(first.cert)
    assert len(files.failures) == 1
    assert "BEGIN" not in str(files.failures[0])


async def test_pair_behind_a_link_that_changes_is_found(
    tmp_path: Path, observed: Observed, first: KeyPair, second: KeyPair
) -> None:
    for name, pair in (("one", first), ("two", second)):
        (tmp_path / name).mkdir()
        shutil.copy(pair.cert, tmp_path / name / "tls.crt")
        shutil.copy(pair.key, tmp_path / name / "tls.key")
    now = tmp_path / "now"
    now.symlink_to("one")
    failures: list[Exception] = []
    pair = KeyPair(str(now / "tls.crt"), str(now / "tls.key"))
    tls = ServerTls(pair, on_loaded=lambda _: None, on_failure=failures.append)
    async with public_door(observed, tls=tls) as server:
        (tmp_path / "next").symlink_to("two")
        (tmp_path / "next").rename(now)
        await tls.reload()
        assert await _shown(server) == certificate(second.cert)
    assert failures == []


async def test_files_are_looked_at_again_and_again(files: Files, second: KeyPair) -> None:
    watching = asyncio.create_task(files.tls().watch(0.01))
    files.replace(second)
    await eventually(lambda: len(files.expires) == 2, timeout_s=60, what="the new pair is used")
    watching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watching


async def test_loop_goes_on_while_the_files_cannot_be_read(files: Files) -> None:
    """A pipe without a writer hangs the thread that opens it, as a lost disk does."""
    tls = files.tls()
    key = files.pipe()
    reloading = asyncio.create_task(tls.reload())
    for _ in range(20):
        await asyncio.sleep(0.001)
    assert not reloading.done()
    # Opening a pipe for writing fails as long as no thread reads it.
    end = await eventually(lambda: os.open(key, os.O_WRONLY | os.O_NONBLOCK), timeout_s=60, what="it is being read")
    os.close(end)
    reloading.cancel()


# -- a listener with TLS ------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=lambda each: each.name)
async def test_listener_serves_over_tls_and_keeps_the_connection(
    files: Files, observed: Observed, authority: Authority, version: ssl.TLSVersion
) -> None:
    context = ssl.create_default_context(cafile=str(authority.ca))
    context.minimum_version = context.maximum_version = version
    async with public_door(observed, tls=files.tls()) as server, await _connect(server, context) as client:
        assert (await client.ask(UP)).body == b"up\n"
        assert (await client.ask(get("/none"))).status == 404
    assert observed.words == ["path"]


async def test_request_that_comes_with_the_end_of_the_handshake_is_answered(files: Files, observed: Observed) -> None:
    async with public_door(observed, tls=files.tls()) as server:
        for _ in range(20):
            async with await _connect(server) as client:
                assert (await client.ask(UP)).status == 200
    assert observed == Observed()


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated")
async def test_older_tls_is_refused(files: Files, observed: Observed) -> None:
    context = client_context()
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    async with public_door(observed, tls=files.tls()) as server:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await _connect(server, context)
        await eventually(lambda: observed.words == ["handshake"], timeout_s=60, what="it is counted")


@pytest.mark.parametrize("sent", [UP, b"\0" * 100, b"\x16\x03\x01\x00\x05hello"], ids=["HTTP", "zeros", "no hello"])
async def test_client_that_speaks_no_tls_is_cut_and_counted(files: Files, observed: Observed, sent: bytes) -> None:
    async with public_door(observed, tls=files.tls()) as server:
        async with await RawConnection.to(server) as client:
            await client.send(sent)
            assert b"HTTP" not in await client.rest()
        async with await _connect(server) as client:
            assert (await client.ask(UP)).status == 200
    assert observed.words == ["handshake"]
    assert observed.failures == []


# -- certificates of clients ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def strangers(authority: Authority, stranger: Authority) -> dict[str, KeyPair | None]:
    """What clients show who are not to be served."""
    return {
        "none": None,
        "of another authority": KeyPair(*map(str, stranger.sign("client"))),
        "expired": KeyPair(*map(str, authority.sign("late", days=0))),
        "for servers only": KeyPair(*map(str, authority.sign("server", extensions="extendedKeyUsage=serverAuth\n"))),
    }


async def _is_served(
    server: PublicServer, own: KeyPair | None, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3
) -> bool:
    """Whether a client with this certificate is answered. With TLS 1.3 it learns that only after its handshake."""
    context = client_context(own)
    context.minimum_version = context.maximum_version = version
    try:
        async with await _connect(server, context) as client:
            return (await client.ask(UP)).status == 200
    except (ssl.SSLError, ConnectionError, asyncio.IncompleteReadError):
        return False


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=lambda each: each.name)
async def test_client_without_a_certificate_of_the_authority_gets_no_answer_and_is_counted(
    files: Files,
    observed: Observed,
    authority: Authority,
    strangers: dict[str, KeyPair | None],
    version: ssl.TLSVersion,
) -> None:
    async with public_door(observed, tls=files.tls(authority.ca)) as server:
        for number, (what, own) in enumerate(strangers.items(), 1):
            assert not await _is_served(server, own, version), what
            await eventually(lambda n=number: len(observed.words) == n, timeout_s=60, what="it is counted")  # type: ignore[misc]
        assert await _is_served(server, files.pair, version)
    assert observed.words == ["certificate"] * len(strangers)
    assert observed.failures == []
    assert [math.isnan(each) for each in files.expires] == [False], "our own certificate's end is known all the same"


async def test_new_authority_of_the_clients_is_used_and_a_broken_one_changes_nothing(
    files: Files, observed: Observed, authority: Authority, stranger: Authority, first: KeyPair
) -> None:
    tls, other = files.tls(authority.ca), KeyPair(*map(str, stranger.sign("other")))
    async with public_door(observed, tls=tls) as server:
        assert [await _is_served(server, own) for own in (first, other)] == [True, False]
        files.client_ca.write_text("")
        await tls.reload()
        assert str(files.failures[0]).startswith(f"{files.client_ca} has no certificates in PEM")
        assert [await _is_served(server, own) for own in (first, other)] == [True, False]
        shutil.copy(stranger.ca, files.client_ca)
        await tls.reload()
        assert [await _is_served(server, own) for own in (first, other)] == [False, True]
        files.client_ca.write_text(authority.ca.read_text() + stranger.ca.read_text())
        await tls.reload()
        assert [await _is_served(server, own) for own in (first, other)] == [True, True]
    assert len(files.failures) == 1


async def test_authority_that_cannot_be_read_at_the_start_lets_nobody_in(
    files: Files, observed: Observed, first: KeyPair
) -> None:
    tls = ServerTls(first, "/nowhere/ca.pem", on_loaded=files.expires.append, on_failure=files.failures.append)
    async with public_door(observed, tls=tls) as server:
        assert not await _is_served(server, first)
    assert [str(error) for error in files.failures] == ["/nowhere/ca.pem cannot be read: no such file or directory"]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("ca", None),
        ("cert", None),
        ("key", "has no certificates in PEM"),
        ("/dev/null", "/dev/null has no certificates in PEM"),
        ("/nowhere/ca.pem", "/nowhere/ca.pem cannot be read: no such file or directory"),
        ("/etc", "/etc cannot be read: is a directory"),
    ],
)
def test_problem_of_an_authority_is_a_sentence(
    authority: Authority, first: KeyPair, name: str, sentence: str | None
) -> None:
    path = {"ca": str(authority.ca), **first._asdict()}.get(name, name)
    found = client_ca_problem(path)
    assert found == sentence or (sentence is not None and found is not None and sentence in found)


async def test_client_at_an_address_that_is_not_listed_gets_no_handshake(files: Files, observed: Observed) -> None:
    gate = AddressGate(parse_networks("198.51.100.7"), lambda: observed.refused("listener", "address"))
    async with public_door(observed, tls=files.tls(), gate=gate) as server:
        async with await connect(server, own_address()) as stranger:
            await stranger.send(_hello())
            assert await stranger.rest() == b""
        async with await _connect(server) as known:
            assert (await known.ask(UP)).status == 200
    assert observed.words == ["address"]


# -- the ends of connections and of handshakes --------------------------------------------------------------


async def test_large_answer_reaches_a_client_that_reads_late_and_then_ends_in_good_order(
    files: Files, observed: Observed
) -> None:
    def large(request: PublicRequest) -> PublicAnswer:
        return PublicAnswer(200, b"x" * 5_000_000) if request.path == "/large" else up(request)

    async with public_door(observed, large, tls=files.tls()) as server, await _connect(server) as client:
        client.stops_reading()
        await client.send(get("/large"))
        await asyncio.sleep(0.01)
        client.reads_on()
        assert (await client.answer()).body == b"x" * 5_000_000
        assert (await client.ask(UP)).body == b"up\n"


@pytest.mark.parametrize("request_", [b"GET /up HTTP/1.0\r\n\r\n", b"nonsense\r\n", UP + UP])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=lambda each: each.name)
async def test_last_answer_ends_with_the_notice_that_nothing_is_cut_off(
    files: Files, observed: Observed, version: ssl.TLSVersion, request_: bytes
) -> None:
    context = client_context()
    context.minimum_version = context.maximum_version = version

    def ask(place: tuple[str, int]) -> bytes:
        with (
            socket.create_connection(place, 60) as plain,
            context.wrap_socket(plain, suppress_ragged_eofs=False) as client,
        ):
            client.sendall(request_)
            return b"".join(iter(lambda: client.recv(65_536), b""))

    async with public_door(observed, tls=files.tls()) as server:
        answer = await asyncio.to_thread(ask, place_of(server))
    assert answer.startswith(b"HTTP/1.1 ")
    assert answer.count(b"HTTP/1.1 ") == 1


def _hello() -> bytes:
    """The first flight of a client, which the server answers with a signature."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        client_context().wrap_bio(incoming, outgoing).do_handshake()
    return outgoing.read()


@pytest.mark.parametrize("hello", [b"", b"\x16\x03\x01\x02\x00\x01", _hello()], ids=["silent", "half", "whole"])
async def test_handshakes_that_one_address_does_not_finish_keep_no_other_out(
    files: Files, observed: Observed, hello: bytes
) -> None:
    async with public_door(observed, tls=files.tls(), most=80) as server, AsyncExitStack() as held:
        kept = await held.enter_async_context(await _connect(server))
        assert (await kept.ask(UP)).status == 200
        for _ in range(200):
            attacker = await held.enter_async_context(await connect(server, "127.0.0.2"))
            await attacker.send(hello)
        await eventually(lambda: len(observed.words) >= 161, timeout_s=60, what="they take each other's places")
        assert server.connected == 40
        assert (await kept.ask(UP)).status == 200
        async with await _connect(server) as client:
            assert (await client.ask(UP)).status == 200
    assert {*observed.words} == {"crowded"}


async def test_clients_that_come_at_once_are_all_served(files: Files, observed: Observed) -> None:
    async with public_door(observed, tls=files.tls()) as server:

        async def ask() -> int:
            async with await _connect(server) as client:
                return (await client.ask(UP)).status

        assert await asyncio.gather(*(ask() for _ in range(100))) == [200] * 100
    assert observed == Observed()


async def test_handshake_has_its_time_and_no_more(
    files: Files, observed: Observed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(public, "SWEEP_S", 0.01)
    monkeypatch.setattr(public, "SLOW_S", 0.05)
    async with public_door(observed, tls=files.tls()) as server, await connect(server) as client:
        await client.send(_hello())
        assert (await client.rest())[:1] == b"\x16", "the server's part of the handshake"
    assert (observed.words, observed.failures) == (["handshake"], [])


async def test_client_that_has_gone_before_its_handshake_does_no_harm(files: Files, observed: Observed) -> None:
    async with public_door(observed, tls=files.tls()) as server:
        for hello in (b"", _hello()) * 10:
            with socket.create_connection(place_of(server)) as leaving:
                leaving.sendall(hello)
                leaving.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        async with await _connect(server) as client:
            assert (await client.ask(UP)).status == 200
    assert {*observed.words} <= {"handshake"}
    assert observed.failures == []
