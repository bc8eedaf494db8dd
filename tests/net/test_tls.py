"""TLS: certificates that change and break, and the authorities of clients. The listener is in ``test_public_tls``."""

from __future__ import annotations

import asyncio
import math
import os
import shutil
import ssl
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.certificates import Authority, certificate, client_context
from harness.listeners import public_listener
from harness.raw_http import Observed, RawConnection, get
from harness.waiting import eventually
from sidecar.config.addresses import split
from sidecar.net.credential_files import KeyPair
from sidecar.net.tls import ServerTls, client_ca_problem, problem

if TYPE_CHECKING:
    from sidecar.server.public import PublicServer

DAY_S = 86_400
UP = get("/up")


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

    def spoil(self, how: str, by: KeyPair) -> None:
        """Put the ``cert`` or the ``key`` of another pair here, or a certificate that is ``gone`` or ``half``."""
        cert = Path(self.pair.cert)
        whole = cert.read_text()
        cert.unlink()
        if how == "half":
            cert.write_text(whole[: len(whole) // 2])
        elif how != "gone":
            cert.write_text(whole)
            self.replace(by, how)

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


async def _connect(server: PublicServer, context: ssl.SSLContext | None = None) -> RawConnection:
    return await RawConnection.to(server, ssl=context or client_context())


async def _shown(server: PublicServer) -> bytes | None:
    """The certificate that the listener shows, in DER."""
    reader, writer = await asyncio.open_connection(*split(server.addresses[0]), ssl=client_context())
    shown: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    await writer.wait_closed()
    assert await reader.read() == b""
    return shown


# -- the pair of files --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("days", "extensions", "is_known"),
    [(2, "", True), (0, "", True), (2, "extendedKeyUsage=clientAuth\n", False)],
    ids=["valid", "expired", "for clients only"],
)
def test_expiry_is_what_openssl_says_if_any_client_would_accept_the_certificate(
    authority: Authority, tmp_path: Path, days: int, extensions: str, *, is_known: bool
) -> None:
    signed = authority.sign(f"for-{days}", days=days, **({"extensions": extensions} if extensions else {}))
    files = Files(tmp_path, KeyPair(*map(str, signed)))
    files.tls()
    decoded = ssl._ssl._test_decode_cert(files.pair.cert)  # type: ignore[attr-defined]  # as openssl reads it
    expected = ssl.cert_time_to_seconds(decoded["notAfter"]) if is_known else math.nan
    assert files.expires == [pytest.approx(expected, nan_ok=True)]
    assert files.failures == []


@pytest.fixture(scope="module")
def paths(authority: Authority, first: KeyPair, second: KeyPair) -> dict[str, str]:
    """Paths of files by name; ``locked`` is a key with a password."""
    locked = f"{first.key}.locked"
    authority._openssl("ec", "-in", first.key, "-aes256", "-passout", "pass:secret", "-out", locked)
    of_pairs = {
        f"{name}.{part}": path
        for name, pair in (("first", first), ("second", second))
        for part, path in pair._asdict().items()
    }
    return {"authority": str(authority.ca), "locked": locked, **of_pairs}


@pytest.mark.parametrize(
    ("cert", "key", "sentence"),
    [
        ("first.cert", "first.key", None),
        ("first.cert", "second.key", "key values mismatch"),
        ("first.key", "first.key", "are no certificate and its key"),
        ("first.cert", "first.cert", "are no certificate and its key"),
        ("first.cert", "locked", "are no certificate and its key"),
        ("/nowhere/tls.crt", "first.key", "/nowhere/tls.crt cannot be read: no such file or directory"),
        ("first.cert", "/etc", "/etc cannot be read: is a directory"),
    ],
    ids=["pair", "two pairs", "key for both", "certificate for both", "with a password", "missing", "directory"],
)
def test_problem_of_a_pair_is_a_sentence_and_openssl_asks_for_no_password(
    paths: dict[str, str], cert: str, key: str, sentence: str | None
) -> None:
    found = problem(KeyPair(paths.get(cert, cert), paths.get(key, key)))
    assert found == sentence or (sentence is not None and found is not None and sentence in found)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("ca", None),
        ("cert", None),
        ("key", "has no certificates in PEM"),
        ("/etc", "/etc cannot be read: is a directory"),
    ],
)
def test_problem_of_an_authority_is_a_sentence(
    authority: Authority, first: KeyPair, name: str, sentence: str | None
) -> None:
    found = client_ca_problem({"ca": str(authority.ca), **first._asdict()}.get(name, name))
    assert found == sentence or (sentence is not None and found is not None and sentence in found)


@pytest.mark.parametrize("broken", ["cert", "key", "gone", "half"])
async def test_files_that_fit_not_change_nothing_and_new_ones_are_for_new_connections(
    files: Files, observed: Observed, first: KeyPair, second: KeyPair, broken: str
) -> None:
    tls = files.tls()
    async with public_listener(observed, tls=tls) as server, await _connect(server) as before:
        files.spoil(broken, second)
        for count in (1, 2):
            await tls.reload()
            assert len(files.failures) == count, "it is tried again, though nothing has changed"
            assert await _shown(server) == certificate(first.cert)
        files.replace(second)
        for _ in range(2):
            await tls.reload()
            assert await _shown(server) == certificate(second.cert)
        assert (await before.ask(UP)).status == 200
    assert [round(at - time.time(), -4) for at in files.expires] == [pytest.approx(2 * DAY_S, abs=DAY_S / 8)] * 2
    assert not any("BEGIN" in str(failure) for failure in files.failures)


async def test_pair_behind_a_link_that_changes_is_found(tmp_path: Path, files: Files, second: KeyPair) -> None:
    now, renewed = tmp_path / "now", tmp_path / "renewed"
    now.symlink_to(tmp_path)
    renewed.mkdir()
    for path, name in zip(second, ("tls.crt", "tls.key"), strict=True):
        shutil.copy(path, renewed / name)
    files.pair = KeyPair(str(now / "tls.crt"), str(now / "tls.key"))
    tls = files.tls()
    (tmp_path / "next").symlink_to(renewed)
    (tmp_path / "next").rename(now)
    await tls.reload()
    assert (len(files.expires), files.failures) == (2, [])


async def test_without_usable_files_at_the_start_no_handshake_succeeds_until_they_are_there(
    files: Files, observed: Observed, authority: Authority, first: KeyPair, second: KeyPair
) -> None:
    files.replace(second, "key")
    tls = ServerTls(files.pair, str(files.client_ca), on_loaded=files.expires.append, on_failure=files.failures.append)
    async with public_listener(observed, tls=tls) as server:
        assert not await _is_served(server, first)
        files.replace(first)
        await tls.reload()
        assert not await _is_served(server, first), "nobody knows which clients are to be served"
        shutil.copy(authority.ca, files.client_ca)
        await tls.reload()
        assert await _is_served(server, first)
    assert (len(files.failures), observed.words) == (2, ["handshake"] * 2)


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
    async with public_listener(observed, tls=files.tls(authority.ca)) as server:
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
    async with public_listener(observed, tls=tls) as server:
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
