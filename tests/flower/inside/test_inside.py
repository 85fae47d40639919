"""The mod and the strategy inside Flower. They run in an environment of Flower's own: see ../test_flower.py."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAdam, FedAvg, FedAvgM
from helpers_grid import HereGrid, answer, model, question

from croupier.flower import CroupierMod, CroupierStrategy, MaskAnalyzer
from croupier.flower._round import RoundWords
from croupier.masked import MaskedTotal, mask_key, open_masks, public_mask_key
from croupier.privacy import ArgumentError, plan_lots

LIMITS = {"max_epsilon": 8.0, "max_delta": 1e-4, "max_epsilon_if_watched": math.inf}
REQUEST = {"epsilon": 8.0, "delta": 1e-4, "users": 120, "rounds": 3, "neighbours": "zero-out"}
PLAN = plan_lots(**REQUEST, dim=4)
KEY = mask_key()
WORDS = RoundWords(PLAN.to_json(), bytes(range(32)).hex(), 2, 1.0).to_json()


def app_with(*mods: CroupierMod, move: float = 0.1) -> ClientApp:
    app = ClientApp(mods=list(mods))

    @app.train()
    def train(message, context):
        before = message.content["arrays"]["w"].numpy()
        return answer(message, ArrayRecord({"w": Array(before + np.float32(move))}), loss=0.5)

    @app.evaluate()
    def evaluate(message, context):
        raise AssertionError("an app must not be asked to evaluate")

    return app


def mod(**changes) -> CroupierMod:
    return CroupierMod(public_mask_key(KEY), **LIMITS | changes)


def ask(app: ClientApp, words: str = WORDS, arrays: ArrayRecord | None = None, kind: str = "train", grid: HereGrid | None = None):
    grid = grid or HereGrid(app, 1)
    (reply,) = grid.send_and_receive([question(words, arrays or model(1, 2, 3, 4), kind)])
    return reply


def opened(report: bytes, words: str = WORDS) -> np.ndarray:
    """The sum of a round with this report and blanks alone."""
    round_ = RoundWords.from_json(words)
    total = MaskedTotal(round_.lots.one_round, round_.context)
    total.add(report)
    total.fill(public_mask_key(KEY))
    return total.open(open_masks(total.envelopes(), round_.lots.one_round, context=round_.context, key=KEY)).sum


def test_a_report_is_all_that_leaves():
    reply = ask(app_with(mod()))
    assert not reply.has_error()
    assert list(reply.content) == ["croupier"]
    assert list(reply.content["croupier"]) == ["report"]
    total = opened(reply.content["croupier"]["report"])
    assert np.abs(total - 0.1).max() < 8 * PLAN.noise_std  # 4 coordinates: false-alarm rate below 1e-14


def test_a_device_that_is_asked_twice_refuses():
    app = app_with(mod())
    grid = HereGrid(app, 1)
    assert not ask(app, grid=grid).has_error()
    other = RoundWords(PLAN.to_json(), bytes(32).hex(), 1, 1.0).to_json()
    for words in (WORDS, other):
        reply = ask(app, words, grid=grid)
        assert reply.has_error()
        assert "already answered in this run" in reply.error.reason


def test_a_budget_remembers_beyond_a_run(tmp_path):
    app = app_with(mod(budget=tmp_path / "budget-{node}.json"))
    assert not ask(app).has_error()
    assert (tmp_path / "budget-1.json").exists()
    again = ask(app)  # another run of Flower, with a fresh state
    assert "already answered this run" in again.error.reason


def tampered(**changes) -> str:
    plan = json.loads(PLAN.to_json())
    plan["one_round"] |= changes
    return json.dumps(json.loads(WORDS) | {"plan": json.dumps(plan)})


def test_a_plan_that_promises_less_than_it_says_is_refused():
    smaller = dataclasses.replace(PLAN, epsilon=0.5)
    for words in (
        json.dumps(json.loads(WORDS) | {"plan": smaller.to_json()}),  # says 0.5, has the noise of 8
        tampered(noise_bits=1),
        tampered(users=3),
        tampered(blocks=2),
    ):
        reply = ask(app_with(mod()), words)
        assert reply.has_error(), words
        assert "Nothing was sent" in reply.error.reason


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"max_epsilon": 7.9}, "max_epsilon"),
        ({"max_delta": 1e-5}, "max_epsilon"),
        ({"max_epsilon_if_watched": 8.0}, "max_epsilon_if_watched"),
        ({"neighbours": "replace-one"}, "demands replace-one"),
    ],
)
def test_the_owner_s_limits_hold(limits, reason):
    reply = ask(app_with(mod(**limits)))
    assert reply.has_error()
    assert reason in reply.error.reason


def test_no_plan_another_model_or_a_question_without_noise_is_refused():
    app = app_with(mod())
    message = question(WORDS, model(1, 2, 3, 4))
    del message.content["croupier"]
    (bare,) = HereGrid(app, 1).send_and_receive([message])
    assert "without a plan" in bare.error.reason
    assert "the plan is for 4 weights" in ask(app, arrays=model(1, 2)).error.reason
    assert "without noise" in ask(app, kind="evaluate").error.reason
    assert ask(app, WORDS.replace('"round":2', '"round":4')).has_error()


def failing(message, context):
    raise RuntimeError("this device's owner is 93 years old")


@pytest.mark.parametrize("app", ["fails", "NaN", "another model"])
def test_what_goes_wrong_on_a_device_does_not_show(app):
    wrong = {"NaN": model(1, 2, math.nan, 4), "another model": model(1, 2, 3)}
    client = ClientApp(mods=[mod()])
    client.train()(failing if app == "fails" else lambda message, context: answer(message, wrong[app]))
    reply = ask(client)
    assert not reply.has_error()
    good = ask(app_with(mod())).content["croupier"]["report"]
    assert len(reply.content["croupier"]["report"]) == len(good)
    assert np.abs(opened(reply.content["croupier"]["report"])).max() < 8 * PLAN.noise_std


# The strategy.


def strategy_of(inner, analyzer, **changes) -> CroupierStrategy:
    return CroupierStrategy(inner, **REQUEST | {"clip": 1.0, "analyzer": analyzer} | changes)


def run(inner=None, move: float = 0.1, rounds: int = 3, meet=None, start=(0.0, 0.0, 0.0, 0.0), **changes):
    analyzer = MaskAnalyzer()
    strategy = strategy_of(inner or FedAvg(), analyzer, **changes)
    limits = LIMITS | ({"neighbours": changes["neighbours"]} if "neighbours" in changes else {})
    grid = HereGrid(app_with(CroupierMod(analyzer.public_key, **limits), move=move), 120, meet)
    result = strategy.start(grid=grid, initial_arrays=model(*start), num_rounds=rounds)
    return strategy, grid, result


def test_three_rounds_move_the_model_by_the_mean_update():
    """The noise of three rounds, and lots: within eight standard deviations of both; false-alarm rate below 1e-13."""
    strategy, grid, result = run()
    assert len(grid.answers) == 120  # each device once
    noise = strategy.plan.noise_std / strategy.plan.users_in_round
    assert np.abs(result.arrays["w"].numpy() - 0.3).max() < 8 * math.sqrt(3) * (noise + 0.1 * math.sqrt(40) / 40)
    assert list(result.evaluate_metrics_clientapp) == []
    assert set(result.train_metrics_clientapp[1]) == {"clip", "noise"}


@pytest.mark.parametrize("inner", [FedAvgM(server_learning_rate=1.0, server_momentum=0.5), FedAdam(eta=0.1, tau=0.01)])
def test_other_strategies_step_with_the_same_update(inner):
    _, _, result = run(inner)
    assert (result.arrays["w"].numpy() > 0.05).all()  # 0.17 or more without noise, whose deviation is below 0.01


def test_with_blocks_each_device_sends_one_and_the_model_moves_by_the_mean():
    """The noise of three rounds, and blocks: within eight standard deviations of both; false-alarm rate below 1e-13."""
    whole, whole_grid, _ = run(start=[0.0] * 64)
    strategy, grid, result = run(start=[0.0] * 64, blocks=2)
    reports = [one.content["croupier"]["report"] for one in grid.answers]
    assert len(reports) == 120  # each device once
    assert set(strategy._lots.values()) <= {(number, block) for number in (1, 2, 3) for block in (0, 1)}
    assert strategy.plan.one_round.coordinates == 32
    assert len(reports[0]) < len(whole_grid.answers[0].content["croupier"]["report"]) - 40  # both have a header and an envelope
    # of 64 coordinates that move alike: noise, and which halves of the update the 40 devices of a round sent, some 3 % of it
    noise = strategy.plan.noise_std / strategy.plan.users_in_round / 8
    assert abs(result.arrays["w"].numpy().mean() - 0.3) < 8 * math.sqrt(3) * (noise + 0.03 * 0.1)
    # what it costs: noise, and to the server, which knows the block, fewer others to hide among
    assert strategy.plan.noise_std > whole.plan.noise_std
    assert strategy.plan.certified_delta <= 1e-4
    assert strategy.plan.guarantee.allocations[0].rounds == 6
    assert strategy.plan.guarantee.if_watched.epsilon(1e-4) > whole.plan.guarantee.if_watched.epsilon(1e-4)


@pytest.mark.parametrize("weights", [9, 1_000_001])
def test_blocks_need_a_model_that_is_neither_tiny_nor_huge(weights):
    with pytest.raises(ArgumentError, match=f"1 for a model of {weights:,} weights"):
        strategy_of(FedAvg(), MaskAnalyzer(), blocks=2).plan_for(weights)


def test_nothing_says_how_many_of_a_round_were_blanks(caplog):
    caplog.set_level("INFO", logger="flwr")
    gone = []

    def leave(question_, reply):
        gone.append(reply)
        return None if len(gone) % 2 else reply

    strategy, grid, _ = run(meet=leave)
    said = " ".join(record.getMessage() for record in caplog.records)
    assert len(grid.answers) == 60
    assert "Received 1 results" in said  # the mean update, as the wrapped strategy sees it
    per_round = [sum(lot == (number, 0) for lot in strategy._lots.values()) for number in (1, 2, 3)]
    for number in [*per_round, *(strategy.plan.size - one for one in per_round)]:
        if number not in (strategy.plan.size, 120, 3, 1, 2):
            assert f" {number} " not in said


def test_one_operator_for_both_has_no_guarantee(caplog):
    caplog.set_level("INFO", logger="flwr")
    strategy, _, _ = run()
    assert strategy.guarantee is None
    assert "NO SHUFFLE GUARANTEE" in strategy.statement()
    assert "NO SHUFFLE GUARANTEE" in " ".join(record.getMessage() for record in caplog.records)
    strategy.analyzer.separate = True
    assert strategy.guarantee == strategy.plan.guarantee
    text = strategy.statement()
    assert "(8, " in text
    assert "when each device answered, as this server does, epsilon" in text


def test_a_server_that_leaves_out_blanks_gets_no_sum(monkeypatch):
    monkeypatch.setattr(MaskedTotal, "fill", lambda self, key, random=None: None)
    with pytest.raises(ValueError, match="reports where the plan has"):
        run()


def test_a_bad_report_is_a_blank():
    def spoil(question_, reply):
        if question_.metadata.dst_node_id == 1:
            reply.content["croupier"]["report"] = reply.content["croupier"]["report"][:-1]
        if question_.metadata.dst_node_id == 2:  # sealed for somebody else
            data = bytearray(reply.content["croupier"]["report"])
            data[60] ^= 1
            reply.content["croupier"]["report"] = bytes(data)
        return reply

    strategy, _, result = run(meet=spoil)
    noise = strategy.plan.noise_std / strategy.plan.users_in_round
    assert np.abs(result.arrays["w"].numpy() - 0.3).max() < 8 * math.sqrt(3) * (noise + 0.1 * math.sqrt(42) / 40)


def test_the_clip_goes_to_the_quantile_of_norms():
    """All updates have norm 0.2, and the clip begins at 1: it falls in every round, and not below where half of norms are."""
    strategy, _, result = run(clip_quantile=0.5, epsilon=8.0)
    clips = [result.train_metrics_clientapp[number]["clip"] for number in (1, 2, 3)]
    assert clips[0] == 1.0 > clips[1] > clips[2] > strategy.clip
    assert strategy.plan.one_round.dim == 5
    shares = [result.train_metrics_clientapp[number]["share-within-clip"] for number in (1, 2, 3)]
    assert min(shares) > 0.6
    assert np.abs(result.arrays["w"].numpy() - 0.3).max() < 0.3


def test_a_clip_that_is_too_small_rises():
    strategy, _, result = run(clip_quantile=0.5, clip=0.05)
    assert strategy.clip > 0.07
    assert result.train_metrics_clientapp[1]["share-within-clip"] < 0.4


@pytest.mark.parametrize(
    ("changes", "reason"),
    [({"rounds": 4}, "from 1 to the 3 rounds"), ({"users": 119}, "at most the 119 devices")],
)
def test_a_run_that_does_not_fit_the_plan_is_refused(changes, reason):
    with pytest.raises(ArgumentError, match=reason):
        run(**changes)


def test_counters_in_the_model_are_refused():
    strategy = strategy_of(FedAvg(), MaskAnalyzer())
    arrays = ArrayRecord({"w": Array(np.zeros(3, np.float32)), "batches": Array(np.array([3]))})
    with pytest.raises(ArgumentError, match="floating point"):
        strategy.start(grid=None, initial_arrays=arrays)


def test_lots_are_drawn_once_and_a_strategy_runs_once():
    strategy, grid, _ = run()
    assert set(strategy._lots.values()) <= {(1, 0), (2, 0), (3, 0)}
    with pytest.raises(ArgumentError, match="a new one for each run"):
        strategy.start(grid=grid, initial_arrays=model(0, 0, 0, 0))


def test_the_mod_survives_flower_s_pickling():
    import pickle  # noqa: PLC0415

    assert isinstance(Message, type)
    assert pickle.loads(pickle.dumps(mod())).max_epsilon == 8.0
