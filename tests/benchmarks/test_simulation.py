"""People through both roles on a virtual clock: every sum exact, retries counted once, second reports refused."""

from __future__ import annotations

from benchmarks.load import simulating
from benchmarks.load.writing import _measured_with
from benchmarks.load.writing_scale import planned, verified_more


def test_every_sum_of_a_simulated_task_is_exact(tmp_path):
    simulation = simulating.Simulation(tmp_path, 2_000, 2)
    simulation.run()
    assert (simulation.sent, len(simulation.expected)) == (2_000, 2)
    assert simulation.counted() == simulation.expected
    found = simulation.found()
    assert found["sums_are_exact"]
    assert 0 < found["sent_twice"] < 100
    simulation.expected[1][0] += 1
    assert not simulation.found()["sums_are_exact"]


def test_what_a_million_people_take_is_in_proportion_to_what_was_measured():
    found = {
        "people": 1_000,
        "cpu": {"analyzer": 0.36, "forwarding": 0.0},
        "document_bytes": 1_000.0,
        "bytes_a_report": 500.0,
        "database_bytes": 1_000_000,
    }
    plan = planned(found, [{"tls": False, "after_cpu": 1.0}, {"tls": True, "after_cpu": 3.6e-3}])
    assert (plan["shuffler_hours"], plan["analyzer_hours"]) == (1.0, 0.1)
    assert abs(plan["cores"] - 1.1 / 6) < 1e-12
    assert (plan["sent"], plan["received"], plan["kept"]) == (5.0, 4.5, 1.0)
    assert abs(plan["dollars"] - (1.1 * 0.05 + 5 * 0.09 + 0.1 / 30)) < 1e-12
    verified = dict.fromkeys(("verifying_shuffler_seconds", "verifying_analyzer_seconds", "opening_seconds"), 9e-5)
    more = verified_more(found, verified | {"adding_up_seconds": 9e-5, "bytes": 7_500})
    assert abs(more["hours"] - 0.1) < 1e-12
    assert (more["received"], round(more["dollars"], 12)) == (7.0, 0.005)


def test_the_page_names_the_version_of_sections_that_are_older_than_the_others():
    sections = {"speed": "0.0.1", "kills": "0.0.1", "simulation": "0.0.2"}
    assert _measured_with({"version": "0.0.2", "versions": sections}).endswith("(speed, kills with 0.0.1)")
    assert "with" not in _measured_with({"version": "0.0.2"})
