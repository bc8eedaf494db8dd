"""The HTML page of ``simulate`` and ``backtest``, from the JSON of their answers: one file without scripts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from sidecar.cli.pictures import run_pictures, svg_shapes, tradeoff_pictures
from sidecar.cli.pictures.run_pictures import RunPictures
from sidecar.cli.pictures.run_series import clock
from sidecar.cli.report.page_skeleton import escaped, page, table
from sidecar.runlock import durations

MOST_CULLS: Final = 100
"""Maximum number of culls in the list of the page; the JSON has all."""

_STYLE: Final = f"""\
body{{max-width:60rem}}h3{{font-size:.95rem;margin:1.5rem 0 0}}.wide{{overflow-x:auto}}
.wide th,.wide td{{overflow-wrap:normal}}.wide th{{white-space:normal}}.wide td.n{{white-space:nowrap}}\
th.n{{text-align:right}}.culls td:nth-child(-n+2){{white-space:nowrap}}
{svg_shapes.STYLE}{run_pictures.STYLE}{tradeoff_pictures.STYLE}"""

_NEEDS: Final = {
    "stuck": "of stuck containers (a restart helps)",
    "healthy": "of healthy containers",
    "sick": "of sick containers (no restart helps)",
    "outage": "during an outage of all",
}
_BASELINES: Final = ("do nothing", "article", "check_restart")


def html(result: Mapping[str, Any]) -> str:
    """The whole page of one result: a day, a backtest, a sweep or a suggestion. Unknown keys are ignored."""
    kind = {"sweep": "sweep", "suggestion": "suggestion"}.get(str(result.get("kind")), "")
    bodies = {"sweep": tradeoff_pictures.sweep, "suggestion": tradeoff_pictures.suggestion}
    title = _title(result)
    body = [f"<h1>{escaped(title)}</h1>", *bodies.get(kind, _run)(result), *_footer(result)]
    return page(escaped(title), _STYLE, body)


def _title(result: Mapping[str, Any]) -> str:
    duration = f", {durations.write(round(result['duration_s']))}" if result.get("duration_s") else ""
    return f"{result.get('day', 'a day')}: {result.get('containers', 0)} containers{duration}"


def _footer(result: Mapping[str, Any]) -> Iterator[str]:
    notes = [str(note) for note in result.get("notes") or []]
    seed = f"seed {result['seed']}" if result.get("seed") is not None else ""
    if said := " ".join(filter(None, [*notes, seed and f"Simulated with {seed}."])):
        yield f"<footer>{escaped(said)}</footer>"


# -- a day, or a record -----------------------------------------------------------------------------------------------


def _run(result: Mapping[str, Any]) -> Iterator[str]:
    columns: Sequence[Mapping[str, Any]] = result.get("rules") or []
    compared = [one for one in columns if not str(one.get("rules")).startswith(_BASELINES)]
    is_record = result.get("kind") == "backtest"
    for one in compared:
        yield f'<p class="shadow">{escaped(_sentence(one, is_named=len(compared) > 1, is_record=is_record))}</p>'
    yield f'<div class="wide">{table(_answers(columns, is_record=is_record))}</div>'
    for one in compared or columns[-1:]:
        yield f"<h2>{escaped(one.get('rules', 'yours'))}</h2>"
        pictures = RunPictures(
            one,
            duration_s=float(result.get("duration_s") or 1),
            fleet=int(result.get("containers") or 1),
            start_unix=result.get("start_unix"),
        )
        yield from pictures.all()
        yield from _culls(one, result)


def _sentence(one: Mapping[str, Any], *, is_named: bool, is_record: bool) -> str:
    """The answer in one sentence; of a record nobody knows which containers were healthy, or what could be avoided."""
    named = f"{one.get('rules')}: " if is_named else ""
    healthy = None if is_record else (one.get("culls_by_need") or {}).get("healthy")
    of_healthy = "" if healthy is None else f" ({healthy:,} of healthy containers)"
    refused = sum((one.get("refused_containers") or {}).values())
    less = None if is_record else (one.get("avoidable_less_than") or {}).get("do nothing")
    avoided = "" if less is None else f"; {less:,} failed requests fewer than without culls"
    return (
        f"{named}{_counted(one.get('culls', 0), 'cull')}{of_healthy}, {_counted(refused, 'container')} refused{avoided}"
    )


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _answers(columns: Sequence[Mapping[str, Any]], *, is_record: bool) -> Iterator[str]:
    """The rows of the table: a column for each set of rules."""
    heads = "".join(f'<th class="n" scope="col">{escaped(one.get("rules", ""))}</th>' for one in columns)
    yield f"<td></td>{heads}"
    for words, value in _rows(columns):
        cells = [value(one) for one in columns]
        if any(cell != "-" and not (is_record and cell == "0") for cell in cells):
            shown = "".join(f'<td class="n">{escaped(cell)}</td>' for cell in cells)
            yield f'<th scope="row">{escaped(words)}</th>{shown}'


def _rows(columns: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Callable[[Mapping[str, Any]], str]]]:
    yield "avoidable failed requests", _number_of("avoidable_failed_requests")
    yield "all failed requests", _number_of("failed_requests")
    yield "culls", _number_of("culls")
    yield "culls per day", _number_of("culls_per_day")
    for need, words in _NEEDS.items():
        if any((one.get("culls_by_need") or {}).get(need) for one in columns):
            yield f"… {words}", _number_of("culls_by_need", need)
    yield "time to cull a stuck container: median", _seconds_of("median")
    yield "time to cull a stuck container: longest", _seconds_of("max")
    for gate in sorted({gate for one in columns for gate in one.get("refused_containers") or {}}):
        yield f"containers refused, gate: {gate}", _number_of("refused_containers", gate)
    yield "suspects that recovered without a restart", _number_of("recovered_without_restart")
    yield "most tokens used in one window", _number_of("most_tokens_in_a_window")
    yield "most containers out of service at once", _number_of("most_out_of_service")
    yield "visits of an engineer", _number_of("visits_of_an_engineer")
    yield "still stuck at the end", _number_of("stuck_at_the_end")


def _number_of(*keys: str) -> Callable[[Mapping[str, Any]], str]:
    def cell(one: Mapping[str, Any]) -> str:
        value: Any = one
        for key in keys:
            value = value.get(key) if isinstance(value, Mapping) else None
        return "-" if value is None else f"{value:,g}" if isinstance(value, float) else f"{value:,}"

    return cell


def _seconds_of(which: str) -> Callable[[Mapping[str, Any]], str]:
    def cell(one: Mapping[str, Any]) -> str:
        times = one.get("time_to_cull_s")
        return "-" if not times else f"{times[which]:,.0f} s"

    return cell


def _culls(one: Mapping[str, Any], result: Mapping[str, Any]) -> Iterator[str]:
    """The list of culls with their reasons."""
    every = one.get("each_cull") or []
    if not every:
        return
    rows = ["<th>time</th><th>container</th><th>why</th>"]
    for cull in every[:MOST_CULLS]:
        at = clock(cull["at_s"], result.get("start_unix"), float(result.get("duration_s") or 1))
        name = escaped(cull.get("name", cull["container"]))
        rows.append(f"<td>{at}</td><td>{name}</td><td>{escaped(cull.get('reason', ''))}</td>")
    yield f'<h3>Culls</h3><div class="wide culls">{table(rows)}</div>'
    if len(every) > MOST_CULLS:
        yield f"<p>And {len(every) - MOST_CULLS:,} more: --json has all.</p>"
