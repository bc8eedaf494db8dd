"""The layout: which folder may import which. The tree is read, not run, so a late import counts like any other."""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from types import MappingProxyType
from typing import Final

import pytest

SIDECAR: Final = Path(__file__).parents[1] / "sidecar"

LAYERS: Final = (
    *("cli", "backtest", "app", "controller", "server", "inputs", "actions", "notify", "store", "telemetry"),
    *("config", "runlock", "core", "net", "client"),
)
"""The folders of ``sidecar``, from the top: each may import those after it, and none before it."""

CORE_LAYERS: Final = ("life", "measure", "fleet", "explain")
"""The same inside ``core``; its loose modules are for all three."""

Imports = Mapping[str, frozenset[str]]
"""Module -> the dotted names it imports; ``from a import b`` counts as ``a.b``."""

Rule = Callable[[Imports], list[str]]
"""Imports -> one sentence for each violation."""

IMPURE: Final = {
    *("datetime", "sched", "time", "zoneinfo", "random", "secrets", "uuid"),
    *("http", "select", "selectors", "socket", "socketserver", "ssl", "urllib"),
    *("asyncio", "concurrent", "contextvars", "multiprocessing", "queue", "threading"),
    *("ctypes", "io", "mmap", "os", "pathlib", "shutil", "signal", "subprocess", "sys", "tempfile"),
    *("importlib", "locale", "logging", "sqlite3", "warnings"),
}
"""What the core must not import of the standard library: clocks, chance, sockets, tasks, the machine."""

SHARED_WITH_CLIENT: Final = "sidecar.client.success_rate"
"""As pure as the core, which uses it; it stands with the client, which is installed without the core."""

ONLY_IN: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "pydantic": ("sidecar.config",),
        "click": ("sidecar.cli",),
        "redis": ("sidecar.store", "sidecar.runlock.leases"),
        "prometheus_client": ("sidecar.telemetry", "sidecar.server", "sidecar.app"),
        "aiohttp.web": ("sidecar.client", "sidecar.net.web", "sidecar.server.local_server"),
    }
)
NO_NAME: Final = frozenset({"utils", "util", "helpers", "helper", "base", "manager", "common", "misc"})


# -- reading ------------------------------------------------------------------------------------------------


