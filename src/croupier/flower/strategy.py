"""The Flower server's part: draw secret lots, add masked reports and blanks up, hand the mean update to any Flower strategy.

Flower's server is the shuffler here. It knows who was asked when, so against it the guarantee is the one that is printed "to
an attacker who also knows when each device answered"; against anyone who sees the models, it is the first one.
"""

from __future__ import annotations

import logging
import math
import secrets
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..privacy import ArgumentError, Guarantee, LotsPlan, plan_lots
from ..privacy._statements import guarantee_line, watched_line
from ..privacy.plan import MOST_COORDINATES
from ..service.wire.documents import WireError
from ..service.wire.masked import BadEnvelopesError, MaskedTotal
from ..validation import Found, how_to_install, real, whole
from ._round import RUN_BYTES, RoundWords
from .analyzer import Opener
from .mod import RECORD, REPORT, WORDS

if TYPE_CHECKING:
    from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
    from flwr.serverapp import Grid
    from flwr.serverapp.strategy import Result, Strategy

_log = logging.getLogger("flwr")
# The norm's coordinate: a hundredth of the squared norm, so half a percent more noise for the update.
_WEIGHT = 0.1
# How far one round moves the clip: by the factor e^(rate (share within - quantile)).
_RATE = 0.5
# The clip stays within this factor of where it began.
_REACH = 100.0
# The range of an update in blocks, in norms / sqrt(coordinates).
_BOX = 3.0
# Times that bad envelopes are replaced before a round is given up.
_TRIES = 3
ONE_OPERATOR = (
    "NO SHUFFLE GUARANTEE: this process adds masked reports up and opens their masks, so its operator can read every report. For a "
    "promise, let another operator run `croupier mask-analyzer` and pass RemoteMaskAnalyzer(...). With two operators it would be: "
)
TWO_OPERATORS = "If the mask analyzer is run by another operator, who shares no data with this server: "


