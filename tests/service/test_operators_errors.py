"""What goes wrong is said in a sentence, and nothing is sent: another enroller, long reports, a round asked again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from conftest import PROBLEM, Roles
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from helpers_roles import DIM, World, round_of
from sqlalchemy import func, select
from typer.testing import CliRunner

import croupier as cr
from croupier.cli.app import app
from croupier.service import enroller as enroller_tables
from croupier.service.client.client import MAX_REPORT_BYTES, Client, ClientPolicy
from croupier.service.enroller import EnrollerRole, enroller_app, new_invitation
from croupier.service.net.database import Database
from croupier.service.net.server import Served
from croupier.service.shuffler import rounds as shuffler_tables
from croupier.service.shuffler.app import shuffler_app
from croupier.service.wire.documents import WireError
from croupier.service.wire.enrolment import EnrollerKeys, new_signer
from croupier.service.wire.queries import TrainingQuery
from croupier.service.wire.task import RefusedTaskError, Task, TaskRound
from croupier.service.wire.transports import TRANSPORTS
from croupier.validation import ArgumentError

pytestmark = pytest.mark.process


def test_an_invitation_goes_to_the_enroller_that_its_owner_names_and_to_no_other(tmp_path):
    """The attack: an analyzer names a server of its own as the task's enroller, which then has everybody's invitation."""
    signer, invitation = new_signer(), new_invitation()
    database = Database(f"sqlite:///{tmp_path / 'enroller.db'}", enroller_tables.ENROLLER)
    role = EnrollerRole(database, [signer])
    role.admit([invitation])

    def asked() -> int:
        with database.look() as connection:
            return connection.execute(select(func.count()).select_from(enroller_tables.issued)).scalar_one()

    with Served(enroller_app(role)) as evil:
        world = World(tmp_path, enroller=EnrollerKeys(evil.url, (signer.public_key().public_numbers().n,)))
        shuffler = world.shuffler()
        key = world.analyzer_key.public_key().public_bytes_raw().hex()
        with Served(shuffler_app(shuffler)) as served:

            def client(**pinned) -> Client:
                enough = {"max_epsilon": 8.01, "max_delta": 1e-2, "at_once": True, "invitation": invitation}
                return Client(served.url, world.tokens[0], key, folder=tmp_path / "client", **enough, **pinned)

            with pytest.raises(RefusedTaskError, match=rf"names the enroller {evil.url}; https://real.example:8803 is demanded"):
                client(enroller="https://real.example:8803").collect()
            assert asked() == 0
            with pytest.raises(ArgumentError, match="an https address, or http on this machine"):
                client(enroller="http://real.example")
            client(enroller=f"{evil.url}/").collect()  # the right one, whatever the slash at its end
            assert asked() == 1
        world.close()
    database.close()


def test_a_task_without_an_enroller_is_refused_where_one_is_demanded():
    demands = ClientPolicy.of(20.01, 1e-2, 10, enroller="https://real.example")
    with pytest.raises(RefusedTaskError, match="has no enroller"):
        demands.check(Roles.task())


@pytest.mark.parametrize("transport", ["verified-sum", "messages"])
def test_a_task_of_long_reports_is_refused_with_the_argument_that_allows_it(transport):
    """The attack: a task of 2^17 coordinates, whose report took a client 21 seconds to prove."""
    dim = 1 << (17 if transport == "verified-sum" else 12)
    plan = cr.plan_sum(epsilon=20.0, delta=1e-2, users=8, dim=dim)
    schedule = Roles.task().schedule
    schedule = replace(schedule, phases=tuple(replace(phase, plan=plan) for phase in schedule.phases))
    query = TrainingQuery(replace(PROBLEM, domain=cr.domains.Ball(dim=dim, radius=5.0)))
    task = Task(transport, 8, query, schedule, Roles.shuffler.public_key())
    length = TRANSPORTS[transport].report_length(plan)
    assert length > MAX_REPORT_BYTES
    with pytest.raises(RefusedTaskError) as refusal:
        ClientPolicy.of(100.0, 1e-2, 10).check(task)
    assert f"reports of {length:,} bytes by {transport}" in str(refusal.value)
    assert "(max_report_bytes)" in str(refusal.value)
    ClientPolicy.of(100.0, 0.5, 10, max_report_bytes=length).check(task)
    with pytest.raises(RefusedTaskError, match="max_report_bytes"):
        ClientPolicy.of(100.0, 0.5, 10, max_report_bytes=length - 1).check(task)
    with pytest.raises(ArgumentError, match="max_report_bytes"):
        ClientPolicy.of(100.0, 0.5, 10, max_report_bytes=0)


def test_a_client_sends_nothing_where_a_report_would_be_too_long(tmp_path):
    world = World(tmp_path, transport="verified-sum")
    key = world.analyzer_key.public_key().public_bytes_raw().hex()
    with Served(shuffler_app(world.shuffler())) as served:
        demands = {"max_epsilon": 8.01, "max_delta": 1e-2, "max_report_bytes": 500, "at_once": True}
        client = Client(served.url, world.tokens[0], key, folder=tmp_path / "client", **demands)
        with pytest.raises(RefusedTaskError, match="more than the 500 that are allowed here"):
            client.take_part(world.X[0], world.y[:1])
    assert world.rows("shuffler", "SELECT count(*) FROM reports") == [(0,)]
    world.close()


def test_a_second_round_of_the_same_number_is_refused_in_a_sentence(tmp_path):
    """An analyzer whose database was brought back from a backup asks a round again, under another name."""
    world = World(tmp_path)
    shuffler = world.shuffler()
    first = round_of(world, 1)
    shuffler.open(first)
    again = TaskRound(world.task.id, "f" * 32, 1, 1, np.zeros(DIM), X25519PrivateKey.generate().public_key())
    with pytest.raises(WireError, match="a second round 1: one was opened before, which the analyzer has forgotten"):
        shuffler.open(again.document(world.analyzer_key))
    assert shuffler.current().digest == first.digest
    shuffler.open(first)
    world.close()


@pytest.mark.parametrize("command", [["excluded"], ["revoke", "--client", "somebody"]])
def test_a_folder_without_a_shuffler_has_no_list_of_clients(tmp_path, command):
    missing = tmp_path / "nowhere"
    result = CliRunner().invoke(app, ["serve", *command, "--dir", str(missing)])
    assert isinstance(result.exception, ArgumentError)
    assert "a shuffler's folder, which contains shuffler.db" in str(result.exception)
    assert not missing.exists()
    Database(f"sqlite:///{tmp_path / 'shuffler'}.db", shuffler_tables.SHUFFLER).close()
    assert CliRunner().invoke(app, ["serve", "excluded", "--dir", str(tmp_path)]).output == ""
