"""What privacy rests on says what it requires and ensures, and where that is proved; the links lead to headings that exist."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from numpydoc.docscrape import FunctionDoc

from croupier import arithmetic, protocol
from croupier.privacy import certificate
from croupier.protocol import _encoding as encoding
from croupier.protocol import randomness

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"docs/([\w-]+\.md)#([\w-]*)")
NUMBERED = re.compile(r"accounting(?:\.md)?, (?:section )?(\d+)\b")
SECTIONS = ("Requires", "Ensures")


def samplers() -> Iterator[Callable[..., Any]]:
    """Yield every public function of the room that draws: one that takes a source of random bytes, or bytes that were drawn."""
    plain = (entry.name for entry in pkgutil.iter_modules(protocol.__path__) if entry.name != "compiled")  # that one needs numba
    for module in (importlib.import_module(f"{protocol.__name__}.{name}") for name in plain):
        for name, function in inspect.getmembers(module, inspect.isfunction):
            kinds = [str(parameter.annotation) for parameter in inspect.signature(function).parameters.values()]
            draws = "RandomSource" in kinds or "NDArray[np.uint8]" in kinds
            if function.__module__ == module.__name__ and not name.startswith("_") and draws:
                yield function


CONTRACTS = [
    certificate.certify,
    encoding.clip_to_ball,
    encoding.encode,
    arithmetic.row_squares,
    randomness.RandomSource.draw_bytes,
    *samplers(),
]


def section(function: Callable[..., Any], title: str) -> str:
    """Return the text of a section of a docstring; empty where there is none."""
    doc = inspect.getdoc(function) or ""
    match = re.search(rf"^{title}\n-+\n(.*?)(?=\n\n\w+\n-+\n|\Z)", doc, re.MULTILINE | re.DOTALL)
    return match[1] if match else ""


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as the site and GitHub make them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ +(.+?)\s*$", text, re.MULTILINE)
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in headings}


def sources() -> Iterator[tuple[str, str]]:
    for path in sorted((ROOT / "src").rglob("*.py")):
        yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")


def test_the_samplers_are_found():
    names = {f"{function.__module__.rpartition('.')[2]}.{function.__name__}" for function in samplers()}
    assert names >= {
        "_sampling.fair_binomial",
        "_sampling.binomial",
        "_sampling.round_at_random",
        "_sampling.carry",
        "_sampling.round_ties",
        "_sampling.permutation",
        "_sampling.draw",
        "_fused.added",
    }


@pytest.mark.parametrize("title", SECTIONS)
@pytest.mark.parametrize("function", CONTRACTS, ids=lambda function: function.__qualname__)
def test_a_contract_has_both_sections_each_with_a_proof(function, title):
    links = LINK.findall(section(function, title))
    assert "accounting.md" in {page for page, _ in links}, f"{function.__qualname__}: {title} without a link to a proof"


@pytest.mark.parametrize("function", CONTRACTS, ids=lambda function: function.__qualname__)
@pytest.mark.filterwarnings("ignore:Unknown section")
def test_numpydoc_still_reads_the_other_sections(function):
    doc = FunctionDoc(inspect.unwrap(function))
    parameters = [name for name in inspect.signature(function).parameters if name != "self"]
    assert [name for entry in doc["Parameters"] for name in entry.name.split(", ")] == parameters
    assert doc["Returns"] or doc["Yields"]


def test_every_link_to_a_proof_leads_to_a_heading():
    pages = {page.name: anchors(page) for page in (ROOT / "docs").glob("*.md")}
    links = {(where, *link) for where, text in sources() for link in LINK.findall(text)}
    assert len(links) >= 10
    assert not sorted(link for link in links if link[2] not in pages.get(link[1], set()))


def test_every_numbered_section_of_the_accounting_page_exists():
    numbers = {anchor.split("-")[0] for anchor in anchors(ROOT / "docs" / "accounting.md")}
    mentions = {(where, number) for where, text in sources() for number in NUMBERED.findall(text)}
    assert mentions
    assert not sorted(mention for mention in mentions if mention[1] not in numbers)
