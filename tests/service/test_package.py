"""The TypeScript client as a package: what it holds, that it names no registry, and that its README runs as written."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from helpers_node import CLIENT, ROOT, needs_node, node
from helpers_roles import soon
from test_page import World, chromium

from croupier import __version__

pytestmark = pytest.mark.process

__all__ = ["chromium"]  # the fixture

SCHEMA = """
target = {column = "ill", classes = ["no", "yes"]}
[columns]
age = {low = 18, high = 90}
smokes = {levels = ["never", "daily"]}
"""
PLACE = "https://shuffler.example"  # as the docs have it
needs_npm = pytest.mark.skipif(
    shutil.which("npm") is None or not (CLIENT / "node_modules" / "esbuild").exists(),
    reason="npm ci was not run in clients/typescript",
)


def blocks(path, language: str) -> list[str]:
    """The blocks of code in a page."""
    return re.findall(rf"```{language}\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL)


def test_the_lock_file_names_no_registry_and_the_versions_agree():
    text = (CLIENT / "package-lock.json").read_text()
    lock, package = json.loads(text), json.loads((CLIENT / "package.json").read_text())
    assert "resolved" not in text
    assert "registry" not in text
    assert all("integrity" in entry for name, entry in lock["packages"].items() if name)
    assert lock["packages"][""]["devDependencies"] == package["devDependencies"]
    assert package["version"] == lock["version"] == __version__
    assert "dependencies" not in package


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder in which the package is installed, from what npm would publish."""
    folder = tmp_path_factory.mktemp("app")
    copied = folder / "client"  # packing builds: not in the sources
    shutil.copytree(CLIENT, copied / "clients" / "typescript", ignore=shutil.ignore_patterns("node_modules", "dist"))
    (copied / "clients" / "typescript" / "node_modules").symlink_to(CLIENT / "node_modules")
    shutil.copy(ROOT / "LICENSE", copied)
    service = Path("src", "croupier", "service")
    (copied / service / "shuffler").mkdir(parents=True)
    (copied / service / "wire").mkdir()
    shutil.copy(ROOT / service / "wire" / "documents.json", copied / service / "wire")
    command = ["npm", "pack", "--silent", "--offline", "--pack-destination", str(folder)]
    subprocess.run(command, cwd=copied / "clients" / "typescript", check=True, capture_output=True, timeout=120)
    [archive] = folder.glob("croupier-client-*.tgz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    (folder / "node_modules").mkdir()
    (folder / "package").rename(folder / "node_modules" / "croupier-client")
    (folder / "package.json").write_text('{"type": "module"}')
    return folder


@needs_node
@needs_npm
def test_the_package_holds_what_it_says_and_its_types_check(installed):
    package = installed / "node_modules" / "croupier-client"
    names = {str(path.relative_to(package)) for path in package.rglob("*") if path.is_file()}
    words = json.loads((package / "package.json").read_text())
    for entry in words["exports"].values():
        assert {entry["types"][2:], entry["default"][2:]} <= names
    assert words["types"][2:] in names
    assert {"README.md", "dist/LICENSE"} <= names
    assert not [name for name in names if not name.startswith("dist/") and name not in ("package.json", "README.md")]
    served = ROOT / "src" / "croupier" / "service" / "shuffler" / "page"
    assert (package / "dist" / "croupier-client.js").read_bytes() == (served / "croupier-client.js").read_bytes()
    (installed / "use.ts").write_text(
        'import { Client, type Task } from "croupier-client";\nimport { FolderStore } from "croupier-client/node";\n'
        'const key = "ab".repeat(32);\n'
        'const client = new Client({ shuffler: "https://a", token: "t", analyzerKey: key, store: new FolderStore("x") });\n'
        "export const task: Task = await client.task();\n"
        "// @ts-expect-error: a name is no number\nexport const wrong: number = task.name;\n"
    )
    checked = ["--noEmit", "--strict", "--target", "es2022", "--lib", "es2023,dom", "--types", ""]
    tsc = CLIENT / "node_modules" / "typescript" / "bin" / "tsc"
    for module in (("bundler", "esnext"), ("nodenext", "nodenext")):
        node(tsc, *checked, "--moduleResolution", module[0], "--module", module[1], installed / "use.ts")


@needs_node
@needs_npm
@pytest.mark.filterwarnings("ignore::croupier.estimator.MostlyNoiseWarning")  # of three people
def test_the_lines_of_the_readme_and_of_the_docs_run_as_written(tmp_path, installed, chromium):
    """Three people of one task: the README's lines for browsers and for Node, and the page of docs/browser.md."""
    in_browser, in_node = blocks(CLIENT / "README.md", "js")
    [page] = blocks(ROOT / "docs" / "browser.md", "html")
    world = World(tmp_path, users=3, rounds=1, schema=SCHEMA, epsilon=1.0, delta=1e-6, pace=0.1)
    with world.running(), ThreadPoolExecutor(1) as pool:
        facts = [f"const analyzerKey = {world.key!r}, token = {token!r};" for token in world.tokens]
        (installed / "me.mjs").write_text(f"{facts[0]}\nconst shuffler = {world.url!r}, home = {str(tmp_path)!r};\n{in_node}")
        ran = pool.submit(node, installed / "me.mjs")
        maps = '<script type="importmap">{"imports": {"croupier-client": "./croupier-client.js"}}</script>'
        lines = f'<script type="module">{in_browser}</script>'
        pages = {
            "one": f"<!doctype html>{maps}<script>{facts[1]} const shuffler = '{PLACE}';</script>{lines}",
            "two": f"<!doctype html><script>{facts[2]}</script>{page}",
        }
        module = (installed / "node_modules" / "croupier-client" / "dist" / "croupier-client.js").read_text()
        tabs = []
        for name, text in pages.items():
            context = chromium.new_context()
            said = 'document.title = "sent";</script>'
            context.route("**/*", answering(world, {name: said.join(text.rsplit("</script>", 1)), "croupier-client.js": module}))
            tabs.append(context.new_page())
            tabs[-1].goto(f"{PLACE}/{name}")
        for tab in tabs:
            tab.wait_for_function("document.title === 'sent'", timeout=60_000)
            tab.context.close()
        ran.result()
        soon(lambda: world.model is not None)
    assert list((tmp_path / ".croupier-node").glob("*-task.entry"))


def answering(world: World, files: dict[str, str]):
    """What stands behind the address of the docs: these files, and the shuffler."""

    def answer(route) -> None:
        path = route.request.url.removeprefix(f"{PLACE}/")
        if path in files:
            route.fulfill(body=files[path], content_type="text/javascript" if path.endswith(".js") else "text/html")
        else:
            headers = {name: value for name, value in route.request.all_headers().items() if not name.startswith(":")}
            route.fulfill(response=route.fetch(url=f"{world.url}/{path}", headers=headers))

    return answer
