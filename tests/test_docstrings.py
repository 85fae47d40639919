"""Every public name explains itself in numpydoc's sections: what `help()` and the reference show is all that a stranger has.

Checked are the names that the reference lists, and the public methods of the classes among them. TO_DO holds those that do not
comply yet: a name that complies has to leave it, and no name comes in.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator
from functools import cache, cached_property
from typing import Any

from numpydoc.validate import validate

import croupier
from tools import reference

# numpydoc's checks that have to pass: a docstring with a summary that is a sentence; every parameter documented, none unknown,
# in their order, each with a type and a meaning; what is returned or yielded, with its meaning; an example.
CHECKS = {"GL08", "SS01", "SS03", "PR01", "PR02", "PR03", "PR04", "PR07", "RT01", "RT03", "YD01", "EX01"}
NEEDS_NO_EXAMPLE = "croupier.service."  # servers: docs/deploy.md has the commands that start them

TO_DO: set[str] = set()


def objects() -> Iterator[tuple[str, Any]]:
    """Yield every public class and function of the rooms, by the path at which it is defined."""
    for _, modules in reference.PAGES.values():
        for module in modules:
            yield from ((f"{value.__module__}.{value.__qualname__}", value) for value in reference.documented(module).values())


def methods(owner: type) -> Iterator[str]:
    """Yield the paths of a class's public methods and properties, those of our own bases, too; one that only overrides has its
    base's words."""
    for place in (base for base in owner.__mro__ if base.__module__.startswith("croupier.")):
        for name, member in vars(place).items():
            function = getattr(member, "__func__", member)
            is_method = inspect.isfunction(function) or isinstance(function, (property, cached_property))
            inherits = not function.__doc__ and any(hasattr(base, name) for base in place.__mro__[1:])
            if is_method and not name.startswith("_") and not inherits:
                yield f"{place.__module__}.{place.__qualname__}.{name}"


def is_protocol(value: Any) -> bool:
    """Whether a class only declares a shape: nobody makes one, and what `typing` puts in place of its parameters says nothing."""
    return inspect.isclass(value) and bool(getattr(value, "_is_protocol", False))


def needs_example(path: str, value: Any) -> bool:
    """Whether a class or function is one that a reader calls: no error, no protocol, no server."""
    shape = is_protocol(value) or (inspect.isclass(value) and issubclass(value, Exception))
    return not shape and not path.startswith(NEEDS_NO_EXAMPLE)


def checks_of(path: str, value: Any) -> set[str]:
    """Return the checks that a class or function has to pass."""
    spared = (set() if needs_example(path, value) else {"EX01"}) | ({"PR01"} if is_protocol(value) else set())
    return CHECKS - spared


def complaints(path: str, checks: set[str]) -> list[str]:
    """Return what numpydoc finds wrong, of what has to be right."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "Guarantee" is a section of ours
        found = validate(path)["errors"]
    return [f"{path}: {code} {message}" for code, message in found if code in checks]


@cache
def all_complaints() -> dict[str, list[str]]:
    """Return the complaints about every public name and method, by its path."""
    found = {}
    for path, value in objects():
        found[path] = complaints(path, checks_of(path, value))
        for method in set(methods(value)) - set(found) if inspect.isclass(value) else ():
            found[method] = complaints(method, CHECKS - {"EX01"})
    return found


def test_every_public_name_is_documented():
    new = [line for path, lines in all_complaints().items() if path not in TO_DO for line in lines]
    assert not new, "\n" + "\n".join(new)


def test_names_that_comply_are_no_longer_listed():
    assert not sorted(path for path in TO_DO if not all_complaints().get(path)), "take these out of TO_DO"


def test_names_of_the_top_are_in_a_room():
    listed = {id(value) for _, value in objects()}
    own = {name for name in croupier.__all__ if not inspect.ismodule(getattr(croupier, name))}
    assert all(id(getattr(croupier, name)) in listed for name in own)
