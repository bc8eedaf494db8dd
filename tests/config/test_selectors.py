"""Selectors as people write them: what they mean, what is refused and where, and that no wanted line is lost."""

from __future__ import annotations

import re
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.config.selectors import UNKNOWN_KIND, BadSelectorError, Matcher, Selector, parse_selectors


def _eq(label: str, value: str) -> Matcher:
    return Matcher(label, "=", value)


@pytest.mark.parametrize(
    ("text", "selector"),
    [
        ("up", Selector("up")),
        (" up { } ", Selector("up")),
        ("job:up:rate", Selector("job:up:rate")),
        ('up{a!="b",}', Selector("up", (Matcher("a", "!=", "b"),))),
        ('up{a=~"b|c",d!~"5.."}', Selector("up", (Matcher("a", "=~", "b|c"), Matcher("d", "!~", "5..")))),
        ("up{a='b',c=`d\\.`}", Selector("up", (_eq("a", "b"), _eq("c", "d\\.")))),
        (r"""up{a="\\ \" \' \n \t"}""", Selector("up", (_eq("a", "\\ \" ' \n \t"),))),
        ('up{a="}, {"}', Selector("up", (_eq("a", "}, {"),))),
        ("kind=db: up", Selector("up", kind="db")),
        (" kind = my/kind-1.x : up", Selector("up", kind="my/kind-1.x")),
        ('kind_from=db_system: up{a="b"}', Selector("up", (_eq("a", "b"),), kind_from="db_system")),
        ('kind{a="b"}', Selector("kind", (_eq("a", "b"),))),
    ],
)
def test_selector_is_read(text: str, selector: Selector) -> None:
    assert parse_selectors(text) == (selector,)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("5xx", "at character 1: expected the name of a metric"),
        ('{a="b"}', "at character 1: expected the name of a metric"),
        ("my.metric", "at character 3: expected , or ; or a new line"),
        ("up{", "at the end: expected a label"),
        ('up{a="b"', "at the end: expected , or }"),
        ('up{a="b" c="d"}', "at character 10: expected , or }"),
        ('up{,a="b"}', "at character 4: expected a label"),
        ('up{"a"="b"}', "at character 4: expected a label"),
        ("up{a}", "at character 5: expected one of = != =~ !~"),
        ('up{a=="b"}', "at character 6: expected a value in quotes"),
        ("up{a=b}", "at character 6: expected a value in quotes"),
        ('up{a="b}', "at character 6: expected a value in quotes"),
        ('up{a=~"5\\d"}', "at character 9: no such escape: \\d (in quotes a backslash is \\\\)"),
        ('up{a=~"("}', "at character 7: not a regular expression of Prometheus: "),
        ("up 5", "at character 4: expected , or ; or a new line before the next selector"),
        ("kind=: up", "at character 6: a kind takes 1 to 64 of A-Z a-z 0-9 _ . / -"),
        ("kind=db up", "at character 9: expected : behind the kind"),
        ("kind_from=: up", "at character 11: kind_from takes the name of a label"),
        ("a,,b", "at character 3: expected the name of a metric"),
        ("a,b{", "at the end: expected a label"),
    ],
)
def test_bad_selector_says_what_and_where(text: str, complaint: str) -> None:
    with pytest.raises(BadSelectorError, match="^" + re.escape(complaint)):
        parse_selectors(text)


@pytest.mark.parametrize("text", ["a(?=b)", "(?<!a)b", r"(a)\1", "(?>a)", "a++", r"a\Z"])
def test_regex_that_prometheus_does_not_know_is_refused(text: str) -> None:
    with pytest.raises(BadSelectorError, match="not a regular expression of Prometheus"):
        parse_selectors(f"up{{a=~`{text}`}}")


@pytest.mark.parametrize("text", ["[[:alpha:]]", r"\pL", "(?i)a", "(?:a|b)", "[]a]", "a{2,3}?"])
def test_regex_of_prometheus_is_taken(text: str) -> None:
    (selector,) = parse_selectors(f"up{{a=~`{text}`}}")
    assert selector.matchers[0].value == text


@pytest.mark.timeout(10)
@pytest.mark.parametrize("expression", ["(x+x+)+y", "(x|x)*y", ".*.*.*.*y"])
def test_value_from_the_network_is_matched_in_linear_time(expression: str) -> None:
    """A backtracking engine needs years for the first of these."""
    (selector,) = parse_selectors(f'up{{a=~"{expression}"}}')
    (matcher,) = selector.matchers
    assert not matcher.matches("x" * 65_536)
    assert matcher.matches("x" * 65_536 + "y")


@pytest.mark.parametrize(
    ("matcher", "value", "fits"),
    [
        ('a="b"', "b", True),
        ('a="b"', "c", False),
        ('a=""', "", True),
        ('a!="b"', "c", True),
        ('a!="b"', "b", False),
        ('a!=""', "", False),
        ('a=~"5.."', "503", True),
        ('a=~"5.."', "5033", False),
        ('a=~"5.."', "x503", False),
        ('a=~"a|b"', "b", True),
        ('a=~"a|bc"', "ac", False),
        ('a=~".*"', "", True),
        ('a=~".+"', "", False),
        ('a=~"a.b"', "a\nb", True),
        ('a=~"a"', "a\n", False),
        ('a=~"(?i)get"', "GET", True),
        ("a=~`\\d`", "\u0664", False),
        ('a!~"5.."', "503", False),
        ('a!~"5.."', "200", True),
        ('a!~"5.."', "", True),
    ],
)
def test_matcher_means_what_prometheus_means(matcher: str, value: str, fits: bool) -> None:  # noqa: FBT001 - a table
    (selector,) = parse_selectors(f"up{{{matcher}}}")
    assert selector.selects("up", {"a": value}) is fits
    if not value:
        assert selector.selects("up", {}) is fits


def test_all_matchers_have_to_fit() -> None:
    (selector,) = parse_selectors('up{a="b",c!="d"}')
    assert [selector.selects("up", labels) for labels in ({"a": "b"}, {"a": "b", "c": "d"}, {"c": "x"})] == [
        True,
        False,
        False,
    ]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("redis", "redis"),
        ("my sql\n", "my_sql_"),
        ("", UNKNOWN_KIND),
        (None, UNKNOWN_KIND),
        ("x" * 99, "x" * 64),
        ("\u00e9", "_"),
    ],
)
def test_kind_from_a_label_is_a_word(value: str | None, kind: str) -> None:
    labels = {} if value is None else {"db": value}
    (selector,) = parse_selectors("kind_from=db: up")
    assert selector.kind_of(labels) == kind


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ("  ", []),
        ("a", ["a"]),
        ("a,b", ["a", "b"]),
        ('a{x="1,2"}, kind=k: b ; c,', ["a", "b", "c"]),
        ("a\n b\n", ["a", "b"]),
    ],
)
def test_several_selectors_are_read(text: str, names: list[str]) -> None:
    assert [selector.name for selector in parse_selectors(text)] == names


@settings(max_examples=100, deadline=None)
@given(st.text(st.sampled_from("up{}a\"'`=!~,;:\\d5.*+?()[]|^$ \nkind_from"), max_size=30))
def test_no_other_exception_leaves_a_selector(text: str) -> None:
    with suppress(BadSelectorError):
        assert all(selector.name for selector in parse_selectors(text))
