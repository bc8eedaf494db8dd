"""The layout: which folder may import which. The tree is read, not run, so a late import counts like any other."""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from graphlib import TopologicalSorter
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

Rule = Callable[[str, str], bool]
"""Whether this module may not import this name."""

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


@pytest.fixture(scope="module")
def tree() -> Imports:
    imports = {}
    for path in sorted(SIDECAR.rglob("*.py")):
        module = _module(path)
        package = module if path.name == "__init__.py" else module.rpartition(".")[0]
        imports[module] = frozenset(_imported(path.read_text(), package))
    return imports


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


# -- what may be imported -------------------------------------------------------------------------------------


def _within(name: str, *packages: str) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def _layer(name: str, depth: int, layers: tuple[str, ...]) -> int | None:
    """Which of the layers a dotted name belongs to; None if it belongs to none."""
    parts = name.split(".")
    return layers.index(parts[depth]) if len(parts) > depth and parts[depth] in layers else None


def goes_upwards(module: str, name: str) -> bool:
    for package, depth, layers in (("sidecar", 1, LAYERS), ("sidecar.core", 2, CORE_LAYERS)):
        if _within(module, package) and _within(name, package):
            own, other = _layer(module, depth, layers), _layer(name, depth, layers)
            if own is not None and other is not None and other < own:
                return True
    return False


def makes_the_core_impure(module: str, name: str) -> bool:
    is_pure = _within(name, "sidecar.core", SHARED_WITH_CLIENT, "urllib.parse")
    is_pure = is_pure or name.partition(".")[0] in sys.stdlib_module_names - IMPURE
    return _within(module, "sidecar.core", SHARED_WITH_CLIENT) and not is_pure


def instruments_the_engine(module: str, name: str) -> bool:
    """Observers see a frozen record; the engine does not know them."""
    is_engine = _within(module, "sidecar.core", "sidecar.store", "sidecar.controller")
    return is_engine and _within(name, "prometheus_client", "logging", "sidecar.telemetry")


def takes_a_library_elsewhere(module: str, name: str) -> bool:
    return any(_within(name, library) and not _within(module, *folders) for library, folders in ONLY_IN.items())


def ties_the_client(module: str, name: str) -> bool:
    """The client is installed by apps that have nothing else of ours."""
    return _within(module, "sidecar.client") and _within(name, "sidecar") and not _within(name, "sidecar.client")


BROKEN: Final = (
    (goes_upwards, "sidecar.server.health", "sidecar.controller.container_controller"),
    (goes_upwards, "sidecar.core.explain.reasons", "sidecar.core.life.transitions"),
    (makes_the_core_impure, "sidecar.core.measure.window", "time"),
    (makes_the_core_impure, "sidecar.core.types", "pydantic.BaseModel"),
    (makes_the_core_impure, "sidecar.core", "sidecar.__version__"),
    (makes_the_core_impure, "sidecar.client.success_rate", "time"),
    (instruments_the_engine, "sidecar.store.redis", "logging"),
    (takes_a_library_elsewhere, "sidecar.app.daemon", "redis.asyncio"),
    (ties_the_client, "sidecar.client.lines", "sidecar.core.types"),
)


@pytest.mark.parametrize(("rule", "module", "name"), BROKEN, ids=[f"{module}->{name}" for _, module, name in BROKEN])
def test_rule_is_kept_by_the_tree_and_knows_a_breach(rule: Rule, module: str, name: str, tree: Imports) -> None:
    assert rule(module, name)
    assert [(importer, each) for importer, names in tree.items() for each in names if rule(importer, each)] == []


def test_imports_form_no_circle(tree: Imports) -> None:
    graph = {
        module: {known for name in names for known in (name, name.rpartition(".")[0]) if known in tree} - {module}
        for module, names in tree.items()
    }
    # A package is no part of its own modules' circles: it is there before they are.
    inner = {module: {each for each in names if not module.startswith(f"{each}.")} for module, names in graph.items()}
    assert len([*TopologicalSorter(inner).static_order()]) == len(tree), "CycleError names the circle"


# -- names ----------------------------------------------------------------------------------------------------


def test_every_module_is_in_a_folder_and_named_for_what_it_holds(tree: Imports) -> None:
    folders = {f"sidecar.{layer}" for layer in LAYERS}
    assert {module for module in tree if module.count(".") < 2} == {"sidecar", "sidecar.__main__", *folders}
    assert [module for module in tree if NO_NAME.intersection(module.split("."))] == []


def test_no_two_modules_and_no_two_classes_share_a_name(tree: Imports) -> None:
    names = [module.rpartition(".")[2] for module in tree]
    for path in SIDECAR.rglob("*.py"):
        names += [node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef)]
    assert [name for name, times in Counter(names).items() if times > 1] == []
