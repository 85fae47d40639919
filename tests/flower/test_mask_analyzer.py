"""What a round says, the second party, and the command that runs it: all that needs no Flower."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from croupier import ArgumentError, BatchTooSmallError
from croupier.cli.app import app
from croupier.flower import MaskAnalyzer, RemoteMaskAnalyzer
from croupier.flower._round import RoundWords
from croupier.flower.analyzer import MaskServer
from croupier.masked import BadEnvelopesError, MaskedTotal, mask_key, masked_report, public_mask_key
from croupier.privacy import LotsPlan, plan_lots

RUN = bytes(range(32)).hex()


def plan(**changes) -> LotsPlan:
    return plan_lots(**{"epsilon": 8.0, "delta": 1e-4, "users": 120, "rounds": 3, "dim": 5, "neighbours": "zero-out"} | changes)


def words(**changes) -> RoundWords:
    return RoundWords(**{"plan": plan().to_json(), "run": RUN, "round": 2, "clip": 2.0, "weight": 0.1} | changes)


def block_words(block: int) -> RoundWords:
    return words(plan=plan(dim=65, rotation=3.0, blocks=2, transport="masked").to_json(), block=block)


def filled(about: RoundWords, key: bytes, reports: int = 0) -> MaskedTotal:
    total = MaskedTotal(about.lots.one_round, about.context, about.block)
    vector, plan_ = about.vector(np.ones(about.weights)), about.lots.one_round
    for _ in range(reports):
        total.add(masked_report(vector, plan_, context=about.context, key=key, block=about.block))
    total.fill(key)
    return total


@pytest.mark.parametrize("length", [0.0, 0.5, 1.99, 2.01, 1e20])
def test_an_update_within_the_clip_says_so_and_keeps_its_direction(length):
    update = np.array([3, -4, 0, 0], np.float32) / np.float32(5) * np.float32(length)
    vector = words().vector(update)
    assert math.sqrt(float(vector.astype(np.float64) @ vector)) <= 1 + 1e-6
    assert vector[-1] == pytest.approx(0.1 if length <= 2 else -0.1)
    expected = update.astype(np.float64) * min(1, 2 / max(length, 1e-9)) / 2 * math.sqrt(0.99)
    np.testing.assert_allclose(vector[:-1], expected, rtol=1e-5)


@pytest.mark.parametrize("update", [None, np.array([1, math.nan, 0, 0]), np.array([1, math.inf, 0, 0], np.float32)])
def test_what_is_no_update_is_a_blank(update):
    assert not words().vector(update).any()


def test_the_mean_update_and_the_share_within_are_what_went_in():
    about = words()
    updates = [np.array([0.5, 0, 0, 0]), np.array([0, 10.0, 0, 0]), np.array([0, 0, 1.0, 0])] * 14
    total = np.sum([about.vector(update).astype(np.float64) for update in updates], axis=0)
    per_round = about.lots.users_in_round  # 40, where 42 answered
    np.testing.assert_allclose(about.mean_update(total), np.array([7, 28, 14, 0]) / per_round, rtol=1e-5)
    assert about.share_within(total) == pytest.approx((1 + 14 / per_round) / 2, rel=1e-5)


def test_words_survive_json_and_every_word_is_bound():
    about = words()
    assert RoundWords.from_json(about.to_json()) == about
    others = [
        words(round=1),
        words(clip=1.0),
        words(weight=0.0),
        words(run=bytes(32).hex()),
        words(plan=plan(users=121).to_json()),
    ]
    assert len({one.context for one in [about, *others]}) == 6


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"round": 4}, "round"),
        ({"round": 0}, "round"),
        ({"clip": 0.0}, "clip"),
        ({"weight": 0.9}, "weight"),
        ({"run": "00"}, "run"),
        ({"block": 1}, "block"),
        ({"block": -1}, "block"),
        ({"plan": plan(norm=2.0).to_json()}, "norm 1"),
        ({"plan": plan(opening=[(1, 3, 1.0)]).to_json()}, "other questions first"),
        ({"plan": replace(plan(), epsilon=0.5).to_json()}, "claim follows"),
    ],
)
def test_words_that_do_not_fit_are_refused(change, reason):
    with pytest.raises(ArgumentError, match=reason):
        words(**change)


@pytest.mark.parametrize("text", ["[]", "{}", '{"plan": 3}'])
def test_only_the_words_of_a_round_are_read(text):
    with pytest.raises(ArgumentError, match="other fields"):
        RoundWords.from_json(text)
    wrong = json.loads(words().to_json()) | {"clip": 2}
    with pytest.raises(ArgumentError, match="other fields"):
        RoundWords.from_json(json.dumps(wrong))


# The second party.


@pytest.fixture
def remote(tmp_path) -> Iterator[RemoteMaskAnalyzer]:
    analyzer = MaskAnalyzer(tmp_path / "masks")
    with MaskServer(analyzer, ("127.0.0.1", 0), token="a long word") as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield RemoteMaskAnalyzer(f"http://127.0.0.1:{server.server_address[1]}", analyzer.public_key, token="a long word")
        server.shutdown()
        thread.join()


def test_masks_are_opened_over_the_network(remote):
    """35 updates of (1, 1, 1, 1): within eight standard deviations, false-alarm rate below 1e-13."""
    about = words()
    total = filled(about, remote.public_key, reports=35)
    estimate = total.open(remote.open(about, total.envelopes()))
    noise = about.clip * about.lots.noise_std / about.lots.users_in_round
    assert np.abs(about.mean_update(estimate.sum) - 35 / about.lots.users_in_round).max() < 8 * noise


def test_a_longer_model_comes_back_as_the_mean_of_its_updates(remote):
    """300 weights, however the plan encodes them: 8.5 standard deviations, false-alarm rate below 1e-14 for all of them."""
    about = words(plan=plan(dim=301).to_json())
    update = np.random.default_rng(4).standard_normal(300).astype(np.float32)
    update *= np.float32(1.5 / np.linalg.norm(update))
    total = MaskedTotal(about.lots.one_round, about.context)
    for _ in range(35):
        total.add(masked_report(about.vector(update), about.lots.one_round, context=about.context, key=remote.public_key))
    total.fill(remote.public_key)
    estimate = total.open(remote.open(about, total.envelopes()))
    noise = about.clip * about.lots.noise_std / about.lots.users_in_round
    assert np.abs(about.mean_update(estimate.sum) - update * 35 / about.lots.users_in_round).max() < 8.5 * noise
    assert abs(about.share_within(estimate.sum) - (1 + 35 / about.lots.users_in_round) / 2) < 0.5


def test_a_round_is_opened_once_and_a_retry_has_the_same_answer(remote):
    about = words()
    total = filled(about, remote.public_key)
    envelopes = total.envelopes()
    assert remote.open(about, envelopes).tolist() == remote.open(about, envelopes).tolist()
    with pytest.raises(PermissionError, match="opened for other reports"):
        remote.open(about, filled(about, remote.public_key).envelopes())


def test_blocks_are_opened_once_each_and_add_up_to_the_mean(remote):
    """15 updates in each of two blocks: within eight standard deviations, false-alarm rate below 1e-12."""
    parts = []
    for about in map(block_words, (0, 1)):
        total = filled(about, remote.public_key, reports=15)
        parts.append(total.open(remote.open(about, total.envelopes())).sum)
    assert block_words(0).context == block_words(1).context  # one rotation
    noise = about.clip * about.lots.noise_std / about.lots.users_in_round
    mean = about.mean_update(2 * np.sum(parts, axis=0))  # of updates of length 8, clipped at 2
    assert np.abs(mean - 0.25 * 30 / about.lots.users_in_round).max() < 8 * noise
    for about, other in zip(map(block_words, (0, 1)), map(block_words, (1, 0)), strict=True):
        with pytest.raises(PermissionError, match="opened for other reports"):
            remote.open(about, filled(about, remote.public_key).envelopes())
        with pytest.raises(BadEnvelopesError):
            remote.open(about, filled(other, remote.public_key).envelopes())


def test_a_server_that_leaves_out_blanks_is_refused(remote):
    about = words()
    with pytest.raises(PermissionError, match=f"reports where the plan has {about.lots.size}"):
        remote.open(about, filled(about, remote.public_key).envelopes()[:-1])


def test_a_server_that_names_a_smaller_plan_is_refused(remote):
    """Reports are bound to the plan that devices have proved: under another one their envelopes do not open."""
    about, smaller = words(), words(plan=plan(users=60).to_json())
    envelopes = filled(about, remote.public_key, reports=10).envelopes()[: smaller.lots.size]
    with pytest.raises(BadEnvelopesError):
        remote.open(smaller, envelopes)
    liar = json.loads(plan().to_json())
    liar["one_round"]["users"] = 3
    broken = about.to_json().replace(json.dumps(about.plan), json.dumps(json.dumps(liar)))
    with pytest.raises(ArgumentError):
        RoundWords.from_json(broken)


def test_bad_envelopes_are_named_and_the_round_stays_open(remote):
    about = words()
    total = MaskedTotal(about.lots.one_round, about.context)
    stranger = public_mask_key(mask_key())
    total.add(masked_report(np.zeros(5), about.lots.one_round, context=about.context, key=stranger))
    total.fill(remote.public_key)
    with pytest.raises(BadEnvelopesError) as caught:
        remote.open(about, total.envelopes())
    assert len(caught.value.places) == 1
    total.replace(caught.value.places, remote.public_key)
    assert total.open(remote.open(about, total.envelopes())).users == about.lots.size


def test_a_token_is_needed(remote):
    remote._token = "another"
    with pytest.raises(PermissionError, match="token"):
        remote.open(words(), [])


def test_an_analyzer_remembers_over_restarts(tmp_path):
    about, first = words(), MaskAnalyzer(tmp_path)
    first.open(about, filled(about, first.public_key).envelopes())
    again = MaskAnalyzer(tmp_path)
    assert again.public_key == first.public_key
    with pytest.raises(PermissionError):
        again.open(about, filled(about, first.public_key).envelopes())


def test_too_few_are_refused_in_this_process_too():
    analyzer, about = MaskAnalyzer(), words()
    with pytest.raises(BatchTooSmallError):
        analyzer.open(about, [])


def test_the_command_prints_the_key_and_refuses_to_be_open_to_all(tmp_path):
    runner = CliRunner()
    shown = runner.invoke(app, ["mask-analyzer", "--dir", str(tmp_path), "--print-key"])
    assert shown.output.strip() == MaskAnalyzer(tmp_path).public_key.hex()
    open_to_all = runner.invoke(app, ["mask-analyzer", "--dir", str(tmp_path), "--host", "0.0.0.0"])
    assert isinstance(open_to_all.exception, ArgumentError)
    without_token = runner.invoke(app, ["mask-analyzer", "--dir", str(tmp_path), "--host", "0.0.0.0", "--behind-proxy"])
    assert "--token-file" in str(without_token.exception)


@pytest.mark.parametrize(("url", "key"), [("masks.example", bytes(32)), ("https://masks.example", b"short")])
def test_a_remote_analyzer_needs_an_address_and_a_key(url, key):
    with pytest.raises(ArgumentError):
        RemoteMaskAnalyzer(url, key)
