"""The login and the certificates for Redis, and the URLs and files that contradict each other."""

from __future__ import annotations

import logging
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from harness.binaries import require
from harness.certificates import Authority
from harness.children import Children, StartRedis, short_path
from harness.ports import free_port
from harness.sentinels import MASTER, Sentinel
from harness.stores import REACHED, reach
from harness.waiting import eventually
from sidecar.store.redis_client import RedisClient

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.redis_server import RedisServer
    from sidecar.store.redis import RedisStore
    from store.conftest import OpenStore

# -- a password in a file -----------------------------------------------------------------------------------


async def test_rotated_password_is_used(
    redis_server: RedisServer, tmp_path: Path, open_store: OpenStore, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    file = tmp_path / "password"
    redis_server.set_password("s3cret/old")
    file.write_text("s3cret/old\n")
    store = open_store(f"redis://127.0.0.1:{redis_server.port}", password_file=str(file))
    assert await reach(store) == REACHED
    redis_server.set_password("s3cret/new")
    redis_server.cli("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    await eventually(lambda: _is("auth", store), timeout_s=60, what="the old password is refused")
    file.write_text("s3cret/new\n")
    assert await reach(store) == REACHED
    assert "s3cret" not in caplog.text + repr(store) + repr(vars(store))


async def _is(word: str, store: RedisStore) -> bool:
    return await reach(store) == word


@pytest.mark.parametrize("url", ["redis://{user}@127.0.0.1:{port}", "unix://{user}@{path}"])
@pytest.mark.parametrize("end", ["", "\n", "\r\n"], ids=["no end", "newline", "both"])
async def test_final_newline_is_no_part_of_the_password(
    url: str, end: str, redis_server: RedisServer, tmp_path: Path, open_store: OpenStore
) -> None:
    redis_server.cli("ACL", "SETUSER", "app", "on", "> s3crét ", "~*", "+@all")
    file = tmp_path / "password"
    file.write_bytes(f" s3crét {end}".encode())
    place = url.format(user="app", port=redis_server.port, path=redis_server.unix_socket)
    assert await reach(open_store(place, password_file=str(file))) == REACHED


@pytest.mark.parametrize("content", [None, b"", b"\n", b"\xff\xfe", b"x" * 5000], ids=repr)
async def test_file_without_a_password_is_a_word_of_its_own(
    content: bytes | None, redis_server: RedisServer, tmp_path: Path, open_store: OpenStore
) -> None:
    file = tmp_path / "password"
    if content is not None:
        file.write_bytes(content)
    store = open_store(f"redis://127.0.0.1:{redis_server.port}", password_file=str(file))
    assert [await reach(store), await reach(store)] == ["secret", "secret"]


UNUSABLE: Final = (
    "http://:hunter2@localhost",
    "redis://:hunter2@localhost?no_such_option=1",
    "rediss://:hunter2@localhost?ssl_cert_reqs=hunter2",
    "rediss://:hunter2@host?ssl_hunter=2",
    "redis+sentinel://:hunter2@host/fleet?socket_timeout=1",
    "redis+guard://:hunter2@host/fleet",
    "redis+cluster://:hunter2@host?db=1",
)

# -- contradictions -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "password_file", "complaint"),
    [
        ("redis://:hunter2@host", "/hunter2", "the password stands both"),
        ("redis://host?password=hunter2", "/hunter2", "the password stands both"),
        ("redis+sentinel://:hunter2@host/m", "/hunter2", "the password stands both"),
        ("redis+cluster://:hunter2@a,b", "/hunter2", "the password stands both"),
        ("rediss://host?ssl_ca_certs=/hunter2", "", "certificates or their key cannot be used"),
        (f"rediss://host?ssl_certfile={__file__}", "", "certificates or their key cannot be used"),
        *((url, "", "cannot be used as a Redis URL") for url in UNUSABLE),
    ],
)
def test_files_that_cannot_be_used_are_refused_without_repeating_anything(
    url: str, password_file: str, complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint) as refusal:
        RedisClient(url, 1, password_file)
    assert "hunter2" not in str(refusal.value)
    assert refusal.value.__suppress_context__ or refusal.value.__context__ is None


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ours"), "ours")


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("others"), "others")


def tls_options(port: int, authority: Authority) -> dict[str, str]:
    """TLS at that port, and only for clients that have a certificate of the authority."""
    cert, key = authority.sign("server")
    files = {"tls-ca-cert-file": authority.ca, "tls-cert-file": cert, "tls-key-file": key}
    return {"tls-port": str(port), "tls-auth-clients": "yes", **{name: str(file) for name, file in files.items()}}


def start_with_tls(start_redis: StartRedis, authority: Authority, **more: str) -> tuple[RedisServer, int]:
    """A server, and the port at which it speaks TLS."""
    port = free_port()
    options = tls_options(port, authority) | {name.replace("_", "-"): value for name, value in more.items()}
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    return start_redis("tls", *words), port


@pytest.fixture(scope="module")
def tls_port(tmp_path_factory: pytest.TempPathFactory, ours: Authority) -> Iterator[int]:
    with short_path(tmp_path_factory.mktemp("tls")) as directory, Children() as children:
        yield start_with_tls(StartRedis(directory, children), ours)[1]


