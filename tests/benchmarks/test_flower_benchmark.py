"""The benchmark `flower`: what it judges, what its page says, and that its noise is what both mechanisms need."""

from __future__ import annotations

import argparse
import copy
import json
import math
import sys

import pytest
from dp_accounting import GaussianDpEvent, NeighboringRelation
from dp_accounting.pld import PLDAccountant

from benchmarks import protocol
from benchmarks.flower import judging, measuring, writing
from croupier.privacy import central_noise_std

RUN = {"held_out": 0.91, "test": 0.93, "cpu_seconds": 100.0, "report_bytes": 55_000, "most_answers": 1}
COST = {
    "weights": 1_000_000,
    "blocks": 1,
    "cpu_seconds": 0.1,
    "wall_seconds": 0.2,
    "megabytes": 350.0,
    "report_bytes": 2_125_128,
    "share": 0.531,
    "noise_std": 1.277,
    "watched_epsilon": 5.257,
}
RESULTS = {
    "quick": False,
    "settings": measuring.SETTINGS,
    "rates": [2.0, 3.0],
    "multiplier": 3.7,
    "plan": {"noise_std": 1.25, "reports_in_round": 344, "certified_delta": 9e-6, "watched_epsilon": 5.9, "bits": 17},
    "rows": {
        "croupier": {"tried": [0.90, 0.91], "rate": 3.0, "runs": [RUN, RUN | {"test": 0.94}, RUN | {"test": 0.92}]},
        "flower": {"tried": [0.80, 0.70], "rate": 2.0, "runs": [RUN | {"test": 0.82, "report_bytes": 0}]},
        "none": {"tried": [0.93, 0.91], "rate": 2.0, "runs": [RUN | {"test": 0.95, "report_bytes": 0}]},
    },
    "device": [COST, COST | {"blocks": 2, "share": 0.25}, COST | {"weights": 10_000_000, "cpu_seconds": 2.0}],
    "about": {"croupier": "0.2.0"},
}


def test_what_is_asked_is_judged():
    assert [verdict.holds for verdict in judging.judge(RESULTS)] == [True] * 9
    for change in ({"test": 0.92}, {"most_answers": 2}):
        worse = copy.deepcopy(RESULTS)
        worse["rows"]["croupier"]["runs"] = [RUN | change]
        assert [verdict.holds for verdict in judging.judge(worse)].count(False) == 1
    for place, change in [
        (0, {"share": 0.61}),
        (0, {"cpu_seconds": 0.5}),
        (1, {"share": 0.31}),
        (2, {"cpu_seconds": 6.1}),
        (2, {"megabytes": 401}),
    ]:
        worse = copy.deepcopy(RESULTS)
        worse["device"][place] |= change
        assert [verdict.holds for verdict in judging.judge(worse)].count(False) == 1


def test_the_page_has_every_figure():
    page = writing.page(RESULTS)
    for words in (
        "**0.9300** | 0.9200 | 0.9400 | 0.9000 | **0.9100**",
        "**0.8200** |  |  | **0.8000** | 0.7000",
        "epsilon is 5.9",
        "17 bits",
    ):
        assert words in page
    assert "93.0%" in writing.headline(RESULTS)
    assert "small sizes" not in page
    assert "| 1,000,000 | 2 | 0.100 s | 0.200 s | 350 MB | 2,125,128 B | 25.0% | 1.277 | 5.257 |" in page
    assert "| 0.9300 | 0.920 to 0.940 | 3 |" in writing.summary(RESULTS)
    alone = RESULTS | {"rows": {"croupier": RESULTS["rows"]["croupier"]}}
    assert writing.headline(alone).count("not measured yet") == 2
    assert "small sizes" in writing.page(RESULTS | {"quick": True})
    assert "small sizes" in writing.headline(RESULTS | {"quick": True})
    assert "there is no promise" in writing.page(RESULTS | {"plan": RESULTS["plan"] | {"watched_epsilon": None}})


def test_the_rate_is_chosen_on_devices_that_were_held_out(tmp_path, monkeypatch):
    asked = []

    class Runner:
        def __init__(self, python):
            assert str(python) == "python-with-flower"

        def __call__(self, job):
            asked.append((job["method"], job["rate"], job["seed"]))
            return RUN | {"held_out": job["rate"] if job["method"] == "none" else -job["rate"], "test": -job["rate"] / 100}

        def close(self):
            asked.append("closed")

    monkeypatch.setattr(measuring, "Runner", Runner)
    monkeypatch.setattr(measuring, "SIZES", measuring.SIZES[:1])
    parser = argparse.ArgumentParser()
    measuring.options(parser)
    arguments = parser.parse_args(["--data", str(tmp_path), "--python", "python-with-flower", "--seeds", "2"])
    arguments.folder, arguments.quick = tmp_path, False
    results = json.loads(json.dumps(measuring.measure(arguments)))
    rates = {method: row["rate"] for method, row in results["rows"].items()}
    assert rates == {"croupier": min(measuring.RATES), "flower": min(measuring.RATES), "none": max(measuring.RATES)}
    assert asked.count("closed") == 1
    assert len(asked) == 3 * (len(measuring.RATES) + 1) + 1
    (device,) = results["device"]
    assert (device["report_bytes"], device["share"] < 0.55, device["cpu_seconds"] > 0, device["megabytes"] > 50) == (
        55400,
        *[True] * 3,
    )
    assert writing.page(results)
    assert results["plan"]["noise_std"] < 1.3


def test_flower_s_noise_is_enough_for_one_release_and_no_more():
    """By dp_accounting's loss distributions: epsilon 1 at delta 1e-5."""
    multiplier = central_noise_std(1.0, 1e-5, 1.0)
    accountant = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE)
    accountant.compose(GaussianDpEvent(multiplier))
    assert accountant.get_epsilon(1e-5) == pytest.approx(1.0, rel=1e-3)


def test_the_other_environment_s_answers_are_read(tmp_path):
    script = tmp_path / "python"
    script.write_text(f'#!{sys.executable}\nimport sys\nfor line in sys.stdin: print(\'{{"error": "no torch"}}\', flush=True)\n')
    script.chmod(0o755)
    runner = measuring.Runner(script)
    with pytest.raises(SystemExit, match="croupier: no torch"):
        runner({"method": "croupier"})
    runner.close()


def test_it_is_a_benchmark():
    assert protocol.benchmark("flower").measure is measuring.measure
    assert math.isclose(measuring.SETTINGS["devices"] * measuring.SETTINGS["images"], 55_000)
