"""Write the pages of the API reference: one for each room, with every public name.

    python tools/reference.py

docs/reference/ROOM.md gets a line for mkdocstrings for each name of the room's `__all__`; docs/reference/index.md lists all of
them. Every `make docs` makes these pages anew, and they are not stored: what is public is written once, in the rooms.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

HERE = Path(__file__).parents[1] / "docs" / "reference"

# A page, its title, and the modules on it. What a reader looks for first stands first.
PAGES: dict[str, tuple[str, tuple[str, ...]]] = {
    "estimator": ("Estimators", ("croupier.estimator",)),
    "protocol": ("One private round", ("croupier.protocol",)),
    "privacy": ("Guarantees and plans", ("croupier.privacy", "croupier.privacy._proof")),
    "statistics": ("Statistics", ("croupier.statistics",)),
    "optimizer": ("Training", ("croupier.optimizer",)),
    "problem": ("Losses, domains, problems", ("croupier.problem",)),
    "features": ("Feature maps", ("croupier.features",)),
    "population": ("Populations", ("croupier.population",)),
    "table": ("Tables", ("croupier.table",)),
    "report": ("Reports", ("croupier.report",)),
    "client": ("The client", ("croupier.client",)),
    "flower": ("Croupier for Flower", ("croupier.flower",)),
    "masked": ("Masked sums for other frameworks", ("croupier.masked",)),
    "audit": ("The audit", ("croupier.audit",)),
}


def public_names(module: ModuleType) -> list[str]:
    """Return the names that a module offers: those of `__all__`, or else the public classes and functions that it defines."""
    if hasattr(module, "__all__"):
        return list(module.__all__)
    defined = (name for name, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__)
    return sorted(name for name in defined if not name.startswith("_") and is_documented(getattr(module, name)))


def is_documented(value: Any) -> bool:
    """Whether a value is a class or a function: what has a docstring of its own."""
    return inspect.isclass(value) or inspect.isroutine(value)


def members(module: str) -> dict[str, Any]:
    """Return the public names of a module with their values."""
    imported = import_module(module)
    return {name: getattr(imported, name) for name in public_names(imported)}


def documented(module: str) -> dict[str, Any]:
    """Return those of a module's public names that have a docstring of their own."""
    return {name: value for name, value in members(module).items() if is_documented(value)}


def path_of(room: str, name: str, value: Any) -> str:
    """Return the path by which the reference finds a name: the room's, unless a module of the room has the same name."""
    shadowed = (Path(inspect.getfile(import_module(room))).parent / f"{name}.py").exists()
    return f"{value.__module__}.{value.__qualname__}" if shadowed else f"{room}.{name}"


def summary(value: Any) -> str:
    """Return the first sentence of a docstring."""
    text = inspect.getdoc(value) or ""
    first = " ".join(text.partition("\n\n")[0].split())
    return first.partition(". ")[0].rstrip(".")


def directives(module: str) -> list[str]:
    """Return the lines that mkdocstrings turns into the entries of a module: classes, functions, errors."""
    names = documented(module)
    ordered = sorted(names, key=lambda name: (_kind(names[name]), name.lower()))
    return [line for name in ordered for line in (f"::: {path_of(module, name, names[name])}", "")]


def values(module: str) -> list[str]:
    """Return the line that lists constants and types, which have no docstring of their own."""
    others = sorted(set(members(module)) - set(documented(module)))
    return ["Constants and types: " + ", ".join(f"`{name}`" for name in others) + ".", ""] if others else []


def _kind(value: Any) -> int:
    if not inspect.isclass(value):
        return 1
    return 2 if issubclass(value, Exception) else 0


def page(title: str, modules: tuple[str, ...]) -> str:
    """Return a page of the reference."""
    lines = [f"# {title}", ""]
    for module in modules:
        opening = (inspect.getdoc(import_module(module)) or "").partition("\n\n")[0].replace("\n", " ")
        lines += [f"## `{module}`", "", opening, "", *directives(module), *values(module)]
    return "\n".join(lines)


def index() -> str:
    """Return the list of all names."""
    lines = [
        "# Reference",
        "",
        "Every public name, made from the docstrings. Names in bold are the package's own, too: `import croupier as cr; cr.NAME`.",
        "",
    ]
    top = set(import_module("croupier").__all__)
    for file, (title, modules) in PAGES.items():
        lines += [f"## [{title}]({file}.md)", ""]
        for module in modules:
            names = documented(module)
            lines += [f"`{module}`", ""]
            for name in sorted(names, key=str.lower):
                mark = "**" if name in top else ""
                link = f"[`{name}`]({file}.md#{path_of(module, name, names[name])})"
                lines.append(f"- {mark}{link}{mark}: {summary(names[name])}")
            lines += ["", *values(module)]
    return "\n".join(lines)


def pages() -> dict[str, str]:
    """Return all pages by the names of their files."""
    return {"index.md": index()} | {f"{file}.md": page(*parts) for file, parts in PAGES.items()}


def write(folder: Path, texts: dict[str, str]) -> Iterable[Path]:
    """Write the pages that are new or changed, and remove those that are no more."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in set(folder.glob("*.md")) - {folder / name for name in texts}:
        old.unlink()
    for name, text in texts.items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            yield path


if __name__ == "__main__":
    for written in write(HERE, pages()):
        print(written)
