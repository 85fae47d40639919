"""Rounds of a deployed task whose vectors are rotated: reports are of d' coordinates, and the round's digest turns the sum back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers_exclusions import bring
from helpers_roles import answer_round, training

from croupier.protocol import VectorSum
from croupier.service.wire.documents import WireError
from croupier.service.wire.task import Task
from croupier.service.wire.transports import TRANSPORTS, SealedReport

ROTATED = {"dim": 60, "rounds": 1, "max_inflation": 1.2, "rotation": True, "rule": "plain", "interactivity": "sequential"}


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_rotated_round_is_turned_back_by_its_digest(make_world, transport):
    one = TRANSPORTS[transport]
    world = make_world(transport=transport, **ROTATED | {"max_inflation": 1.2 if one.checked else 2.0})
    plan = world.task.schedule.phases[0].plan
    assert plan.range is not None
    shuffler = world.shuffler()
    with training(world) as running:
        document = running.next_round()
        reports = answer_round(world, shuffler, document, range(12))
        bring(shuffler, running.population)
        running.result()
        (answered,) = running.population.answered()
    assert {(len(report), SealedReport.from_bytes(report).dim) for report in reports} == {(one.report_length(plan), 64)}
    bits = [world.bits(user, document) for user in range(12)]
    protocol = VectorSum(plan, seed=document.digest)
    expected = protocol.analyze(protocol.shuffle(bits))
    assert answered.users == 12
    assert answered.length == pytest.approx(float(np.linalg.norm(expected.mean)), rel=1e-12)
    # the noise is that of the plan: all users' vectors are short
    gradients = world.read(document).vector(world.task, world.X, world.y)
    assert np.abs(expected.mean - gradients).max() < 7 * plan.noise_std / 12
    other = VectorSum(plan, seed=bytes(32)).analyze(protocol.shuffle(bits))
    assert np.abs(other.sum - expected.sum).max() > 0.1 * plan.noise_std


def test_a_task_whose_plans_have_blocks_or_unfair_noise_is_refused(make_world):
    world = make_world(**ROTATED)
    assert Task.read(world.task.document(world.analyzer_key), world.analyzer_key.public_key()).id == world.task.id
    (phase,) = world.task.schedule.phases
    for change in ({"blocks": 2}, {"noise_probability": 0.49}, {"range": phase.plan.range / 1.01}):
        phases = (replace(phase, plan=replace(phase.plan, **change)),)
        task = replace(world.task, schedule=replace(world.task.schedule, phases=phases))
        with pytest.raises(WireError):
            Task.read(task.document(world.analyzer_key), world.analyzer_key.public_key())
