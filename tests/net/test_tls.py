"""TLS before the doors: certificates that come, go and break, and clients who never finish their handshake."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import ssl
import time
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from harness.certificates import Authority
from harness.listening import Told, Wire, get, listening, post
from harness.waiting import eventually
from sidecar.net import handshakes
from sidecar.net.connections import BODY_LIMIT
from sidecar.net.listener import Refusal, body
from sidecar.net.tls import Pair, TlsDoors, certificate, client_context, expiry, listed, problem
from sidecar.server.agent_check import open_agent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from sidecar.net.listener import Listener, Routes

DAY_S = 86_400
UP = get("/up")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), "ours")


@pytest.fixture(scope="module")
def first(authority: Authority) -> Pair:
    return Pair(*map(str, authority.sign("first")))


@pytest.fixture(scope="module")
def second(authority: Authority) -> Pair:
    return Pair(*map(str, authority.sign("second")))


class Files:
    """A pair of files that changes, and what the doors tell of it."""

    def __init__(self, directory: Path, pair: Pair) -> None:
        self.pair = Pair(str(directory / "tls.crt"), str(directory / "tls.key"))
        self.expires: list[float] = []
        self.failures: list[Exception] = []
        self.replace(pair)

    def replace(self, by: Pair, *names: str) -> None:
        """Put these files in place of ours, as whoever renews certificates does."""
        for name in names or ("cert", "key"):
            place = getattr(self.pair, name)
            shutil.copy(getattr(by, name), f"{place}.new")
            Path(f"{place}.new").replace(place)

    def spoil(self, how: str) -> None:
        """Leave something of the certificate that is none: ``empty``, ``gone``, ``garbage`` or ``half``."""
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

    def doors(self, names: str = "page") -> TlsDoors:
        return TlsDoors(self.pair, names, on_loaded=self.expires.append, on_failure=self.failures.append)


@pytest.fixture
def files(tmp_path: Path, first: Pair) -> Files:
    return Files(tmp_path, first)


@pytest.fixture
def told() -> Told:
    return Told()


async def _up(_request: web.BaseRequest) -> web.Response:
    return web.Response(text="up\n")


async def _echo(request: web.BaseRequest) -> web.Response:
    return web.Response(body=await body(request))


async def _no(_request: web.BaseRequest) -> web.Response:
    raise Refusal(401, "token", "no")


ROUTES: Routes = {"/up": {"GET": _up}, "/echo": {"POST": _echo}, "/no": {"GET": _no}}


def _place(listener: Listener) -> tuple[str, int]:
    host, _, port = listener.addresses[0].rpartition(":")
    return host, int(port)


async def _wire(listener: Listener, context: ssl.SSLContext | None = None) -> Wire:
    return Wire(*await asyncio.open_connection(*_place(listener), ssl=context or client_context()))


async def _shown(listener: Listener) -> bytes | None:
    """The certificate that the door shows, in DER."""
    reader, writer = await asyncio.open_connection(*_place(listener), ssl=client_context())
    shown: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    await writer.wait_closed()
    assert await reader.read() == b""
    return shown


# -- the pair of files --------------------------------------------------------------------------------------


def test_expiry_is_what_openssl_says(authority: Authority, first: Pair) -> None:
    for path in (authority.ca, first.cert):
        told = ssl._ssl._test_decode_cert(str(path))  # type: ignore[attr-defined]  # as openssl reads it
        assert expiry(Path(path).read_bytes()) == ssl.cert_time_to_seconds(told["notAfter"])


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("nothing", ValueError),
        ("-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n", (ValueError, LookupError)),
    ],
    ids=["text", "empty sequence"],
)
def test_expiry_of_no_certificate_is_none(content: str, found: Any) -> None:
    with pytest.raises(found):
        expiry(content.encode())


@pytest.mark.parametrize(
    ("cert", "key", "said"),
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
def test_problem_of_a_pair_is_said_in_a_sentence(
    first: Pair, second: Pair, cert: str, key: str, said: str | None
) -> None:
    known = {
        f"{name}.{part}": getattr(pair, part)
        for name, pair in (("first", first), ("second", second))
        for part in pair._fields
    }
    found = problem(Pair(known.get(cert, cert), known.get(key, key)))
    assert found == said or (said is not None and found is not None and said in found)


def test_key_with_a_password_is_refused_without_asking_for_it(
    authority: Authority, first: Pair, tmp_path: Path
) -> None:
    locked = str(tmp_path / "locked.key")
    authority._openssl("ec", "-in", first.key, "-aes256", "-passout", "pass:secret", "-out", locked)
    assert "are no certificate and its key" in str(problem(Pair(first.cert, locked)))


async def test_without_a_pair_to_begin_with_the_door_waits_for_one(
    files: Files, told: Told, first: Pair, second: Pair
) -> None:
    files.replace(second, "key")
    doors = files.doors()
    async with listening(ROUTES, told, tls=doors) as door:
        assert [str(error).rpartition(": ")[2] for error in files.failures] == ["key values mismatch"]
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await _shown(door)
        files.replace(first)
        await doors.look()
        assert await _shown(door) == certificate(first.cert)
    assert told.words == ["handshake"]


@pytest.mark.parametrize(
    ("text", "names"),
    [("page", ("page",)), (" page , agent,", ("page", "agent")), ("", ())],
    ids=["one", "two", "none"],
)
async def test_doors_are_those_that_are_listed(files: Files, text: str, names: tuple[str, ...]) -> None:
    assert listed(text) == names
    doors = files.doors(text)
    assert [name for name in ("page", "public", "local", "agent") if doors.at(name) is doors] == [*names]


async def test_new_pair_is_shown_to_the_next_client_and_old_connections_go_on(
    files: Files, told: Told, first: Pair, second: Pair
) -> None:
    doors = files.doors()
    async with listening(ROUTES, told, tls=doors) as door, await _wire(door) as before:
        assert (await before.ask(UP)).status == 200
        assert await _shown(door) == certificate(first.cert)
        files.replace(second)
        await doors.look()
        assert await _shown(door) == certificate(second.cert)
        assert (await before.ask(UP)).status == 200
    assert [round(at - time.time(), -4) for at in files.expires] == [pytest.approx(2 * DAY_S, abs=DAY_S / 8)] * 2
    assert files.failures == []


@pytest.mark.parametrize("half", ["cert", "key"])
async def test_half_of_a_new_pair_changes_nothing_until_the_other_half_is_there(
    files: Files, told: Told, first: Pair, second: Pair, half: str
) -> None:
    doors = files.doors()
    async with listening(ROUTES, told, tls=doors) as door:
        files.replace(second, half)
        for count in (1, 2):
            await doors.look()
            assert len(files.failures) == count, "it is tried again, though nothing has changed"
            assert await _shown(door) == certificate(first.cert)
        files.replace(second)
        await doors.look()
        assert await _shown(door) == certificate(second.cert)
    assert len(files.failures) == 2


@pytest.mark.parametrize("broken", ["empty", "gone", "garbage", "half"])
async def test_broken_file_keeps_the_pair_before(files: Files, told: Told, first: Pair, broken: str) -> None:
    doors = files.doors()
    async with listening(ROUTES, told, tls=doors) as door:
        files.spoil(broken)
        await doors.look()
        assert await _shown(door) == certificate(first.cert)
        files.replace(first)
        await doors.look()
        assert await _shown(door) == certificate(first.cert)
    assert len(files.failures) == 1
    assert "BEGIN" not in str(files.failures[0])


async def test_pair_behind_links_that_are_turned_round_is_found(
    tmp_path: Path, told: Told, first: Pair, second: Pair
) -> None:
    for name, pair in (("one", first), ("two", second)):
        (tmp_path / name).mkdir()
        shutil.copy(pair.cert, tmp_path / name / "tls.crt")
        shutil.copy(pair.key, tmp_path / name / "tls.key")
    now = tmp_path / "now"
    now.symlink_to("one")
    failures: list[Exception] = []
    pair = Pair(str(now / "tls.crt"), str(now / "tls.key"))
    doors = TlsDoors(pair, "page", on_loaded=lambda _: None, on_failure=failures.append)
    async with listening(ROUTES, told, tls=doors) as door:
        (tmp_path / "next").symlink_to("two")
        (tmp_path / "next").rename(now)
        await doors.look()
        assert await _shown(door) == certificate(second.cert)
    assert failures == []


async def test_files_are_looked_at_again_and_again(files: Files, second: Pair) -> None:
    doors = files.doors()
    watching = asyncio.create_task(doors.watch(0.01))
    files.replace(second)
    await eventually(lambda: len(files.expires) == 2, timeout_s=5, what="the new pair is taken")
    watching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watching


async def test_loop_goes_on_while_the_files_cannot_be_read(files: Files) -> None:
    """A pipe without a writer hangs whoever opens it, as a disk that has gone does."""
    doors = files.doors()
    pipe = files.pipe()
    looking = asyncio.create_task(doors.look())
    for _ in range(20):
        await asyncio.sleep(0.001)
    assert not looking.done()
    # Without a reader this fails at once, instead of holding up the loop that is to start one.
    end = await eventually(lambda: os.open(pipe, os.O_WRONLY | os.O_NONBLOCK), timeout_s=10, what="it is being read")
    os.write(end, b"no key")
    os.close(end)
    await asyncio.wait_for(looking, 5)
    assert len(files.failures) == 1


# -- what a door makes of it --------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=lambda each: each.name)
async def test_door_serves_over_tls_and_keeps_the_connection(files: Files, told: Told, version: ssl.TLSVersion) -> None:
    context = client_context()
    context.minimum_version = context.maximum_version = version
    async with listening(ROUTES, told, tls=files.doors()) as door, await _wire(door, context) as wire:
        assert (await wire.ask(UP)).body == b"up\n"
        assert (await wire.ask(post("/echo", b"x" * BODY_LIMIT))).body == b"x" * BODY_LIMIT
        assert (await wire.ask(get("/none"))).status == 404
    assert told.words == ["path"]


async def test_door_is_known_to_whoever_knows_the_authority(files: Files, told: Told, authority: Authority) -> None:
    context = ssl.create_default_context(cafile=str(authority.ca))
    async with listening(ROUTES, told, tls=files.doors()) as door, await _wire(door, context) as wire:
        assert (await wire.ask(UP)).status == 200


async def test_request_that_comes_with_the_end_of_the_handshake_is_answered(files: Files, told: Told) -> None:
    async with listening(ROUTES, told, tls=files.doors()) as door:
        for _ in range(20):
            async with await _wire(door) as wire:
                assert (await wire.ask(UP)).status == 200
    assert told == Told()


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated")
async def test_older_tls_is_refused(files: Files, told: Told) -> None:
    context = client_context()
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    async with listening(ROUTES, told, tls=files.doors()) as door:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await _wire(door, context)
        await eventually(lambda: told.words == ["handshake"], timeout_s=5, what="it is counted")


@pytest.mark.parametrize("sent", [UP, b"\0" * 100, b"\x16\x03\x01\x00\x05hello"], ids=["HTTP", "zeros", "no hello"])
async def test_who_speaks_no_tls_is_cut_and_counted(files: Files, told: Told, sent: bytes) -> None:
    async with listening(ROUTES, told, tls=files.doors()) as door:
        async with await Wire.to(door) as wire:
            await wire.send(sent)
            assert b"HTTP" not in await wire.rest()
        async with await _wire(door) as wire:
            assert (await wire.ask(UP)).status == 200
    assert told.words == ["handshake"]
    assert told.failures == []


async def test_unix_socket_of_the_same_door_stays_plain(files: Files, told: Told, run_dir: Path) -> None:
    async with (
        listening(ROUTES, told, str(run_dir / "door.sock"), tls=files.doors()) as door,
        await Wire.to(door) as wire,
    ):
        assert (await wire.ask(UP)).status == 200


async def test_wrong_token_is_answered_later_and_a_right_request_is_not(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with listening(ROUTES, told) as door, await Wire.to(door) as wire, await Wire.to(door) as other:
        begun = time.monotonic()
        assert (await wire.ask(get("/no"))).status == 401
        assert time.monotonic() - begun >= 0.15
        monkeypatch.setattr("sidecar.net.listener.GUESS_S", 60)  # however long a busy machine takes for the other
        await wire.send(get("/no"))
        await eventually(lambda: len(told.words) == 2, timeout_s=5, what="the guess is seen")
        assert (await other.ask(UP)).status == 200


# -- handshakes that do not end -----------------------------------------------------------------------------


@asynccontextmanager
async def _crowd(place: tuple[str, int], count: int, hello: bytes = b"") -> AsyncIterator[list[socket.socket]]:
    """So many connections that say this and no more."""
    crowd: list[socket.socket] = []
    loop = asyncio.get_running_loop()
    try:
        for _ in range(count):
            one = socket.socket()
            one.setblocking(False)  # noqa: FBT003 - the name of the standard library
            crowd.append(one)
            await loop.sock_connect(one, place)
            if hello:
                await loop.sock_sendall(one, hello)
        yield crowd
    finally:
        for one in crowd:
            one.close()


def _hello() -> bytes:
    """The first flight of a client, after which it is for the server to sign."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        client_context().wrap_bio(incoming, outgoing).do_handshake()
    return outgoing.read()


