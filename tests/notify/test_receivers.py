"""Sending over loopback to receivers that accept only what is documented."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from harness import receiver as listening
from harness.certificates import Authority
from harness.ports import free_port
from sidecar.notify import posting, receivers
from sidecar.notify.episodes import Notification
from sidecar.notify.message import Context, Message
from sidecar.notify.posting import UndeliveredError
from sidecar.notify.rules import Severity

NOTIFICATION = Notification("paused", "paused", Severity.ERROR, "Culls for redis are paused.", 0.0, {"alive": 10})
MESSAGE = Message(NOTIFICATION, Context("web", "prod", "a1"), 1_700_000_000.0, 1_700_000_060.0)


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_secret_is_read_when_it_is_needed(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(" one \n")
    assert receivers.secret(str(file)) == "one"
    file.write_text("two")
    assert receivers.secret(str(file)) == "two"


async def test_webhook(opened: ExitStack) -> None:
    there = opened.enter_context(listening.webhook())
    assert await receivers.webhook([there.url], "").send(MESSAGE) == "127.0.0.1"
    assert there.refused == []
    assert there.accepted[0]["sentence"] == "Culls for redis are paused."


async def test_webhook_by_template(opened: ExitStack) -> None:
    there = opened.enter_context(listening.Receiver(lambda body: [] if body == {"say": "paused"} else [body], "/"))
    await receivers.webhook([there.url], '{"say": "$word"}').send(MESSAGE)
    assert there.accepted == [{"say": "paused"}]


async def test_file_of_webhooks_is_read_for_each_message(opened: ExitStack, tmp_path: Path) -> None:
    one, two, three = (opened.enter_context(listening.webhook()) for _ in range(3))
    one.answer = two.answer = 500
    file = tmp_path / "hooks"
    sender = receivers.webhook(str(file), "")
    file.write_text(f"{one.url}\n")
    with pytest.raises(UndeliveredError, match="status 500"):
        await sender.send(MESSAGE)
    file.write_text(f"{one.url}\n\n {two.url} \n{three.url}\n")
    assert await sender.send(MESSAGE) == "127.0.0.1"
    assert len(three.accepted) == 1
    file.write_text(three.url)
    await sender.send(MESSAGE)
    assert len(three.accepted) == 2


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "No such file"),
        ("\n", "URLs, one a line"),
        ("ftp://s3cret", "URLs, one a line"),
        ("http://a/\ns3cret", "URLs, one a line"),
        ("http://127.0.0.1:1/" + "s3cret" * 1000, "URLs, one a line"),
    ],
    ids=["missing", "empty", "not of the web", "no URL", "longer than any secret"],
)
async def test_bad_file_of_webhooks_is_reported_without_its_content(
    tmp_path: Path, content: str | None, says: str
) -> None:
    if content is not None:
        (tmp_path / "hooks").write_text(content)
    with pytest.raises(UndeliveredError, match=says) as raised:
        await receivers.webhook(str(tmp_path / "hooks"), "").send(MESSAGE)
    assert "s3cret" not in repr(raised.value)
    assert raised.value.is_final is False


async def test_slack(opened: ExitStack, tmp_path: Path) -> None:
    there = opened.enter_context(listening.slack())
    (tmp_path / "url").write_text(f"{there.url}\n")
    await receivers.slack(str(tmp_path / "url")).send(MESSAGE)
    assert (len(there.accepted), there.refused) == (1, [])


async def test_pagerduty(opened: ExitStack, tmp_path: Path) -> None:
    there = opened.enter_context(listening.pagerduty())
    (tmp_path / "key").write_text(listening.ROUTING_KEY)
    await receivers.pagerduty([there.url], str(tmp_path / "key")).send(MESSAGE)
    assert there.refused == []
    assert there.accepted[0]["routing_key"] == listening.ROUTING_KEY


async def test_second_address_gets_what_the_first_refused(opened: ExitStack) -> None:
    bad, good = opened.enter_context(listening.webhook()), opened.enter_context(listening.webhook())
    bad.answer = 500
    sender = receivers.webhook([bad.url, good.url], "")
    for _ in range(10):
        await sender.send(MESSAGE)
    assert len(good.accepted) == 10
    assert bad.tries < 10


async def test_each_alertmanager_gets_the_message_though_one_is_away(opened: ExitStack) -> None:
    one, two = opened.enter_context(listening.alertmanager()), opened.enter_context(listening.alertmanager())
    gone = f"http://127.0.0.1:{free_port()}"
    sender = receivers.alertmanager([one.base, gone, f"{two.base}/"])
    assert await sender.send(MESSAGE) == "127.0.0.1,127.0.0.1"
    assert (len(one.accepted), len(two.accepted)) == (1, 1)


@pytest.mark.parametrize(
    ("answer", "is_final"), [(400, True), (401, False), (404, False), (429, False), (500, False), (302, False)]
)
async def test_final_refusal_is_recognised(opened: ExitStack, answer: int, is_final: bool) -> None:  # noqa: FBT001 - a row of the table
    there = opened.enter_context(listening.webhook())
    there.answer = answer
    with pytest.raises(UndeliveredError, match=f"status {answer}") as raised:
        await receivers.webhook([there.url], "").send(MESSAGE)
    assert raised.value.is_final is is_final


@pytest.mark.parametrize(("header", "expected"), [("7", 7.0), ("9999", 120.0), ("Wed, 21 Oct 2026", 0.0), ("-1", 0.0)])
async def test_retry_after_is_honoured(opened: ExitStack, header: str, expected: float) -> None:
    there = opened.enter_context(listening.webhook())
    there.answer, there.headers = 429, {"Retry-After": header}
    with pytest.raises(UndeliveredError) as raised:
        await receivers.webhook([there.url], "").send(MESSAGE)
    assert raised.value.retry_after_s == expected


async def test_slow_receiver_is_given_up(opened: ExitStack) -> None:
    there = opened.enter_context(listening.webhook())
    there.delay_s = 2
    with pytest.raises(UndeliveredError, match="timeout"):
        await replace(receivers.webhook([there.url], ""), post=partial(posting.post, timeout_s=0.2)).send(MESSAGE)


@pytest.mark.parametrize(
    ("url", "cause"),
    [
        ("http://127.0.0.1:1/s3cret", "connection"),
        ("http://s3cret.invalid/s3cret", "connection"),
        ("s3cret", "url"),
        ("http://[s3cret/", "url"),
        ("https://127.0.0.1:1/s3cret", "connection"),
    ],
    ids=["refused", "no such host", "no URL", "bad host", "tls"],
)
async def test_failure_names_the_cause_and_never_the_address(tmp_path: Path, url: str, cause: str) -> None:
    (tmp_path / "url").write_text(url)
    with pytest.raises(UndeliveredError, match=f"^{cause}$") as raised:
        await receivers.slack(str(tmp_path / "url")).send(MESSAGE)
    assert "s3cret" not in repr(raised.value)
    assert raised.value.__cause__ is None


@pytest.mark.parametrize(
    ("content", "says"),
    [(None, "No such file"), (b"", "one line"), (b"a\nb", "one line"), (b"\xff\xfe", "UTF-8")],
    ids=["missing", "empty", "two lines", "binary"],
)
async def test_bad_secret_file_is_reported_and_tried_again(tmp_path: Path, content: bytes | None, says: str) -> None:
    if content is not None:
        (tmp_path / "url").write_bytes(content)
    with pytest.raises(UndeliveredError, match=says) as raised:
        await receivers.slack(str(tmp_path / "url")).send(MESSAGE)
    assert raised.value.is_final is False


def test_pagerduty_gets_no_information() -> None:
    hold = Notification("hold", "hold", Severity.INFO, "Held.", 0.0)
    assert not receivers.pagerduty(["http://a"], "f").wants(hold)
    assert receivers.slack("f").wants(hold)


def test_end_reaches_a_receiver_of_a_higher_level() -> None:
    last = Notification("budget", "budget_50", Severity.INFO, "There is room.", 0.0, is_over=True)
    assert receivers.pagerduty(["http://a"], "f").wants(last)


async def test_https_trusts_the_authorities_of_the_machine(
    opened: ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trusted, other = Authority(tmp_path, "trusted"), Authority(tmp_path, "other")
    there = opened.enter_context(listening.webhook().over_tls(*trusted.sign("server")))
    monkeypatch.setenv("no_proxy", "*")  # whatever this machine has between itself and the web
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted.ca))
    await receivers.webhook([there.url], "").send(MESSAGE)
    assert len(there.accepted) == 1
    monkeypatch.setenv("SSL_CERT_FILE", str(other.ca))
    with pytest.raises(UndeliveredError, match="tls"):
        await receivers.webhook([there.url], "").send(MESSAGE)
