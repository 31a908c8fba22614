"""Rules of the code base that a reviewer would otherwise check by eye."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = [
    *sorted((ROOT / "src").rglob("*.py")),
    *sorted((ROOT / "analysis").rglob("*.py")),
    ROOT / "train.py",
]

# package or module -> what it must not import, at any depth of its own code
FORBIDDEN = {
    "analysis": ("torch", "hydra", "submitit", "omegaconf"),
    "sweeper.training": ("sweeper.measure", "sweeper.launch", "sweeper.run", "hydra", "analysis"),
    "sweeper.measure": ("sweeper.training", "sweeper.launch", "sweeper.run", "hydra", "analysis"),
    "sweeper.models": ("sweeper.training", "sweeper.measure", "sweeper.launch", "hydra"),
    "sweeper.data": ("sweeper.training", "sweeper.measure", "sweeper.launch", "hydra"),
    "sweeper.tracking": ("sweeper.training", "sweeper.launch", "sweeper.run", "hydra", "torch"),
    "sweeper.machine": ("torch", "hydra", "sweeper.launch", "sweeper.measure", "sweeper.training"),
    "sweeper.record": ("torch", "hydra", "omegaconf", "pandas", "numpy"),
    "sweeper.run": ("hydra", "sweeper.launch", "analysis"),
    "sweeper.trainer": ("hydra", "sweeper.launch", "analysis"),
    "sweeper.launch": ("analysis", "sweeper.training", "sweeper.measure", "sweeper.models"),
    "sweeper": ("analysis",),
}
# The tracker for TensorBoard is torch's own writer.
ALLOWED = {("sweeper.tracking.tensorboard", "torch")}


def module_name(path: Path) -> str:
    base = ROOT / "src" if (ROOT / "src") in path.parents else ROOT
    return ".".join(path.relative_to(base).with_suffix("").parts).removesuffix(".__init__")


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def is_in(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


@pytest.mark.parametrize("path", SOURCES, ids=module_name)
def test_dependencies_point_one_way(path: Path) -> None:
    module = module_name(path)
    wrong = {
        f"{module} imports {name}"
        for package, forbidden in FORBIDDEN.items()
        if is_in(module, package)
        for name in imports(path)
        for barred in forbidden
        if is_in(name, barred) and (module, barred) not in ALLOWED
    }
    assert not wrong


def test_only_the_entry_points_of_the_command_line_import_hydra() -> None:
    allowed = {
        "sweeper.instantiate",
        "sweeper.cli",
        "sweeper.counts",
        "sweeper.overrides",
        "sweeper.refusals",
        "sweeper.complaints",
        "sweeper.application",
    }
    importers = {
        module_name(path)
        for path in SOURCES
        if any(is_in(name, "hydra") for name in imports(path))
        and not is_in(module_name(path), "hydra_plugins")
        and not is_in(module_name(path), "sweeper.launch")
    }
    assert importers <= allowed


def test_hydra_instantiate_is_called_in_one_module() -> None:
    callers = {
        module_name(path)
        for path in SOURCES
        if re.search(r"\binstantiate\(", path.read_text("utf-8"))
        and module_name(path) != "sweeper.instantiate"
        and not is_in(module_name(path), "hydra_plugins")
    }
    assert not callers


def test_plugins_are_a_namespace_package() -> None:
    assert not (ROOT / "src" / "hydra_plugins" / "__init__.py").exists()


@pytest.mark.parametrize(
    "path", sorted((ROOT / "conf").rglob("*.yaml")), ids=lambda p: str(p.relative_to(ROOT))
)
def test_every_config_value_has_a_comment(path: Path) -> None:
    bare = [
        line
        for line in path.read_text("utf-8").splitlines()
        if re.match(r"\s*[\w/]+:\s*[^\s#&|>]", line)
        and "#" not in line
        and "_target_" not in line
        and not line.lstrip().startswith("-")
    ]
    if path.parent.name in ("experiment",) or path.name == "config.yaml":
        bare = [line for line in bare if not line.startswith(("hydra", "  ", "    "))]
    assert not bare, "\n".join(bare)
