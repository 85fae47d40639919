"""Sign-in at the enroller: a real provider in a process of its own, and ID tokens that are not believed."""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from http.cookiejar import CookieJar
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from helpers_roles import soon
from test_page import chromium

from croupier.cli.serve import sign_in_of
from croupier.service import enroller as tables
from croupier.service.enroller import EnrollerRole, Provider, SignIn, add_sign_in, enroller_app, invitation_key
from croupier.service.net.database import Database
from croupier.service.net.server import Served
from croupier.service.shuffler.app import invitation_link
from croupier.service.wire.enrolment import TokenRequests, new_signer
from croupier.service.wire.task import RefusedError
from croupier.validation import ArgumentError

pytestmark = pytest.mark.process

__all__ = ["chromium"]  # the fixture
SIGNER = new_signer()


@pytest.fixture(scope="module")
def provider():
    """oidc-provider-mock, a small provider from the registry, as a process: discovery, keys, sign-in, codes, PKCE, ID tokens."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "oidc_provider_mock", "--port", str(port), "--require-nonce", "true", "--user", "ann"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        try:
            return urllib.request.urlopen(f"{url}/.well-known/openid-configuration").status == 200
        except OSError:
            return False

    try:
        soon(answers)
        yield url
    finally:
        process.terminate()
        process.wait(20)


class Desk:
    """An enroller on a socket, where people sign in."""

    def __init__(self, folder, issuer: str, origins: list[str], **more) -> None:
        folder.mkdir(exist_ok=True)
        self.folder, self.store = folder, Database(f"sqlite:///{folder / 'enroller'}.db", tables.ENROLLER)
        self.role = EnrollerRole(self.store, [SIGNER])
        app = enroller_app(self.role)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        provider = (issuer, "enroller", "secret", more.get("required", []), None)
        add_sign_in(app, sign_in_of(folder, self.role, provider, self.url, origins))
        self._served = Served(app, port=port)

    def __enter__(self):
        self._served.__enter__()
        return self

    def __exit__(self, *_) -> None:
        self._served.__exit__()
        self.store.close()

    @property
    def people(self) -> int:
        with self.store.look() as connection:
            return connection.exec_driver_sql("SELECT count(*) FROM people").scalar()


class Browser:
    """Follows redirects and keeps cookies, as a browser does."""

    def __init__(self) -> None:
        self.opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))

    def get(self, url: str, form: dict[str, str] | None = None) -> tuple[str, str]:
        data = None if form is None else urllib.parse.urlencode(form).encode()
        with self.opener.open(url, data) as answer:
            return answer.url, answer.read().decode()

    def sign_in(self, desk: str, subject: str) -> str:
        where, _ = self.get(f"{desk}/sign-in")
        url, page = self.get(where, {"sub": subject})
        assert url.startswith(f"{desk}/signed-in")
        return page.split("<code>")[2].split("</code>")[0]


def test_an_account_has_one_invitation_whenever_and_wherever_it_signs_in(tmp_path, provider):
    with Desk(tmp_path / "desk", provider, []) as desk:
        first = Browser().sign_in(desk.url, "ann")
        assert Browser().sign_in(desk.url, "ann") == first
        second = Browser().sign_in(desk.url, "bob")
        assert second != first
        assert desk.people == 2
        assert first.encode() not in (tmp_path / "desk" / "enroller.db").read_bytes()
        # the invitation is one that the enroller signs for, once
        person = desk.role.person_of(first)
        keys = type("Keys", (), {"keys": (SIGNER.public_key(),)})()
        body = TokenRequests.drawn("ab" * 32, keys).to_bytes()
        assert len(desk.role.sign(desk.role.commit(person, body))) == 256
        with pytest.raises(RefusedError):
            desk.role.commit(person, TokenRequests.drawn("ab" * 32, keys).to_bytes())
    with Desk(tmp_path / "other", provider, []) as desk:  # another enroller, of another task: another invitation
        assert Browser().sign_in(desk.url, "ann") != first


def test_a_sign_in_ends_in_the_browser_that_began_it_and_once(tmp_path, provider):
    """The attack: somebody is led to the end of another one's sign-in, and answers under that one's name."""
    with Desk(tmp_path / "desk", provider, []) as desk:
        thief, victim = Browser(), Browser()
        where, _ = thief.get(f"{desk.url}/sign-in")

        class Kept(urllib.request.HTTPRedirectHandler):
            def redirect_request(self, *_):
                return None

        opener = urllib.request.build_opener(Kept)
        with pytest.raises(urllib.error.HTTPError) as found:
            opener.open(where, urllib.parse.urlencode({"sub": "thief"}).encode())
        end = found.value.headers["Location"]
        with pytest.raises(urllib.error.HTTPError) as refused:
            victim.get(end)
        assert refused.value.code == 400
        assert desk.people == 0
        thief.get(end)  # its own
        with pytest.raises(urllib.error.HTTPError):
            thief.get(end)  # it was used up
        assert desk.people == 1


def test_nobody_keeps_others_from_signing_in_and_what_a_browser_keeps_cannot_be_changed():
    """More sign-ins than a server could remember are begun, and the first one can still be ended; nothing else can."""
    now, places = [0.0], ("authorization_endpoint", "token_endpoint", "jwks_uri")
    known = 0.0, dict.fromkeys(places, "https://provider.example/")
    at = Provider("https://provider.example", "client", clock=lambda: now[0], _known=known)
    asked = []
    at.subject = lambda code, redirect, pending: asked.append(pending) or code
    signing = SignIn(at, b"k" * 32, "https://desk.example", ["https://page.example"], lambda invitations: 1)
    where, kept = signing.begin("https://page.example/at", "abc")
    said = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(where).query))
    others = [signing.begin(None, "") for _ in range(10_001)]
    invitation, pending = signing.end(said["state"], kept, "ann")
    assert invitation == signing.invitation("ann")
    assert (pending.back, pending.state, pending.nonce) == ("https://page.example/at", "abc", said["nonce"])
    challenge = hashlib.sha256(asked[0].verifier.encode()).digest()
    assert base64.urlsafe_b64encode(challenge).rstrip(b"=").decode() == said["code_challenge"]
    text, _, proof = kept.partition(".")
    words = json.loads(base64.urlsafe_b64decode(text + "=="))
    forged = base64.urlsafe_b64encode(json.dumps([*words[:2], "https://evil.example", ""]).encode()).rstrip(b"=").decode()
    other = SignIn(at, b"l" * 32, "https://desk.example", [], lambda invitations: 1)
    for desk, state, bound in (
        (signing, said["state"], f"{forged}.{proof}"),
        (signing, said["state"], others[0][1]),
        (signing, said["state"], said["state"]),
        (signing, "", ""),
        (signing, "", "\xe4.\xe4"),
        (other, said["state"], kept),
    ):
        with pytest.raises(RefusedError, match="begun elsewhere"):
            desk.end(state, bound, "ann")
    now[0] = 600.0
    with pytest.raises(RefusedError, match="over"):
        signing.end(said["state"], kept, "ann")


def status(desk: Desk, path: str) -> int:
    connection = http.client.HTTPConnection(desk.url.removeprefix("http://"))
    connection.request("GET", path)
    found = connection.getresponse().status
    connection.close()
    return found


def test_a_person_goes_back_to_a_page_that_was_allowed_and_to_no_other(tmp_path, provider):
    with Desk(tmp_path / "desk", provider, ["https://study.example"]) as desk:
        for back in ("https://evil.example/", "https://study.example.evil/", "https://study.example/?x=1", "javascript:alert(1)"):
            assert status(desk, f"/sign-in?return={urllib.parse.quote(back)}") == 400, back
        assert status(desk, "/sign-in?return=https%3A%2F%2Fstudy.example%2Fpage.html&state=abc") == 303
        assert status(desk, "/sign-in?state=%3Cscript%3E") == 400
        assert status(desk, "/signed-in?error=access_denied&state=x") == 403


def test_the_page_signs_in_and_comes_back_with_everything_that_its_link_pins(tmp_path, provider, chromium):
    """From a link, by the provider, back to the page: the tab has its pins and the invitation, and neither is in its address."""
    from fastapi import FastAPI  # noqa: PLC0415

    from croupier.service.shuffler.app import add_page  # noqa: PLC0415

    shuffler = FastAPI()
    add_page(shuffler)
    with Served(shuffler) as served, Desk(tmp_path / "desk", provider, [served.url]) as desk:
        link = invitation_link(
            f"{served.url}/",
            code="c" * 43,
            analyzer="ab" * 32,
            shuffler=served.url,
            until=time.time() + 600,
            enroller=desk.url,
            sign_in=True,
        )
        context = chromium.new_context()
        page = context.new_page()
        page.goto(link)
        page.click("#sign-in")
        page.wait_for_url(f"{provider}/**")
        page.fill("input[name=sub]", "ann")
        page.click("button[type=submit], input[type=submit]")
        page.wait_for_url(f"{served.url}/**", timeout=60_000)
        page.wait_for_function("document.getElementById('person').value !== ''")
        expected = SignIn(Provider(provider, "enroller"), invitation_key(desk.folder), desk.url, [], desk.role.admit).invitation(
            "ann"
        )
        assert page.input_value("#person") == expected
        assert page.input_value("#enroller") == desk.url
        assert "ab" * 32 in page.inner_text("#pins")
        assert "#" not in page.url
        page.goto("about:blank")
        page.goto(f"{served.url}/#invitation=evil&state=abc")  # of somebody who led the person here
        page.locator("#problem", has_text="started to sign in elsewhere").wait_for(timeout=60_000)
        assert page.input_value("#person") == ""
        context.close()


# What is not believed. The provider here signs whatever a test wants; it is served over HTTP, with discovery and keys.


class Forger:
    """A provider whose tokens say anything."""

    def __init__(self) -> None:
        self.key, self.other = (rsa.generate_private_key(65537, 2048) for _ in range(2))
        self.issuer, self.asked = "", 0
        public = {"kid": "one", "use": "sig", **json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key()))}
        self.keys = [public]
        forger = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                forger.asked += 1
                said = {"keys": forger.keys}
                if "well-known" in self.path:
                    said = {"issuer": forger.issuer} | {
                        name: f"{forger.url}/{name}" for name in ("authorization_endpoint", "token_endpoint", "jwks_uri")
                    }
                body = json.dumps(said).encode()
                self.send_response(200)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = self.issuer = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def token(self, *, key=None, alg="RS256", kid="one", without=(), **changed) -> str:
        now = time.time()
        claims = {"iss": self.issuer, "aud": "enroller", "sub": "ann", "exp": now + 600, "iat": now, "nonce": "n"} | changed
        claims = {name: value for name, value in claims.items() if name not in without}
        return jwt.encode(claims, key or self.key, algorithm=alg, headers={"kid": kid} if kid else {})


@pytest.fixture(scope="module")
def forger():
    made = Forger()
    yield made
    made.server.shutdown()
    made.server.server_close()


def test_a_token_that_is_as_it_should_be_is_believed(forger):
    provider = Provider(forger.issuer, "enroller")
    assert provider.verified(forger.token(), "n") == "ann"
    assert provider.verified(forger.token(kid=None), "n") == "ann"
    assert provider.verified(forger.token(aud=["enroller", "other"], azp="enroller"), "n") == "ann"
    before = forger.asked
    provider.verified(forger.token(), "n")
    assert forger.asked == before  # keys are kept


FORGED = {
    "another key": lambda f: f.token(key=f.other),
    "no signature": lambda f: jwt.encode({"iss": f.issuer, "aud": "enroller", "sub": "ann", "nonce": "n"}, None, algorithm="none"),
    "a public key as a secret": lambda f: f.token(key="a" * 64, alg="HS256"),
    "an unknown key": lambda f: f.token(kid="two"),
    "another kind of key": lambda f: f.token(key=ec.generate_private_key(ec.SECP256R1()), alg="ES256"),
    "another issuer": lambda f: f.token(iss="https://evil.example"),
    "another audience": lambda f: f.token(aud="other"),
    "several audiences, and no word for whom": lambda f: f.token(aud=["enroller", "other"]),
    "issued to another client": lambda f: f.token(azp="other"),
    "expired": lambda f: f.token(exp=time.time() - 120),
    "from the future": lambda f: f.token(iat=time.time() + 600),
    "not yet": lambda f: f.token(nbf=time.time() + 600),
    "another nonce": lambda f: f.token(nonce="m"),
    "no nonce": lambda f: f.token(without=["nonce"]),
    "no end": lambda f: f.token(without=["exp"]),
    "nobody": lambda f: f.token(without=["sub"]),
    "an empty name": lambda f: f.token(sub=""),
    "cut off": lambda f: f.token()[:-4],
    "changed": lambda f: f.token(sub="bob").split(".")[0] + "." + f.token().split(".")[1] + "." + f.token(sub="bob").split(".")[2],
    "no token": lambda f: "None",
}


@pytest.mark.parametrize("how", FORGED)
def test_a_token_that_is_not_is_refused(forger, how):
    with pytest.raises(RefusedError) as refusal:
        Provider(forger.issuer, "enroller").verified(FORGED[how](forger), "n")
    assert refusal.value.status == 403


def test_claims_that_an_operator_requires(forger):
    provider = Provider(forger.issuer, "enroller", required={"hd": "clinic.example", "email_verified": "true"})
    assert provider.verified(forger.token(hd="clinic.example", email_verified=True), "n") == "ann"
    for claims in (
        {},
        {"hd": "clinic.example"},
        {"hd": "other", "email_verified": True},
        {"hd": "clinic.example", "email_verified": 1},
    ):
        with pytest.raises(RefusedError, match="this account may not take part"):
            provider.verified(forger.token(**claims), "n")


def test_a_new_key_of_the_provider_is_asked_for_and_a_wrong_issuer_is_not_believed(forger):
    provider, before = Provider(forger.issuer, "enroller"), list(forger.keys)
    provider.verified(forger.token(), "n")
    rotated = {**json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(forger.other.public_key())), "kid": "two"}
    forger.keys = [*before, rotated]
    assert provider.verified(forger.token(key=forger.other, kid="two"), "n") == "ann"
    forger.keys, forger.issuer = before, "https://evil.example"
    try:
        with pytest.raises(RefusedError, match="another issuer"):
            Provider(forger.url, "enroller").settings()
    finally:
        forger.issuer = forger.url
    with pytest.raises(RefusedError, match="does not answer"):
        Provider("http://127.0.0.1:9", "enroller").settings()
    with pytest.raises(ArgumentError, match="https"):
        Provider("http://provider.example", "enroller")


def test_a_lost_key_is_not_made_anew_in_silence(tmp_path):
    key = invitation_key(tmp_path)
    assert invitation_key(tmp_path) == key
    (tmp_path / "sign-in.key").write_text("ab")
    with pytest.raises(ArgumentError, match="Restore the file"):
        invitation_key(tmp_path)
