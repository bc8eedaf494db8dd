"""TLS: certificates that change and break, clients that never finish their handshake, and floods of them."""

from __future__ import annotations

import asyncio
import math
import os
import shutil
import socket
import ssl
import time
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from aiohttp import web

from harness.certificates import Authority
from harness.own_address import own_address
from harness.raw_http import Observed, RawConnection, get, listening, post
from harness.waiting import eventually
from sidecar.net import acceptor
from sidecar.net.acceptor import HANDSHAKES, ConnectionStarter
from sidecar.net.address_gate import AddressGate, parse_networks
from sidecar.net.client_tls import KeyPair, certificate, client_context
from sidecar.net.tls import ServerTls, client_ca_problem, problem
from sidecar.net.web import BODY_LIMIT, HttpError, read_body

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sidecar.net.listener import Listener
    from sidecar.net.web import Routes

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


async def _up(_request: web.BaseRequest) -> web.Response:
    return web.Response(text="up\n")


async def _echo(request: web.BaseRequest) -> web.Response:
    return web.Response(body=await read_body(request))


async def _no(_request: web.BaseRequest) -> web.Response:
    raise HttpError(401, "token", "no")


ROUTES: Routes = {"/up": {"GET": _up}, "/echo": {"POST": _echo}, "/no": {"GET": _no}}


def _place(listener: Listener) -> tuple[str, int]:
    host, _, port = listener.addresses[0].rpartition(":")
    return host, int(port)


async def _connect(listener: Listener, context: ssl.SSLContext | None = None) -> RawConnection:
    return RawConnection(*await asyncio.open_connection(*_place(listener), ssl=context or client_context()))


async def _shown(listener: Listener) -> bytes | None:
    """The certificate that the listener shows, in DER."""
    reader, writer = await asyncio.open_connection(*_place(listener), ssl=client_context())
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
    async with listening(ROUTES, observed, tls=tls) as listener:
        assert [str(error).rpartition(": ")[2] for error in files.failures] == ["key values mismatch"]
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await _shown(listener)
        files.replace(first)
        await tls.reload()
        assert await _shown(listener) == certificate(first.cert)
    assert observed.words == ["handshake"]


async def test_new_pair_is_shown_to_new_connections_and_old_ones_go_on(
    files: Files, observed: Observed, first: KeyPair, second: KeyPair
) -> None:
    tls = files.tls()
    async with listening(ROUTES, observed, tls=tls) as listener, await _connect(listener) as before:
        assert (await before.ask(UP)).status == 200
        assert await _shown(listener) == certificate(first.cert)
        files.replace(second)
        await tls.reload()
        assert await _shown(listener) == certificate(second.cert)
        assert (await before.ask(UP)).status == 200
        await tls.reload()
    assert [round(at - time.time(), -4) for at in files.expires] == [pytest.approx(2 * DAY_S, abs=DAY_S / 8)] * 2
    assert files.failures == []


@pytest.mark.parametrize("half", ["cert", "key"])
async def test_half_of_a_new_pair_changes_nothing_until_the_other_half_is_there(
    files: Files, observed: Observed, first: KeyPair, second: KeyPair, half: str
) -> None:
    tls = files.tls()
    async with listening(ROUTES, observed, tls=tls) as listener:
        files.replace(second, half)
        for count in (1, 2):
            await tls.reload()
            assert len(files.failures) == count, "it is tried again, though nothing has changed"
            assert await _shown(listener) == certificate(first.cert)
        files.replace(second)
        await tls.reload()
        assert await _shown(listener) == certificate(second.cert)
    assert len(files.failures) == 2