class CroupierStrategy:
    """Wraps a Flower strategy: each device is asked once, in a secret round, and only the certified sum of a round is seen.

    The wrapped strategy gets, in place of replies, one reply: the model moved by the mean of clipped updates. So FedAvg, FedAvgM,
    FedAdam and the like work as they are; those that look at single updates (Krum, medians) have nothing to look at. Evaluation on
    devices is left out, since its metrics would be released without noise: pass `evaluate_fn` with public data to `start`.

    Parameters
    ----------
    strategy : flwr.serverapp.strategy.Strategy
        Any strategy that averages.
    epsilon, delta : float
        The promise of the whole run.
    users : int
        All devices, before lots are drawn: thousands.
    rounds : int
        The rounds among which each device's lot is drawn.
    clip : float
        Public bound on the l2 norm of an update; where it begins, with `clip_quantile`.
    analyzer : RemoteMaskAnalyzer or MaskAnalyzer
        Who opens sums of masks. With a `MaskAnalyzer` in this process there is no shuffle guarantee: for simulations.
    clip_quantile : float, optional
        Moves the clip, round by round, to this quantile of the norms of updates. One more coordinate of the same private sum says
        how many were within the clip: the promise covers it, for half a percent more noise.
    neighbours : {"replace-one", "zero-out"}, default "replace-one"
        As in `plan_lots`.
    honest : float, default 1.0
        As in `plan_lots`.
    turnout : float, default 1.0
        The fraction of `users` that is connected when lots are drawn, at least; blanks stand in for the others. Only the promise to
        an attacker who knows when each device answered relies on it.
    max_inflation : float, default 1.05
        As in `plan_lots`.
    blocks : int or "auto", default 1
        As in `plan_lots`: the update is rotated and cut into this many blocks, and a device sends the one that its lot says.
        Reports are that many times shorter, and noise is larger; the promise to the Flower server, which knows the block, is
        weaker.

    Attributes
    ----------
    plan : LotsPlan or None
        The plan of the run, once `start` knows how many weights there are.
    clip : float
        The clip of the next round.

    Guarantee
    ---------
    `guarantee`, which is certified and printed when the run begins: to anyone who sees the models, and beside it to an attacker who
    also knows when each device answered. The Flower server knows that.

    Examples
    --------
    >>> from croupier.flower import CroupierStrategy, MaskAnalyzer
    >>> strategy = CroupierStrategy(
    ...     None, epsilon=1, delta=1e-5, users=5000, rounds=20, clip=0.5, analyzer=MaskAnalyzer(), neighbours="zero-out"
    ... )                                                   # in place of None: FedAvg(fraction_evaluate=0.0)
    >>> strategy.plan_for(26_010).noise_std < 1.3
    True
    """

    def __init__(
        self,
        strategy: Strategy,
        *,
        epsilon: float,
        delta: float,
        users: int,
        rounds: int,
        clip: float,
        analyzer: Opener,
        clip_quantile: float | None = None,
        neighbours: str = "replace-one",
        honest: float = 1.0,
        turnout: float = 1.0,
        max_inflation: float = 1.05,
        blocks: int | str = 1,
    ) -> None:
        self.strategy, self.analyzer = strategy, analyzer
        self.clip = real("clip", clip, above=1e-12, below=1e12, remedy="State a public bound on the norm of an update.")
        self._first_clip = self.clip
        if clip_quantile is not None:
            real("clip_quantile", clip_quantile, above=0, below=1, remedy="0.5 is the median of the norms of updates.")
        self.clip_quantile = clip_quantile
        self.turnout = real(
            "turnout", turnout, above=0, at_most=1, remedy="State which fraction of devices is connected; 1 is all."
        )
        self._request: dict[str, Any] = {
            "epsilon": epsilon,
            "delta": delta,
            "users": whole("users", users, at_least=1, remedy="Count all devices."),
            "rounds": whole("rounds", rounds, at_least=1, remedy="State the number of rounds among which lots are drawn."),
            "neighbours": neighbours,
            "honest": honest,
            "max_inflation": max_inflation,
            "blocks": blocks,
            # whole reports are made in pieces, and not padded to a power of two: without a rotation
            "rotation": None if blocks == 1 else _BOX,
            "transport": "masked",
        }
        self.plan: LotsPlan | None = None
        self._plan_text, self._run = "", secrets.token_bytes(RUN_BYTES).hex()
        self._lots: dict[int, tuple[int, int]] | None = None  # of every node: a round, counted from 1, and a block
        self._words: list[RoundWords] | None = None  # of every block
        self._model: ArrayRecord | None = None
        self._asked: Message | None = None

    @property
    def guarantee(self) -> Guarantee | None:
        """What a device is promised: certified once the run has begun; None before, and where one operator holds both parts."""
        return None if self.plan is None or not self.analyzer.separate else self.plan.guarantee

    def plan_for(self, weights: int) -> LotsPlan:
        """Plan a run for a model of this many weights.

        Parameters
        ----------
        weights : int
            Numbers in the model.

        Returns
        -------
        LotsPlan
            Of vectors of norm 1: noise is in units of the clip.

        Raises
        ------
        ArgumentError
            If there are blocks, and no more weights than 9 or more than 10^6.
        """
        dim = weights + (self.clip_quantile is not None)
        if self._request["blocks"] != 1 and not _BOX**2 < dim <= MOST_COORDINATES:
            allowed = f"1 for a model of {weights:,} weights"
            raise ArgumentError("blocks", self._request["blocks"], allowed, "Leave it out: reports then contain the whole update.")
        plan = plan_lots(**self._request, dim=dim)
        return plan if self.turnout == 1 else replace(plan, turnout=self.turnout)

    def statement(self) -> str:
        """Say what is promised, with both figures, and on which condition.

        Returns
        -------
        str
            One line; where one operator holds both parts it says first that there is no such guarantee.
        """
        if self.plan is None:
            return "no plan yet: the run has not begun"
        promise, delta = self.plan.guarantee, self.plan.delta
        condition = TWO_OPERATORS if self.analyzer.separate else ONE_OPERATOR
        return (
            f"{condition}{guarantee_line(promise, self.plan.epsilon, delta)}, to anyone who sees the models; to an attacker who "
            f"also knows when each device answered, as this server does, {watched_line(promise, delta)}."
        )

    # What Flower calls.

    def start(self, grid: Grid, initial_arrays: ArrayRecord, num_rounds: int | None = None, *args: Any, **options: Any) -> Result:
        """Run all rounds, as `Strategy.start` does.

        Parameters
        ----------
        grid : Grid
            Flower's.
        initial_arrays : ArrayRecord
            The model.
        num_rounds : int, optional
            At most the plan's rounds, and all of them where it is left out. Stopping early keeps the promise.
        *args, **options
            As `Strategy.start` takes them.

        Returns
        -------
        Result
            Flower's.

        Raises
        ------
        ArgumentError
            If more rounds are asked for than lots are drawn among.
        """
        try:
            from flwr.serverapp.strategy import Strategy as FlowerStrategy  # noqa: PLC0415  (an extra)
        except ModuleNotFoundError as error:
            if error.name != "flwr":
                raise
            raise ModuleNotFoundError(f"flwr is not installed: {how_to_install('flower')}", name="flwr") from error
        most = self._request["rounds"]
        num_rounds = most if num_rounds is None else num_rounds
        if not 1 <= num_rounds <= most:
            remedy = "Each device's round is drawn among `rounds`: plan with as many as you run."
            raise ArgumentError("num_rounds", num_rounds, f"from 1 to the {most} rounds of the plan", remedy)
        if self.plan is not None:
            raise ArgumentError("strategy", Found("was already started"), "a new one for each run", "Make a new CroupierStrategy.")
        kinds = {name: str(array.dtype) for name, array in initial_arrays.items() if not str(array.dtype).startswith("float")}
        if kinds:
            remedy = "Leave counters and the like out of the model: their noisy mean is meaningless."
            raise ArgumentError("initial_arrays", kinds, "arrays of floating point numbers", remedy)
        self.plan = self.plan_for(sum(array.numpy().size for array in initial_arrays.values()))
        self._plan_text = self.plan.to_json()
        return FlowerStrategy.start(self, grid, initial_arrays, num_rounds, *args, **options)

    def summary(self) -> None:
        """Log the promise, then the wrapped strategy's settings."""
        _log.info("\t├──> Croupier: %s", self.statement())
        if self.plan is not None:
            _log.info(
                "\t├──> each of %s devices is asked once, in one of %s rounds%s of %s reports, blanks included; noise %.4g clips",
                self.plan.users,
                self.plan.rounds,
                "" if self.plan.blocks == 1 else f" and for one of {self.plan.blocks} blocks, each",
                self.plan.size,
                self.plan.noise_std,
            )
        self.strategy.summary()

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Iterable[Message]:
        """Ask the devices whose lot is this round.

        Parameters
        ----------
        server_round : int
            The round's number.
        arrays : ArrayRecord
            The model.
        config : ConfigRecord
            The app's own configuration of training.
        grid : Grid
            Flower's.

        Returns
        -------
        iterable of Message
            One for each of these devices.
        """
        from flwr.app import ConfigRecord as Config  # noqa: PLC0415
        from flwr.app import Message as FlowerMessage  # noqa: PLC0415
        from flwr.app import RecordDict  # noqa: PLC0415

        plan = self._planned()
        if self._lots is None:
            self._lots = {node: _round_and_block(secrets.randbelow(plan.lots), plan) for node in self._connected(grid)}
        # the wrapped strategy may remember the model, and says what its messages hold; whom it would ask is not looked at
        asked = next(iter(self.strategy.configure_train(server_round, arrays, config, grid)), None)
        if asked is None:
            raise ArgumentError("strategy", str(self.strategy), "one that trains", "Leave its fraction_train at 1.")
        weight = 0.0 if self.clip_quantile is None else _WEIGHT
        self._model, self._asked, self._words, messages = arrays, asked, [], []
        for block in range(plan.blocks):
            words = RoundWords(self._plan_text, self._run, server_round, self.clip, weight, block)
            self._words.append(words)
            content = RecordDict({**asked.content, RECORD: Config({WORDS: words.to_json()})})
            nodes = [node for node, lot in self._lots.items() if lot == (server_round, block)]
            if len(nodes) > plan.size:
                nodes = secrets.SystemRandom().sample(nodes, plan.size)
            kind = asked.metadata.message_type
            messages += [FlowerMessage(content=content, message_type=kind, dst_node_id=node) for node in nodes]
        return messages

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Add the reports and blanks of a round up, open their sum, and let the wrapped strategy step.

        Parameters
        ----------
        server_round : int
            The round's number.
        replies : iterable of Message
            What came back. A device that did not answer, or not as it should, is a blank.

        Returns
        -------
        arrays : ArrayRecord or None
            The next model.
        metrics : MetricRecord or None
            The clip, and with `clip_quantile` the estimated share of updates within it. Nothing of what devices measured.
        """
        from flwr.app import ArrayRecord as Arrays  # noqa: PLC0415
        from flwr.app import Message as FlowerMessage  # noqa: PLC0415
        from flwr.app import MetricRecord as Metrics  # noqa: PLC0415
        from flwr.app import RecordDict  # noqa: PLC0415

        blocks, model, asked = self._words, self._model, self._asked
        if not blocks or model is None or asked is None or blocks[0].round != server_round:
            raise ArgumentError("server_round", server_round, "the round that was configured last", "Let Flower call it.")
        self._words = None  # a round is opened once
        words, total = blocks[0], self._opened(blocks, replies)
        moved = _moved(model, words.mean_update(total))
        weight_key = getattr(self.strategy, "weighted_by_key", "num-examples")
        content = RecordDict({"arrays": Arrays(moved), "metrics": Metrics({weight_key: 1.0})})
        arrays, _ = self.strategy.aggregate_train(server_round, [FlowerMessage(content=content, reply_to=asked)])
        metrics = {"clip": words.clip, "noise": words.clip * self._planned().noise_std / self._planned().users_in_round}
        if self.clip_quantile is not None:
            metrics["share-within-clip"] = share = words.share_within(total)
            moved_clip = self.clip * math.exp(-_RATE * (share - self.clip_quantile))
            self.clip = min(self._first_clip * _REACH, max(self._first_clip / _REACH, moved_clip))
        if server_round == self._planned().rounds:
            _log.info("Croupier: %s", self.statement())
        return arrays, Metrics(metrics)

    def configure_evaluate(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Iterable[Message]:
        """Ask nobody: metrics of devices would be released without noise.

        Parameters
        ----------
        server_round : int
            Not used.
        arrays : ArrayRecord
            Not used.
        config : ConfigRecord
            Not used.
        grid : Grid
            Not used.

        Returns
        -------
        iterable of Message
            None at all.
        """
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Give nothing back, since nobody was asked.

        Parameters
        ----------
        server_round : int
            Not used.
        replies : iterable of Message
            Not used.

        Returns
        -------
        None
            Always.
        """
        return None

    def _planned(self) -> LotsPlan:
        if self.plan is None:
            raise ArgumentError(
                "strategy", Found("was not started"), "one on which start(...) was called", "Call strategy.start(grid=...)."
            )
        return self.plan

    def _connected(self, grid: Grid) -> list[int]:
        """All devices, once enough are connected."""
        users = self._planned().users
        least = math.ceil(users * self.turnout)
        while len(nodes := list(grid.get_node_ids())) < least:
            _log.info("Croupier: waiting for devices: lots are drawn once %s are connected", least)
            time.sleep(1.0)
        if len(nodes) > users:
            allowed = f"at most the {users} devices of the plan"
            raise ArgumentError("users", len(nodes), allowed, "Plan with as many users as there are devices.")
        return nodes

    def _opened(self, blocks: list[RoundWords], replies: Iterable[Message]) -> NDArray[np.float64]:
        """The estimated sum of a round's vectors. How many of the reports were blanks is said nowhere."""
        totals = [MaskedTotal(words.lots.one_round, words.context, words.block) for words in blocks]
        for reply in replies:
            if reply.has_error():
                continue
            try:
                _, block = (self._lots or {})[reply.metadata.src_node_id]
                totals[block].add(bytes(reply.content.config_records[RECORD][REPORT]))
            except (WireError, KeyError, TypeError):
                _log.warning("Croupier: a reply is not a report of this round; a blank takes its place")
        # a device sends one block of its update: as many times the sum of all of them
        return np.asarray(len(blocks) * sum(self._part(*both) for both in zip(blocks, totals, strict=True)))

    def _part(self, words: RoundWords, total: MaskedTotal) -> NDArray[np.float64]:
        """What the reports of a block say of the sum; they are filled up with blanks first."""
        key = self.analyzer.public_key
        total.fill(key)
        for _ in range(_TRIES):
            try:
                return np.asarray(total.open(self.analyzer.open(words, total.envelopes())).sum)
            except BadEnvelopesError as error:
                total.replace(error.places, key)
        raise WireError(f"the mask analyzer opened no sum in {_TRIES} tries: its key may differ from the devices' key")


def _round_and_block(lot: int, plan: LotsPlan) -> tuple[int, int]:
    """What a lot says, of as many as the plan has."""
    return lot // plan.blocks + 1, lot % plan.blocks


def _moved(model: ArrayRecord, update: NDArray[np.float64]) -> dict[str, Any]:
    """The model's arrays, each moved by its part of the update."""
    from flwr.app import Array  # noqa: PLC0415

    moved, at = {}, 0
    for name, array in model.items():
        numbers = array.numpy()
        part = update[at : at + numbers.size].reshape(numbers.shape)
        moved[name] = Array((numbers + part).astype(numbers.dtype))
        at += numbers.size
    return moved
