"""`croupier doctor` against roles that really run, and the files that operators copy."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import yaml
from fastapi import FastAPI
from fastapi.responses import PlainTextResponse

from croupier import __version__
from croupier.cli import main

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "examples" / "deploy"
sys.path.insert(0, str(ROOT / "tests" / "service"))

from helpers_roles import World, postgres_server, round_of, sizes, soon, why_no_postgres  # noqa: E402

from croupier.service.analyzer.app import analyzer_app  # noqa: E402
from croupier.service.enroller import ENROLLER, EnrollerRole, enroller_app  # noqa: E402
from croupier.service.net.database import Database  # noqa: E402
from croupier.service.net.server import Served, development_certificate  # noqa: E402
from croupier.service.shuffler.app import shuffler_app  # noqa: E402
from croupier.service.shuffler.relay import AnalyzerRelay  # noqa: E402
from croupier.service.wire.enrolment import EnrollerKeys, new_signer  # noqa: E402


@pytest.fixture
def told(monkeypatch, capsys):
    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["croupier", "doctor", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return ended.value.code, out, err

    return run


def findings(out: str) -> dict[tuple[str, str], dict[str, str]]:
    return {(one["role"], one["looked_at"]): one for one in json.loads(out)}


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path, users=12)
    yield made
    made.close()


def test_a_healthy_shuffler_behind_tls_is_told_to_be_well(told, world, tmp_path):
    tls = development_certificate(tmp_path)
    key = world.analyzer_key.public_key().public_bytes_raw().hex()
    with Served(shuffler_app(world.shuffler()), tls=tls) as served:
        code, out, _ = told("--shuffler", served.url, "--analyzer-key", key, "--ca", tls[0], "--json")
        seen = findings(out)
        assert code == 0, out
        assert {one["state"] for one in seen.values()} == {"ok"}, out
        assert seen["shuffler", "version"]["seen"] == __version__
        assert "masked-sum, 12 users" in seen["shuffler", "task"]["seen"]
        assert "differentially private" in seen["shuffler", "promise"]["seen"]
        # without the authority, and with another key
        code, out, _ = told("--shuffler", served.url, "--json")
        assert code == 1
        assert "--ca" in findings(out)["shuffler", "TLS"]["remedy"]
        code, out, _ = told("--shuffler", served.url, "--analyzer-key", "11" * 32, "--ca", tls[0])
        assert code == 1
        assert "Clients refuse it too" in out.replace("\n", " ")


def test_another_role_at_an_address_is_bad(told, world):
    """The fault: with the analyzer's address for the shuffler's, all was said to be well."""
    with Served(analyzer_app(world.population())) as served:
        key = world.analyzer_key.public_key().public_bytes_raw().hex()
        code, out, _ = told("--shuffler", served.url, "--analyzer-key", key, "--json")
        assert code == 1
        seen = findings(out)["shuffler", "role"]
        assert (seen["state"], seen["seen"]) == ("bad", "the analyzer answers there")
        assert "use the shuffler's address" in seen["remedy"]
        code, out, _ = told("--analyzer", served.url, "--analyzer-key", key, "--json")
        assert (code, findings(out)["analyzer", "role"]["state"]) == (0, "ok")
    with Served(FastAPI()) as other:
        code, out, _ = told("--enroller", other.url, "--json")
        assert (code, findings(out)["enroller", "role"]["seen"]) == (1, "no Croupier role answers there")


def test_two_development_certificates_are_checked_at_once(told, world, tmp_path):
    key = world.analyzer_key.public_key().public_bytes_raw().hex()
    ours, theirs = development_certificate(tmp_path / "shuffler"), development_certificate(tmp_path / "analyzer")
    with (
        Served(shuffler_app(world.shuffler()), tls=ours) as shuffler,
        Served(analyzer_app(world.population()), tls=theirs) as analyzer,
    ):
        where = ("--shuffler", shuffler.url, "--analyzer", analyzer.url, "--analyzer-key", key, "--json")
        code, out, _ = told(*where, "--ca", ours[0], "--ca", theirs[0])
        assert code == 0, out
        assert findings(out)["both", "same task"]["state"] == "ok"
        code, out, _ = told(*where, "--ca", ours[0])
        assert (code, findings(out)["analyzer", "TLS"]["state"]) == (1, "bad")
        assert findings(out)["shuffler", "TLS"]["state"] == "ok"
    (tmp_path / "none.pem").write_text("nothing")
    for file, reason in ((tmp_path / "none.pem", "no certificate in it"), (tmp_path / "gone.pem", "No such file")):
        code, _, err = told(*where, "--ca", file)
        assert (code, reason in err) == (2, True)


def test_the_keys_and_the_address_of_an_enroller_are_those_of_the_task(told, tmp_path):
    signers, made = [new_signer(), new_signer()], []
    for number, signer in enumerate(signers):
        store = Database(f"sqlite:///{tmp_path / f'enroller{number}.db'}", ENROLLER)
        made.append(Served(enroller_app(EnrollerRole(store, [signer]))))
    with made[0] as right, made[1] as wrong:
        world = World(tmp_path, enroller=EnrollerKeys(right.url, (signers[0].public_key().public_numbers().n,)))
        key = world.analyzer_key.public_key().public_bytes_raw().hex()
        with Served(shuffler_app(world.shuffler())) as served:
            where = ("--shuffler", served.url, "--analyzer-key", key, "--json")
            code, out, _ = told(*where, "--enroller", right.url)
            assert (code, findings(out)["enroller", "keys"]["state"]) == (0, "ok"), out
            code, out, _ = told(*where, "--enroller", wrong.url)
            assert code == 1
            assert {findings(out)["enroller", name]["state"] for name in ("address", "keys")} == {"bad"}
            code, out, _ = told(*where)
            assert (code, findings(out)["enroller", "reach"]["state"]) == (0, "warn")
        world.close()


def test_each_fault_is_bad_and_says_what_to_do(told):
    ill = FastAPI()

    @ill.get("/healthz")
    def health() -> PlainTextResponse:
        old = {"Date": "Mon, 01 Jan 2024 00:00:00 GMT", "Croupier-Version": "0.0.1", "Croupier-Role": "shuffler"}
        text = "not ok: the disk is full\noldest batch not forwarded: 4000 s\n"
        return PlainTextResponse(text, status_code=503, headers=old)

    @ill.get("/v1/task")
    def task() -> PlainTextResponse:
        return PlainTextResponse("no task yet\n", status_code=503)

    with Served(ill) as served:
        url = served.url
        code, out, _ = told("--shuffler", url, "--json")
    seen = findings(out)
    assert code == 1
    states = {name: seen["shuffler", name]["state"] for name in ("health", "oldest batch not forwarded", "version", "task")}
    assert states == {"health": "bad", "oldest batch not forwarded": "bad", "version": "warn", "task": "warn"}
    assert all(one["remedy"] for one in seen.values() if one["state"] != "ok")
    code, out, _ = told("--shuffler", url, "--json")  # it has stopped by now
    assert (code, findings(out)["shuffler", "reach"]["state"]) == (1, "bad")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "--shuffler"),
        (("--shuffler", "http://shuffler.example"), "https"),
        (("--shuffler", "http://127.0.0.1:1", "--analyzer-key", "zz"), "64 hex digits"),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_asked(told, arguments, words):
    code, _, err = told(*arguments)
    assert code == 2
    assert words in err


def test_alerts_and_dashboard_name_metrics_that_the_roles_have(world):
    role = world.shuffler()
    with Served(shuffler_app(role, AnalyzerRelay(role, "http://127.0.0.1:9").loop)) as served:
        text = urllib.request.urlopen(served.url + "/metrics").read().decode()
    alerts = yaml.safe_load((DEPLOY / "monitoring" / "alerts.yml").read_text())["groups"][0]["rules"]
    dashboard = json.loads((DEPLOY / "monitoring" / "dashboard.json").read_text())
    expressions = [rule["expr"] for rule in alerts] + [one["expr"] for panel in dashboard["panels"] for one in panel["targets"]]
    named = {name for expression in expressions for name in re.findall(r"croupier_\w+", expression)}
    others = {"croupier_batches_taken_total", "croupier_tokens_issued_total"}  # of the other roles
    source = "".join(path.read_text() for path in (ROOT / "src/croupier/service").rglob("*.py"))
    for name in named:
        assert name.removesuffix("_total") in (source if name in others else text), name
    page = (ROOT / "docs" / "deploy.md").read_text()
    for rule in alerts:
        assert rule["annotations"]["runbook"].split(", ")[1] in page


PROJECTS = ("shuffler", "analyzer", "enroller")


@pytest.mark.parametrize("name", PROJECTS)
def test_compose_files_parse_and_name_files_and_ports_that_fit(name):
    project = yaml.safe_load((DEPLOY / f"compose-{name}.yml").read_text())
    assert set(project["services"]) == {"database", name, "proxy"}
    role, proxy = project["services"][name], project["services"]["proxy"]
    port = next(word.partition("=")[2] for word in role["command"] if word.startswith("--port="))
    conf = f"nginx-{name}.conf"
    assert f"server {name}:{port};" in (DEPLOY / conf).read_text()
    assert any(volume.startswith(f"./{conf}:") for volume in proxy["volumes"])
    assert "ports" not in role  # only the proxy can be reached
    assert (DEPLOY / role["build"]["context"] / role["build"]["dockerfile"]).resolve() == DEPLOY / "Containerfile"
    for volume in (one.split(":")[0] for service in project["services"].values() for one in service.get("volumes", [])):
        assert volume.startswith("./") or volume in project["volumes"]


@pytest.mark.process
@pytest.mark.skipif(why_no_postgres() is not None, reason=str(why_no_postgres()))
def test_the_commands_of_the_compose_files_start_as_processes_on_postgres(tmp_path):
    """The same words as in the containers, with folders of this machine in the place of volumes: each role answers."""
    (tmp_path / "task").mkdir()
    for file in ("task.toml", "schema.toml"):
        shutil.copy(DEPLOY / file, tmp_path / "task")
    keys = ["enroller-keys", "--dir", str(tmp_path / "enroller"), "--address", "https://enroller.example"]
    subprocess.run([sys.executable, "-m", "croupier", "serve", *keys], check=True, capture_output=True)
    given = {"ANALYZER": "http://127.0.0.1:9", "ANALYZER_KEY": "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"}
    given |= {
        "ENROLLER": "https://enroller.example",
        "OIDC_ISSUER": "https://login.example",
        "OIDC_CLIENT": "me",
        "OIDC_SECRET": "s",
    }
    given |= {"PAGE": "https://shuffler.example", "POSTGRES_PASSWORD": "p"}
    started = {}
    with postgres_server() as server:
        try:
            for name in PROJECTS:
                role = yaml.safe_load((DEPLOY / f"compose-{name}.yml").read_text())["services"][name]
                filled = [re.sub(r"\$\{(\w+):\?\}", lambda found: given[found[1]], word) for word in role["command"]]
                words = [
                    word.replace("=/state", f"={tmp_path / name}").replace("=/task", f"={tmp_path / 'task'}") for word in filled
                ]
                words = [re.sub("^--port=.*", "--port=0", word).replace("0.0.0.0", "127.0.0.1") for word in words]
                assert set(role["environment"]) <= {"CROUPIER_DATABASE", "CROUPIER_OIDC_SECRET"}
                environment = {**os.environ, "CROUPIER_DATABASE": server(name), "CROUPIER_OIDC_SECRET": given["OIDC_SECRET"]}
                command = [sys.executable, "-m", "croupier", "serve", *words]
                started[name] = subprocess.Popen(
                    command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
                )
            for name, process in started.items():
                line = process.stdout.readline()
                assert line.startswith(f"{name} on http://127.0.0.1:"), process.stderr.read()
                with urllib.request.urlopen(f"{line.split()[-1]}/healthz") as answer:
                    assert (answer.status, answer.headers["Croupier-Role"]) == (200, name)
                act = json.loads((tmp_path / name / "audit.jsonl").read_text().splitlines()[-1])
                assert act["act"].startswith("start ")
        finally:
            for process in started.values():
                process.terminate()
                process.communicate(timeout=60)


@pytest.mark.process
@pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed")
def test_the_sample_proxy_passes_what_clients_send_and_limits_an_address(told, world, tmp_path):
    tls = development_certificate(tmp_path)
    key = world.analyzer_key.public_key().public_bytes_raw().hex()
    with Served(shuffler_app(world.shuffler())) as served, Served(FastAPI()) as free:
        port = int(free.url.rpartition(":")[2])
    shuffler, document = world.shuffler(), round_of(world)
    shuffler.open(document)
    with Served(shuffler_app(shuffler)) as served:
        text = (DEPLOY / "nginx-shuffler.conf").read_text()
        text = text.replace("listen 443 ssl", f"listen 127.0.0.1:{port} ssl").replace(
            "server shuffler:8801", f"server {served.url[7:]}"
        )
        text = text.replace("/tls/certificate.pem", str(tls[0])).replace("/tls/key.pem", str(tls[1]))
        (tmp_path / "nginx.conf").write_text(f"pid {tmp_path}/nginx.pid;\n{text}")
        proxy = subprocess.Popen(["nginx", "-p", str(tmp_path), "-c", str(tmp_path / "nginx.conf"), "-g", "daemon off;"])
        try:
            url = f"https://localhost:{port}"

            def ready() -> bool:
                code, _, _ = told("--shuffler", url, "--analyzer-key", key, "--ca", tls[0], "--json")
                return code == 0

            soon(ready)
            context = ssl.create_default_context(cafile=str(tls[0]))
            with urllib.request.urlopen(f"{url}/v1/task", context=context) as answer:
                assert (answer.status, bool(answer.headers["Strict-Transport-Security"])) == (200, True)
            for user in range(3):  # as clients do: what to answer, and the report, which is on disk when it is acknowledged
                known = {"Authorization": f"Bearer {world.tokens[user]}"}
                for path, body in (("/v1/start", None), ("/v1/report", world.report(user, document))):
                    with urllib.request.urlopen(urllib.request.Request(url + path, body, known), context=context) as answer:
                        assert answer.status == 200
            assert sizes(world) == (3, 3)
            # At once, and what the proxy answers by itself: as many as that come within the limit only if it takes a minute.
            with (
                socket.create_connection(("localhost", port), timeout=60) as raw,
                context.wrap_socket(raw, server_hostname="localhost") as connection,
            ):
                request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n"
                connection.sendall((request + b"\r\n") * 799 + request + b"Connection: close\r\n\r\n")
                said = b"".join(iter(lambda: connection.recv(1 << 16), b""))
            statuses = re.findall(rb"HTTP/1.1 (\d+)", said)
            assert statuses[0] == b"403"  # nobody else's business
            assert statuses.count(b"403") >= 50
            assert set(statuses) == {b"403", b"429"}
        finally:
            proxy.terminate()
            proxy.wait(20)