@pytest.mark.parametrize("broken", ["empty", "gone", "garbage", "half"])
async def test_broken_file_keeps_the_previous_pair(
    files: Files, observed: Observed, first: KeyPair, broken: str
) -> None:
    tls = files.tls()
    async with listening(ROUTES, observed, tls=tls) as listener:
        files.spoil(broken)
        await tls.reload()
        assert await _shown(listener) == certificate(first.cert)
        files.replace(first)
        await tls.reload()
        assert await _shown(listener) == certificate(first.cert)
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
    async with listening(ROUTES, observed, tls=tls) as listener:
        (tmp_path / "next").symlink_to("two")
        (tmp_path / "next").rename(now)
        await tls.reload()
        assert await _shown(listener) == certificate(second.cert)
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
    async with listening(ROUTES, observed, tls=files.tls()) as listener, await _connect(listener, context) as client:
        assert (await client.ask(UP)).body == b"up\n"
        assert (await client.ask(post("/echo", b"x" * BODY_LIMIT))).body == b"x" * BODY_LIMIT
        assert (await client.ask(get("/none"))).status == 404
    assert observed.words == ["path"]


async def test_request_that_comes_with_the_end_of_the_handshake_is_answered(files: Files, observed: Observed) -> None:
    async with listening(ROUTES, observed, tls=files.tls()) as listener:
        for _ in range(20):
            async with await _connect(listener) as client:
                assert (await client.ask(UP)).status == 200
    assert observed == Observed()


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated")
async def test_older_tls_is_refused(files: Files, observed: Observed) -> None:
    context = client_context()
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    async with listening(ROUTES, observed, tls=files.tls()) as listener:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await _connect(listener, context)
        await eventually(lambda: observed.words == ["handshake"], timeout_s=60, what="it is counted")


@pytest.mark.parametrize("sent", [UP, b"\0" * 100, b"\x16\x03\x01\x00\x05hello"], ids=["HTTP", "zeros", "no hello"])
async def test_client_that_speaks_no_tls_is_cut_and_counted(files: Files, observed: Observed, sent: bytes) -> None:
    async with listening(ROUTES, observed, tls=files.tls()) as listener:
        async with await RawConnection.to(listener) as client:
            await client.send(sent)
            assert b"HTTP" not in await client.rest()
        async with await _connect(listener) as client:
            assert (await client.ask(UP)).status == 200
    assert observed.words == ["handshake"]
    assert observed.failures == []


async def test_unix_socket_of_the_same_listener_stays_plain(files: Files, observed: Observed, run_dir: Path) -> None:
    async with (
        listening(ROUTES, observed, str(run_dir / "http.sock"), tls=files.tls()) as listener,
        await RawConnection.to(listener) as client,
    ):
        assert (await client.ask(UP)).status == 200


async def test_wrong_token_is_answered_later_and_a_right_request_is_not(
    observed: Observed, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        listening(ROUTES, observed) as listener,
        await RawConnection.to(listener) as client,
        await RawConnection.to(listener) as other,
    ):
        begun = time.monotonic()
        assert (await client.ask(get("/no"))).status == 401
        assert time.monotonic() - begun >= 0.15
        monkeypatch.setattr("sidecar.net.listener.WRONG_TOKEN_S", 60)  # however busy the machine is
        await client.send(get("/no"))
        await eventually(lambda: len(observed.words) == 2, timeout_s=60, what="the wrong token is seen")
        assert (await other.ask(UP)).status == 200


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


