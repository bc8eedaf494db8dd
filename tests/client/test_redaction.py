from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.client import redacted
from sidecar.client.redaction import LOOKED_AT, MASK

HEX = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(
    "text",
    [
        "Error 111 connecting to 10.0.0.1:6379. Connection refused.",
        "KeyError: 'cart'",
        "took 12345 ms at line 4711",
        "a_very_long_function_name_without_any_number failed",
        "tokenizer failed",
        "no such file: /srv/shop/releases/v2/templates/cart.html",
        "",
    ],
    ids=lambda text: text[:24],
)
def test_what_helps_is_left(text: str) -> None:
    assert redacted(text) == text


def test_end_of_a_long_message_is_cut_off_between_words() -> None:
    assert redacted("abc " * LOOKED_AT) == ("abc " * (LOOKED_AT // 4)).strip()


@pytest.mark.parametrize(
    ("text", "begins"),
    [
        ('{"error":"timeout","host":"db-1"},' * 99, '{"error":"timeout","host":"db-1"},'),
        ("\u6570\u636e\u5e93\u8fde\u63a5\u5931\u8d25" * 99, "\u6570\u636e\u5e93"),
        ("failed: " + "[1,2,3]," * 99, "failed: [1,2,3],[1,2,3]"),
        ("failed:\n" + "at line\n" * 99, "failed:\nat line\nat"),
    ],
    ids=["JSON", "Chinese", "one blank", "lines"],
)
def test_beginning_of_a_long_message_without_blanks_is_left(text: str, begins: str) -> None:
    shown = redacted(text)
    assert shown.startswith(begins)
    assert LOOKED_AT // 2 <= len(shown) <= LOOKED_AT


def test_long_message_of_one_word_is_masked_and_not_empty() -> None:
    assert redacted("x" * 4096) == MASK


def test_letters_that_grow_in_lower_case_move_no_mask() -> None:
    assert redacted("\u0130 PASSWORD=hunter2 \u0130") == "\u0130 PASSWORD=*** \u0130"


PLANTED = [
    ("password=%s", "hunter2"),
    ("PASSWORD: %s", "hunter2"),
    ('{"password": "%s"}', "hunter 2"),
    ("{'db_password': '%s'}", "hun ter2"),
    ('\\"secret\\": \\"%s\\"', "hunter2"),
    ("passwd=%s&x=1", "hunter2"),
    ("pwd=%s;", "hunter2"),
    ("the password is %s", "hunter2"),
    ("password => %s", "hunter2"),
    ("params[password]=%s", "hunter2"),
    ("PGPASSWORD=%s psql", "hunter2"),
    ("Server=db;User Id=sa;Password=%s;", "hunter2"),
    ("mysqldump --password %s shop", "hunter2"),
    ("mysql -u bob -p%s shop", "hunter2"),
    ("<password>%s</password>", "hunter2"),
    ("client_secret=%s", "s3cr3t"),
    ("access_token=%s&a=1", "tok3n"),
    ("GITHUB_TOKEN=%s", "ghp_x"),
    ("api-key: %s", "k3y"),
    ("X-Api-Key: %s", "k3y"),
    ("otp: %s", "424242"),
    ("Authorization: Bearer %s", "abc.def"),
    ("authorization=Basic %s", "Ym9iOmh1bnRlcjI="),
    ('Authorization: Digest username="bob", response="%s"', "deadbeef"),
    ("Proxy-Authorization: Basic %s", "Ym9iOng="),
    ("sent bearer %s to it", "abcdefghijkl"),
    ("Cookie: a=1; sid=%s; b=2", "f00ba4"),
    ("Set-Cookie: sid=%s; Path=/", "f00ba4"),
    ("session_id=%s", "f00ba4"),
    ("redis://:%s@10.0.0.1:6379/0", "hunter2"),
    ("postgresql://bob:%s@db/shop", "hun/ter2"),
    ("amqp://bob:%s@mq:5672", "p@ss"),
    ("https://%s@api.example.org/x", "ghp_abc"),
    ("dsn='%s'", "user:pw"),
    ("mail to %s bounced", "bob.smith+x@mail.example.org"),
    ("GET /user/%s", "bob%40example.org"),
    ("card %s refused", "4111 1111 1111 1111"),
    ("card %s refused", "4111-1111-1111-1111"),
    ("card %s refused", "4111111111111111"),
    ("call %s now", "0170-1234567"),
    ("call +49 %s now", "(170) 123-4567"),
    ("call %s now", "170.123.4567"),
    ("call %s now", "0170/1234567"),
    ("ssn %s", "078-05-1120"),
    ("iban %s", "DE89370400440532013000"),
    ("key %s unknown", HEX),
    ("user %s unknown", "123e4567-e89b-12d3-a456-426614174000"),
    ("jwt %s bad", "eyJhbGciOiJI.eyJzdWIi.c2ln"),
    ("aws %s", "AKIAIOSFODNN7EXAMPLE"),
    ("aws_secret_access_key = %s", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
    ("-----BEGIN RSA PRIVATE KEY-----\n%s\n-----END RSA PRIVATE KEY-----", "MIIabc/def+ghi\nqrs/tuv"),
]
WORDS = st.lists(st.sampled_from(["failed", "for", "cart", "\u23f1", "10.0.0.1:6379", "(retry 3)", "\n"]), max_size=6)


@pytest.mark.parametrize(("form", "secret"), PLANTED, ids=[form[:32] for form, _ in PLANTED])
@settings(max_examples=20)
@given(before=WORDS, after=WORDS)
def test_planted_secret_never_comes_out(form: str, secret: str, before: list[str], after: list[str]) -> None:
    planted = form.replace("%s", secret)
    for looked_at in (LOOKED_AT, 16_384):
        shown = redacted(" ".join([*before, planted, *after]), looked_at)
        assert MASK in shown
        assert secret not in shown
        assert redacted(shown, looked_at).count(secret) == 0


@pytest.mark.parametrize(("form", "secret"), PLANTED, ids=[form[:32] for form, _ in PLANTED])
def test_no_part_of_a_planted_secret_is_left_where_a_message_is_cut(form: str, secret: str) -> None:
    planted = form.replace("%s", secret)
    begins = planted.index(secret)
    for cut in range(begins + 1, begins + len(secret)):
        shown = redacted(f"{'x' * 99} {planted}", 100 + cut)
        assert secret not in shown
        assert planted[begins:cut][:12] not in shown or cut - begins < 8


def test_addresses_of_connections_are_left() -> None:
    state = "tcp 0 0 10.12.0.17:45678 192.168.100.200:6379 ESTABLISHED pid 4711 at 12:30:45"
    assert redacted(state) == state


@pytest.mark.parametrize(
    "text",
    ["a", "1", "a-", "@", "://", "a.a@", "password ", "--", "private key-", "<", "mysql -p", "1 (1)", "eyj", "%40a"],
)
def test_hostile_output_of_a_program_is_read_in_time(text: str) -> None:
    begun = time.process_time()
    redacted(text * (16_384 // len(text)), 16_384)
    assert time.process_time() - begun < 1.0
