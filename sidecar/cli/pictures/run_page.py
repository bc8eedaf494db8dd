"""The HTML page of ``simulate``, from the JSON of their answers: one file without scripts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from sidecar.cli.pictures import run_pictures, svg_shapes, tradeoff_pictures
from sidecar.cli.pictures.run_pictures import RunPictures
from sidecar.cli.pictures.run_series import clock
from sidecar.cli.report.page_skeleton import escaped, page, table
from sidecar.runlock import durations
from sidecar.simulation.day_report import NEEDS

MOST_CULLS: Final = 100
"""Maximum number of culls in the list of the page; the JSON has all."""

_STYLE: Final = f"""\
body{{max-width:60rem}}h3{{font-size:.95rem;margin:1.5rem 0 0}}.wide{{overflow-x:auto}}
.wide th,.wide td{{overflow-wrap:normal}}.wide th{{white-space:normal}}.wide td.n{{white-space:nowrap}}\
th.n{{text-align:right}}.culls td:nth-child(-n+2){{white-space:nowrap}}
{svg_shapes.STYLE}{run_pictures.STYLE}{tradeoff_pictures.STYLE}"""

_A_DAY: Final = "culls per day"
_DAY_S: Final = 86_400.0
_BASELINES: Final = ("do nothing", "article", "check_restart")


def html(result: Mapping[str, Any]) -> str:
    """The whole page of one result: a day, a sweep or a suggestion. Unknown keys are ignored."""
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
    for one in compared:
        yield f'<p class="shadow">{escaped(_sentence(one, is_named=len(compared) > 1))}</p>'
    yield f'<div class="wide">{table(_answers(columns, result))}</div>'
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


def _sentence(one: Mapping[str, Any], *, is_named: bool) -> str:
    """The answer in one sentence; of a record nobody knows which containers were healthy."""
    named = f"{one.get('rules')}: " if is_named else ""
    healthy = (one.get("culls_by_need") or {}).get("healthy")
    of_healthy = "" if healthy is None else f" ({healthy:,} of healthy containers)"
    refused = len({refusal.get("container") for refusal in one.get("each_refusal") or []})
    less = (one.get("avoidable_less_than") or {}).get("do nothing")
    avoided = (
        "" if less is None else f"; {abs(less):,} failed requests {'fewer' if less >= 0 else 'more'} than without culls"
    )
    return (
        f"{named}{_counted(one.get('culls', 0), 'cull')}{of_healthy}, {_counted(refused, 'container')} refused{avoided}"
    )


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _answers(columns: Sequence[Mapping[str, Any]], result: Mapping[str, Any]) -> Iterator[str]:
    """The rows of the table: a column for each set of rules. Culls a day are of whole days."""
    left_out = "" if float(result.get("duration_s") or 0) >= _DAY_S else _A_DAY
    heads = "".join(f'<th class="n" scope="col">{escaped(one.get("rules", ""))}</th>' for one in columns)
    yield f"<td></td>{heads}"
    for words, value in _rows(columns):
        cells = [value(one) for one in columns]
        if words != left_out and any(cell != "-" for cell in cells):
            shown = "".join(f'<td class="n">{escaped(cell)}</td>' for cell in cells)
            yield f'<th scope="row">{escaped(words)}</th>{shown}'


def _rows(columns: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Callable[[Mapping[str, Any]], str]]]:
    yield "avoidable failed requests", _number_of("avoidable_failed_requests")
    yield "all failed requests", _number_of("failed_requests")
    if any(one.get("failed_without_service") for one in columns):
        yield "… while no container was in service", _number_of("failed_without_service")
    yield "failed requests fewer than doing nothing", _number_of("avoidable_less_than", "do nothing")
    yield "culls", _number_of("culls")
    yield _A_DAY, _number_of("culls_per_day")
    for need, words in NEEDS.items():
        if any((one.get("culls_by_need") or {}).get(need) for one in columns):
            yield f"… {words}", _number_of("culls_by_need", need)
    for cause in dict.fromkeys(cause for one in columns for cause in one.get("culls_by_cause") or {}):
        yield f"… for: {cause}", _number_of("culls_by_cause", cause)
    yield "time to cull a stuck container: median", _seconds_of("time_to_cull_s", "median")
    yield "time to cull a stuck container: longest", _seconds_of("time_to_cull_s", "max")
    if not any("time_to_cull_s" in one for one in columns):  # nobody knows when it was stuck
        yield "time from suspect to cull: median", _seconds_of("suspect_to_cull_s", "median")
        yield "time from suspect to cull: longest", _seconds_of("suspect_to_cull_s", "max")
    for gate in sorted({gate for one in columns for gate in one.get("refused_containers") or {}}):
        yield f"incarnations refused, gate: {gate}", _number_of("refused_containers", gate)
    yield "suspects that recovered without a restart", _number_of("recovered_without_restart")
    yield "most tokens used in one window", _number_of("most_tokens_in_a_window")
    yield "most containers out of service at once", _number_of("most_out_of_service")
    if any(one.get("without_service_s") for one in columns):
        yield "seconds without any container in service", _number_of("without_service_s")
    yield "visits of an engineer", _number_of("visits_of_an_engineer")
    yield "still stuck at the end", _number_of("stuck_at_the_end")


def _number_of(*keys: str) -> Callable[[Mapping[str, Any]], str]:
    def cell(one: Mapping[str, Any]) -> str:
        value: Any = one
        for key in keys:
            value = value.get(key) if isinstance(value, Mapping) else None
        return "-" if value is None else f"{value:,g}" if isinstance(value, float) else f"{value:,}"

    return cell


def _seconds_of(figure: str, which: str) -> Callable[[Mapping[str, Any]], str]:
    def cell(one: Mapping[str, Any]) -> str:
        times = one.get(figure)
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