async def _is_served(listener: Listener, own: KeyPair | None, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> bool:
    """Whether a client with this certificate is answered. With TLS 1.3 it learns that only after its handshake."""
    context = client_context(own)
    context.minimum_version = context.maximum_version = version
    try:
        async with await _connect(listener, context) as client:
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
    async with listening(ROUTES, observed, tls=files.tls(authority.ca)) as listener:
        for number, (what, own) in enumerate(strangers.items(), 1):
            assert not await _is_served(listener, own, version), what
            await eventually(lambda n=number: len(observed.words) == n, timeout_s=60, what="it is counted")  # type: ignore[misc]
        assert await _is_served(listener, files.pair, version)
    assert observed.words == ["certificate"] * len(strangers)
    assert observed.failures == []
    assert [math.isnan(each) for each in files.expires] == [False], "our own certificate's end is known all the same"


async def test_new_authority_of_the_clients_is_used_and_a_broken_one_changes_nothing(
    files: Files, observed: Observed, authority: Authority, stranger: Authority, first: KeyPair
) -> None:
    tls, other = files.tls(authority.ca), KeyPair(*map(str, stranger.sign("other")))
    async with listening(ROUTES, observed, tls=tls) as listener:
        assert [await _is_served(listener, own) for own in (first, other)] == [True, False]
        files.client_ca.write_text("")
        await tls.reload()
        assert str(files.failures[0]).startswith(f"{files.client_ca} has no certificates in PEM")
        assert [await _is_served(listener, own) for own in (first, other)] == [True, False]
        shutil.copy(stranger.ca, files.client_ca)
        await tls.reload()
        assert [await _is_served(listener, own) for own in (first, other)] == [False, True]
        files.client_ca.write_text(authority.ca.read_text() + stranger.ca.read_text())
        await tls.reload()
        assert [await _is_served(listener, own) for own in (first, other)] == [True, True]
    assert len(files.failures) == 1


async def test_authority_that_cannot_be_read_at_the_start_lets_nobody_in(
    files: Files, observed: Observed, first: KeyPair
) -> None:
    tls = ServerTls(first, "/nowhere/ca.pem", on_loaded=files.expires.append, on_failure=files.failures.append)
    async with listening(ROUTES, observed, tls=tls) as listener:
        assert not await _is_served(listener, first)
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
    async with listening(ROUTES, observed, tls=files.tls(), gate=gate) as listener:
        streams = await asyncio.open_connection(*_place(listener), local_addr=(own_address(), 0))
        async with RawConnection(*streams) as stranger:
            await stranger.send(_hello())
            assert await stranger.rest() == b""
        async with await _connect(listener) as known:
            assert (await known.ask(UP)).status == 200
    assert observed.words == ["address"]


# -- handshakes that do not end -----------------------------------------------------------------------------


@asynccontextmanager
async def _connections(place: tuple[str, int], count: int, hello: bytes = b"") -> AsyncIterator[None]:
    """Connections that send ``hello`` and no more."""
    opened: list[socket.socket] = []
    loop = asyncio.get_running_loop()
    try:
        for _ in range(count):
            connection = socket.socket()
            connection.setblocking(False)  # noqa: FBT003 - the name of the standard library
            opened.append(connection)
            await loop.sock_connect(connection, place)
            if hello:
                with suppress(ConnectionError):  # cut already
                    await loop.sock_sendall(connection, hello)
        yield
    finally:
        for connection in opened:
            connection.close()


def _hello() -> bytes:
    """The first flight of a client, which the server answers with a signature."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        client_context().wrap_bio(incoming, outgoing).do_handshake()
    return outgoing.read()


@asynccontextmanager
async def _flood(place: tuple[str, int], count: int) -> AsyncIterator[None]:
    """Whole hellos of ``count`` connections, again and again."""

    async def flood() -> None:
        while True:
            async with _connections(place, count, _hello()):
                await asyncio.sleep(0)

    flooding = asyncio.create_task(flood())
    try:
        yield
    finally:
        flooding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await flooding


@pytest.mark.parametrize("hello", [b"", b"\x16\x03\x01\x02\x00\x01", _hello()], ids=["silent", "half", "whole"])
async def test_unfinished_handshakes_are_bounded_and_the_next_client_is_served(
    files: Files, observed: Observed, monkeypatch: pytest.MonkeyPatch, hello: bytes
) -> None:
    monkeypatch.setattr(acceptor, "HANDSHAKE_MIN_S", 0.05)
    async with listening(ROUTES, observed, tls=files.tls()) as listener:
        starter = listener._starter
        async with _connections(_place(listener), 400, hello):
            await eventually(lambda: len(observed.words) >= 300, timeout_s=60, what="the oldest are cut")
            assert len(starter._starting) <= HANDSHAKES
            async with await _connect(listener) as client:
                assert (await client.ask(UP)).status == 200
        await eventually(lambda: not starter._starting, timeout_s=60, what="none is left")
    assert {*observed.words} <= {"crowded", "handshake"}
    assert observed.failures == []


async def test_handshake_is_not_cut_for_another_before_its_time(
    files: Files, observed: Observed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acceptor, "HANDSHAKE_MIN_S", 3600)
    starter = ConnectionStarter(lambda word: observed.refused("x", word), observed.failures.append)
    pairs = [socket.socketpair() for _ in range(HANDSHAKES)]
    for ours, _ in pairs:
        assert starter.may_begin()
        ours.setblocking(False)  # noqa: FBT003 - the name of the standard library
        starter.begin(ours, asyncio.Protocol, files.tls().context)
    assert (starter.may_begin(), observed.words) == (False, [])
    monkeypatch.setattr(acceptor, "HANDSHAKE_MIN_S", 0)
    assert (starter.may_begin(), observed.words) == (True, ["crowded"])
    starter.close()
    await eventually(lambda: not starter._starting, timeout_s=60, what="all are cut")
    assert [ours.fileno() for ours, _ in pairs] == [-1] * HANDSHAKES
    for _, theirs in pairs:
        theirs.close()


async def test_flood_from_one_address_does_not_shut_out_another(files: Files, observed: Observed) -> None:
    async with listening(ROUTES, observed, tls=files.tls()) as listener:
        host, port = _place(listener)
        async with _flood((host, port), 100):
            await eventually(lambda: len(observed.words) > HANDSHAKES, timeout_s=60, what="the flood has begun")
            for _ in range(5):
                streams = await asyncio.open_connection(host, port, ssl=client_context(), local_addr=("127.0.0.2", 0))
                async with RawConnection(*streams) as client:
                    assert (await client.ask(UP)).status == 200


async def test_clients_that_come_at_once_are_all_served(files: Files, observed: Observed) -> None:
    async with listening(ROUTES, observed, tls=files.tls(), is_priority=True) as listener:

        async def ask() -> int:
            async with await _connect(listener) as client:
                return (await client.ask(UP)).status

        assert await asyncio.gather(*(ask() for _ in range(3 * HANDSHAKES))) == [200] * 3 * HANDSHAKES
    assert observed == Observed()


async def test_handshake_has_its_time_and_no_more(
    files: Files, observed: Observed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acceptor, "HANDSHAKE_S", 0.1)
    made: list[asyncio.Protocol] = []

    def make() -> asyncio.Protocol:
        made.append(asyncio.Protocol())
        return made[-1]

    ours, theirs = socket.socketpair()
    ours.setblocking(False)  # noqa: FBT003 - the name of the standard library
    starter = ConnectionStarter(lambda word: observed.refused("x", word), observed.failures.append)
    await asyncio.wait_for(starter._start(ours, make, files.tls().context), 60)
    assert (observed.words, observed.failures) == (["handshake"], [])
    assert ours.fileno() < 0
    theirs.close()


async def test_connection_that_has_not_begun_to_start_is_closed_too(files: Files, observed: Observed) -> None:
    ours, theirs = socket.socketpair()
    starter = ConnectionStarter(lambda word: observed.refused("x", word), observed.failures.append)
    starter.begin(ours, asyncio.Protocol, files.tls().context)
    starter.close()
    await eventually(lambda: not starter._starting, timeout_s=60, what="it is cancelled")
    assert (ours.fileno(), observed) == (-1, Observed())
    theirs.close()


async def test_unfinished_handshakes_end_with_the_listener(files: Files, observed: Observed) -> None:
    async with listening(ROUTES, observed, tls=files.tls()) as listener:
        reader, writer = await asyncio.open_connection(*_place(listener))
        await eventually(lambda: listener._starter._starting, timeout_s=60, what="it is accepted")
    with suppress(ConnectionError):  # in good order or not
        assert await asyncio.wait_for(reader.read(), 60) == b""
    writer.close()


async def test_plain_listener_answers_while_another_is_flooded(files: Files, observed: Observed) -> None:
    took = []
    async with (
        listening(ROUTES, observed) as health,
        listening(ROUTES, Observed(), tls=files.tls()) as flooded,
        _flood(_place(flooded), 50),
        await RawConnection.to(health) as client,
    ):
        for _ in range(200):
            begun = time.thread_time()  # of the loop of both listeners, however busy the machine is
            assert (await client.ask(UP)).status == 200
            took.append(time.thread_time() - begun)
    assert sorted(took)[len(took) // 2] < 0.1
    assert observed.failures == []