def _imported(source: str, package: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = _origin(node, package)
            yield from (origin if alias.name == "*" else f"{origin}.{alias.name}" for alias in node.names)


def _origin(node: ast.ImportFrom, package: str) -> str:
    above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
    return ".".join([*above, *([node.module] if node.module else [])])


def _module(path: Path) -> str:
    parts = ("sidecar", *path.relative_to(SIDECAR).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _read_imports() -> Imports:
    imports = {}
    for path in sorted(SIDECAR.rglob("*.py")):
        module = _module(path)
        package = module if path.name == "__init__.py" else module.rpartition(".")[0]
        imports[module] = frozenset(_imported(path.read_text(), package))
    return imports


def _within(name: str, *packages: str) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def _pairs(imports: Imports, *packages: str) -> Iterator[tuple[str, str]]:
    for module, names in imports.items():
        if _within(module, *packages):
            yield from ((module, name) for name in sorted(names))


def _layer(name: str, depth: int, layers: tuple[str, ...]) -> int | None:
    """Which of the layers a dotted name belongs to; None if it belongs to none."""
    parts = name.split(".")
    return layers.index(parts[depth]) if len(parts) > depth and parts[depth] in layers else None


# -- rules --------------------------------------------------------------------------------------------------


def imports_go_downwards(imports: Imports) -> list[str]:
    return [
        f"{module} imports {name}: its folder stands above"
        for prefix, depth, layers in (("sidecar", 1, LAYERS), ("sidecar.core", 2, CORE_LAYERS))
        for module, name in _pairs(imports, prefix)
        if _within(name, prefix)
        and (own := _layer(module, depth, layers)) is not None
        and (other := _layer(name, depth, layers)) is not None
        and other < own
    ]


def core_is_pure(imports: Imports) -> list[str]:
    pure = sys.stdlib_module_names - IMPURE
    return [
        f"{module} imports {name}: the core knows no clock, no I/O and no libraries"
        for module, name in _pairs(imports, "sidecar.core", SHARED_WITH_CLIENT)
        if not _within(name, "sidecar.core", SHARED_WITH_CLIENT, "urllib.parse") and name.partition(".")[0] not in pure
    ]


def core_and_store_are_not_instrumented(imports: Imports) -> list[str]:
    return [
        f"{module} imports {name}: observers see a frozen record, the engine does not know them"
        for module, name in _pairs(imports, "sidecar.core", "sidecar.store", "sidecar.controller")
        if _within(name, "prometheus_client", "logging", "sidecar.telemetry")
    ]


def libraries_stay_in_their_folders(imports: Imports) -> list[str]:
    return [
        f"{module} imports {name}: {library} is for {', '.join(folders)}"
        for library, folders in ONLY_IN.items()
        for module, name in _pairs(imports, "sidecar")
        if _within(name, library) and not _within(module, *folders)
    ]


def distributions_stand_alone(imports: Imports) -> list[str]:
    """The client is installed by apps that have nothing else of ours."""
    return [
        f"{module} imports {name}: the client stands alone"
        for module, name in _pairs(imports, "sidecar.client")
        if _within(name, "sidecar") and not _within(name, "sidecar.client")
    ]


def modules_are_named_for_what_they_hold(imports: Imports) -> list[str]:
    return [f"{module}: say what it holds" for module in imports if NO_NAME.intersection(module.split("."))]


def no_module_is_loose(imports: Imports) -> list[str]:
    known = {"sidecar", "sidecar.__main__", *(f"sidecar.{layer}" for layer in LAYERS)}
    return [f"{module}: in no folder" for module in imports if module.count(".") < 2 and module not in known]


def no_two_modules_share_a_name(imports: Imports) -> list[str]:
    found = defaultdict(list)
    for module in imports:
        found[module.rpartition(".")[2]].append(module)
    return [f"{name}: {', '.join(modules)}" for name, modules in found.items() if len(modules) > 1]


def imports_form_no_circle(imports: Imports) -> list[str]:
    graph = {
        module: {known for name in names for known in (name, name.rpartition(".")[0]) if known in imports} - {module}
        for module, names in imports.items()
    }
    # A package is no part of its own modules' circles: it is there before they are.
    inner = {
        module: {other for other in others if not module.startswith(f"{other}.")} for module, others in graph.items()
    }
    try:
        TopologicalSorter(inner).prepare()
    except CycleError as error:
        return [f"{error.args[1][0]}: {' -> '.join(error.args[1])}"]
    return []


RULES: Final[tuple[Rule, ...]] = (
    imports_go_downwards,
    core_is_pure,
    core_and_store_are_not_instrumented,
    libraries_stay_in_their_folders,
    distributions_stand_alone,
    modules_are_named_for_what_they_hold,
    no_module_is_loose,
    no_two_modules_share_a_name,
    imports_form_no_circle,
)


# -- the tree -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tree() -> Imports:
    return _read_imports()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_tree_keeps_the_rule(rule: Rule, tree: Imports) -> None:
    assert rule(tree) == []


def test_no_two_classes_share_a_name() -> None:
    found = defaultdict(list)
    for path in sorted(SIDECAR.rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                found[node.name].append(_module(path))
    assert {name: modules for name, modules in found.items() if len(modules) > 1} == {}


def test_whole_tree_is_read(tree: Imports) -> None:
    assert {f"sidecar.{layer}" for layer in LAYERS} <= set(tree)
    assert "sidecar.core.types.Policy" in tree["sidecar.core.life.transitions"]


# -- the rules bite -----------------------------------------------------------------------------------------

VIOLATIONS = [
    (imports_go_downwards, "sidecar.server.health", "sidecar.controller.container_controller"),
    (imports_go_downwards, "sidecar.core.explain.reasons", "sidecar.core.life.transitions"),
    (core_is_pure, "sidecar.core.measure.window", "time"),
    (core_is_pure, "sidecar.core.types", "pydantic.BaseModel"),
    (core_is_pure, "sidecar.core", "sidecar.__version__"),
    (core_is_pure, "sidecar.client.success_rate", "time"),
    (core_and_store_are_not_instrumented, "sidecar.store.redis", "logging"),
    (libraries_stay_in_their_folders, "sidecar.app.daemon", "redis.asyncio"),
    (distributions_stand_alone, "sidecar.client.lines", "sidecar.core.types"),
    (modules_are_named_for_what_they_hold, "sidecar.store.common.keys", "json"),
    (no_module_is_loose, "sidecar.loop", "json"),
]


@pytest.mark.parametrize(
    ("rule", "module", "name"), VIOLATIONS, ids=[f"{module}->{name}" for _, module, name in VIOLATIONS]
)
def test_rule_bites(rule: Rule, module: str, name: str) -> None:
    (violation,) = rule({module: frozenset({name})})
    assert module in violation


def test_two_modules_of_one_name_and_a_circle_are_found() -> None:
    twice: Imports = {"sidecar.a.ledger": frozenset(), "sidecar.b.ledger": frozenset()}
    assert no_two_modules_share_a_name(twice) == ["ledger: sidecar.a.ledger, sidecar.b.ledger"]
    circle = {"sidecar.a.x": frozenset({"sidecar.b.y.Name"}), "sidecar.b.y": frozenset({"sidecar.a.x"})}
    assert len(imports_form_no_circle(circle)) == 1


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("import a.b, c as d", {"a.b", "c"}),
        ("from a.b import c as d, e", {"a.b.c", "a.b.e"}),
        ("from . import near", {"sidecar.core.near"}),
        ("from .near import name", {"sidecar.core.near.name"}),
        ("def late():\n    import time", {"time"}),
    ],
)
def test_import_is_read(source: str, names: set[str]) -> None:
    assert {*_imported(source, "sidecar.core")} == names