@pytest.mark.parametrize("hello", [b"", b"\x16\x03\x01\x02\x00\x01", _hello()], ids=["silent", "half", "whole"])
async def test_crowd_of_half_handshakes_is_bounded_and_costs_the_next_client_little(
    files: Files, told: Told, monkeypatch: pytest.MonkeyPatch, hello: bytes
) -> None:
    turns = _count_turns(monkeypatch)
    async with listening(ROUTES, told, tls=files.doors()) as door:
        made = door._handshakes
        assert made is not None
        async with _crowd(_place(door), 400, hello):
            await eventually(lambda: "crowded" in told.words, timeout_s=10, what="some made room for others")
            assert len(made._waiting) <= handshakes.WAITING
            assert len(made._begun) <= handshakes.AT_ONCE
            begun = next(turns)
            async with await _wire(door) as wire:
                assert (await wire.ask(UP)).status == 200
            assert (next(turns) - begun) * handshakes.PACE_S < 1, "on a machine that has time for us"
    assert told.failures == []
    await eventually(lambda: not made.is_busy, timeout_s=5, what="nobody is left")


def _count_turns(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """How many handshakes have had their turn so far, each time one asks."""
    turns = 0
    turn = handshakes.Handshakes._turn

    def counted(crowd: handshakes.Handshakes) -> None:
        nonlocal turns
        turns += 1
        turn(crowd)

    monkeypatch.setattr(handshakes.Handshakes, "_turn", counted)
    return iter(lambda: turns, -1)


async def test_crowd_from_one_address_shuts_out_nobody_from_another(files: Files, told: Told) -> None:
    async with listening(ROUTES, told, tls=files.doors()) as door:
        host, port = _place(door)

        async def flood() -> None:
            while True:
                async with _crowd((host, port), 100, _hello()):
                    await asyncio.sleep(0)

        flooding = asyncio.create_task(flood())
        await eventually(lambda: "crowded" in told.words, timeout_s=10, what="the crowd is too large")
        for _ in range(5):
            streams = await asyncio.open_connection(host, port, ssl=client_context(), local_addr=("127.0.0.2", 0))
            async with Wire(*streams) as wire:
                assert (await wire.ask(UP)).status == 200
        flooding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await flooding


async def test_handshake_has_its_time_and_no_more(files: Files, told: Told) -> None:
    doors = files.doors()
    made: list[asyncio.Protocol] = []

    def make() -> asyncio.Protocol:
        made.append(asyncio.Protocol())
        return made[-1]

    crowd = handshakes.Handshakes(doors.context, make, lambda word: told.refused("x", word), told.failures.append, 0.1)
    server = await asyncio.get_running_loop().create_server(crowd, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    assert await asyncio.wait_for(reader.read(), 5) == b""
    writer.close()
    server.close()
    assert (told.words, told.failures, made) == (["handshake"], [], [])


async def test_handshakes_that_wait_end_with_the_door(files: Files, told: Told) -> None:
    async with listening(ROUTES, told, tls=files.doors()) as door:
        reader, writer = await asyncio.open_connection(*_place(door))
        await eventually(lambda: door.is_busy, timeout_s=5, what="it is seen")
    with suppress(ConnectionError):  # in good order or not
        assert await asyncio.wait_for(reader.read(), 5) == b""
    writer.close()


@pytest.fixture
def plain(told: Told) -> Iterator[Told]:
    yield told
    assert told.failures == []


async def test_plain_door_answers_while_another_is_flooded(files: Files, plain: Told) -> None:
    hello, took = _hello(), []
    async with listening(ROUTES, plain) as health, listening(ROUTES, Told(), tls=files.doors()) as flooded:

        async def flood() -> None:
            while True:
                async with _crowd(_place(flooded), 50, hello):
                    await asyncio.sleep(0)

        flooding = asyncio.create_task(flood())
        async with await Wire.to(health) as wire:
            for _ in range(200):
                begun = time.thread_time()  # of the loop that both doors share, whoever else the machine works for
                assert (await wire.ask(UP)).status == 200
                took.append(time.thread_time() - begun)
        flooding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await flooding
    assert sorted(took)[len(took) // 2] < 0.1


# -- the ends of connections --------------------------------------------------------------------------------


async def test_connection_with_tls_is_ended_and_not_given_away(files: Files, told: Told) -> None:
    async with listening(ROUTES, told, tls=files.doors()) as door, await _wire(door) as wire:
        assert (await wire.ask(UP)).status == 200
        await eventually(lambda: door.let_go() == [] and not door.is_busy, timeout_s=5, what="it is let go")
        assert await wire.rest() == b"", "in good order: an end without it would be an error of TLS"


async def test_agent_tells_its_line_over_tls(files: Files, told: Told) -> None:
    def broken() -> Any:
        raise LookupError("no snapshot: it counts as up")

    doors = files.doors("agent")
    server = await open_agent(
        "127.0.0.1",
        0,
        broken,
        maxconn=0,
        on_poll=lambda *_: None,
        on_failure=told.failures.append,
        over=lambda make: doors.over(make, lambda word: told.refused("agent", word), told.failures.append),
    )
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname(), ssl=client_context())
    assert await reader.read() == b"up ready 100%\n"
    writer.close()
    await writer.wait_closed()
    server.close()
    assert told.refusals == []