def options_of(client: Authority | None = None, trusted: Authority | None = None) -> str:
    """The options of a URL: a certificate that ``client`` has signed, and the authority to trust."""
    names = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
    paths = (trusted.ca if trusted else "", *(client.sign("client") if client else ("", "")))
    return "&".join(f"{name}={path}" for name, path in zip(names, paths, strict=True) if path)


# -- certificates -------------------------------------------------------------------------------------------


async def test_client_certificate_of_a_trusted_authority_logs_in(
    tls_port: int, ours: Authority, open_store: OpenStore
) -> None:
    assert await reach(open_store(f"rediss://127.0.0.1:{tls_port}?{options_of(ours, ours)}")) == REACHED


@pytest.mark.parametrize("ca", ["others", "system"])
async def test_server_of_an_unknown_authority_is_refused(
    ca: str, tls_port: int, ours: Authority, others: Authority, open_store: OpenStore
) -> None:
    options = options_of(ours, others if ca == "others" else None)
    store = open_store(f"rediss://127.0.0.1:{tls_port}?{options}")
    assert [await reach(store), await reach(store)] == ["tls", "tls"]


@pytest.mark.parametrize("authority", ["nobody", "others"])
async def test_client_of_an_unknown_authority_is_refused(
    authority: str, tls_port: int, ours: Authority, others: Authority, open_store: OpenStore
) -> None:
    options = options_of(others if authority == "others" else None, ours)
    store = open_store(f"rediss://127.0.0.1:{tls_port}?{options}")
    # In TLS 1.3 the server says so only after the handshake, and its hanging up may overtake its words.
    assert {await reach(store), await reach(store)} <= {"tls", "connection"}


async def test_name_of_the_server_has_to_be_in_its_certificate_unless_the_url_says_otherwise(
    tls_port: int, ours: Authority, open_store: OpenStore
) -> None:
    url = f"rediss://localhost:{tls_port}?{options_of(ours)}"
    trusting = f"{url}&ssl_ca_certs={ours.ca}"
    assert await reach(open_store(trusting)) == "tls"
    assert await reach(open_store(f"{trusting}&ssl_check_hostname=false")) == REACHED
    assert await reach(open_store(f"{url}&ssl_cert_reqs=none")) == REACHED


@pytest.mark.process
async def test_sentinels_and_their_master_are_connected_by_tls(
    start_redis: StartRedis, children: Children, ours: Authority, open_store: OpenStore
) -> None:
    master, master_port = start_with_tls(start_redis, ours)
    port = free_port()
    lines = [f"{name} {value}" for name, value in tls_options(port, ours).items()]
    sentinel = Sentinel(
        start_redis.directory, "sentinel", master, master_port=master_port, lines=["tls-replication yes", *lines]
    )
    children.adopt(sentinel).start()
    url = f"127.0.0.1:{port}/{MASTER}"
    assert await reach(open_store(f"rediss+sentinel://{url}?{options_of(ours, ours)}")) == REACHED
    assert await reach(open_store(f"rediss+sentinel://{url}?{options_of(None, ours)}")) in ("tls", "sentinel")
    assert await reach(open_store(f"redis+sentinel://{url}")) == "sentinel"


@pytest.mark.process
async def test_cluster_is_connected_by_tls(start_redis: StartRedis, ours: Authority, open_store: OpenStore) -> None:
    nodes = {"cluster_enabled": "yes", "cluster_port": str(free_port()), "tls_cluster": "yes"}
    node, port = start_with_tls(start_redis, ours, **nodes)
    node.cli("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
    store = open_store(f"rediss+cluster://127.0.0.1:{port}?{options_of(ours, ours)}")
    await eventually(lambda: _is(REACHED, store), timeout_s=60, what="the node has found its slots")


async def test_half_written_certificate_is_refused_until_it_is_whole(
    tls_port: int, ours: Authority, tmp_path: Path, open_store: OpenStore
) -> None:
    cert, key = (Path(shutil.copy(path, tmp_path)) for path in ours.sign("client"))
    store = open_store(f"rediss://127.0.0.1:{tls_port}?ssl_ca_certs={ours.ca}&ssl_certfile={cert}&ssl_keyfile={key}")
    assert await reach(store) == REACHED
    await store.aclose()
    whole = cert.read_text()
    cert.write_text(whole[:100])
    assert await reach(store) == "tls"
    cert.unlink()
    assert await reach(store) == "tls"
    cert.write_text(whole)
    assert await reach(store) == REACHED


def test_encrypted_key_without_its_password_is_refused_without_a_prompt(ours: Authority, tmp_path: Path) -> None:
    cert, key = ours.sign("client")
    encrypted = tmp_path / "encrypted.key"
    words = ["pkey", "-in", str(key), "-aes256", "-passout", "pass:hunter2", "-out", str(encrypted)]
    subprocess.run([require("openssl"), *words], check=True, timeout=90)
    url = f"rediss://host?ssl_certfile={cert}&ssl_keyfile={encrypted}"
    with pytest.raises(ValueError, match="cannot be used"):
        RedisClient(url, 1)
    assert RedisClient(f"{url}&ssl_password=hunter2", 1)
