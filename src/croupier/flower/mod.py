"""The device's part: a Flower mod after which nothing leaves but one masked, noisy report of a clipped update."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..privacy import ArgumentError
from ..privacy._statements import exact, round_up, watched_line
from ..service.client.budget import DeviceBudget
from ..service.wire.masked import masked_report
from ..service.wire.task import RefusedTaskError
from ..validation import one_of, real
from ._round import RoundWords

if TYPE_CHECKING:
    from flwr.app import ArrayRecord, Context, Message

# The record of a round's words in a message, of a report in a reply, and of the answer in a node's state.
RECORD, WORDS, REPORT = "croupier", "words", "report"


class CroupierMod:
    """A Flower mod for `ClientApp(mods=[...])`: what leaves the device is one noisy, masked report, and nothing else.

    Before anything is computed it certifies the plan again on the device, holds it against the owner's limits, and refuses to
    answer a second time. Then the app trains as ever. The mod clips the difference between the model that came and the one that the
    app returns, encodes it, adds noise, masks it and seals the mask's seed. Metrics, losses and numbers of examples are dropped. An
    app that fails, or an update that is not finite, becomes a blank: a report of noise alone, which looks like any other.

    Parameters
    ----------
    analyzer_key : bytes
        The public key of the mask analyzer, as its operator told it.
    max_epsilon, max_delta : float
        The most that a run may reveal about this device's owner.
    max_epsilon_if_watched : float, default 10.0
        The same to an attacker who also knows when each device answered: the Flower server does.
    neighbours : {"zero-out", "replace-one"}, default "zero-out"
        "replace-one" refuses plans that promise zero-out alone.
    budget : path-like, optional
        A file that counts what this device has answered over all runs, as `croupier.client.DeviceBudget` does; "{node}" in it is
        the node's id. Without it the device remembers its answer for as long as Flower keeps the node's state: one run.

    Guarantee
    ---------
    The report by itself shows the Flower server nothing. What sums of reports say about the owner is what the plan's guarantee
    says, if the mask analyzer is not run by the operator of the Flower server.

    Examples
    --------
    >>> from croupier.flower import CroupierMod
    >>> mod = CroupierMod(bytes(32), max_epsilon=1.0, max_delta=1e-5)     # app = ClientApp(mods=[mod])
    >>> mod.max_epsilon
    1.0
    """

    def __init__(
        self,
        analyzer_key: bytes,
        *,
        max_epsilon: float,
        max_delta: float,
        max_epsilon_if_watched: float = 10.0,
        neighbours: str = "zero-out",
        budget: str | Path | None = None,
    ) -> None:
        if not isinstance(analyzer_key, bytes) or len(analyzer_key) != 32:
            remedy = "Pass bytes.fromhex(...) of what `croupier mask-analyzer` printed."
            raise ArgumentError("analyzer_key", analyzer_key, "32 bytes", remedy)
        remedy = "State how much a run may reveal about this device's owner."
        self.analyzer_key = analyzer_key
        self.max_epsilon = real("max_epsilon", max_epsilon, above=0, remedy=remedy)
        self.max_delta = real("max_delta", max_delta, above=0, below=1, remedy=remedy)
        self.max_epsilon_if_watched = math.inf
        if max_epsilon_if_watched != math.inf:
            self.max_epsilon_if_watched = real("max_epsilon_if_watched", max_epsilon_if_watched, above=0, remedy=remedy)
        self.neighbours = one_of("neighbours", neighbours, ("zero-out", "replace-one"), "'zero-out' accepts both.")
        self.budget = None if budget is None else str(budget)

    def __call__(self, message: Message, context: Context, call_next: Any) -> Message:
        """Answer a message of the server, or refuse."""
        from flwr.app import ConfigRecord, Error, Message, RecordDict  # noqa: PLC0415
        from flwr.common.constant import ErrorCode  # noqa: PLC0415

        try:
            words = self._accepted(message, context)
        except RefusedTaskError as error:  # its words are about plans and this device's past, never about its data
            return Message(Error(ErrorCode.MOD_FAILED_PRECONDITION, str(error)), reply_to=message)
        before = _only(message.content.array_records)
        weights = sum(array.numpy().size for array in before.values())
        if weights != words.weights:
            reason = f"the plan is for {words.weights:,} weights, and the model has {weights:,}. Nothing was sent."
            return Message(Error(ErrorCode.MOD_FAILED_PRECONDITION, reason), reply_to=message)
        # written down before anything is computed: whatever goes wrong from here on, there is no second answer
        context.state[RECORD] = ConfigRecord({"run": words.run, "round": words.round})
        if self.budget is not None:
            self._ledger(context).charge(words.run, "Flower", self.analyzer_key.hex(), words.lots.guarantee)
        try:
            update = difference(_only(call_next(message, context).content.array_records), before)
        except Exception:  # that an app failed may say something about its data: a blank says nothing
            update = None
        report = masked_report(
            words.vector(update), words.lots.one_round, context=words.context, key=self.analyzer_key, block=words.block
        )
        return Message(RecordDict({RECORD: ConfigRecord({REPORT: report})}), reply_to=message)

    def _accepted(self, message: Message, context: Context) -> RoundWords:
        """The round that is asked about, or the reason why it is refused."""
        kind = message.metadata.message_type
        if kind.split(".")[0] != "train":
            raise RefusedTaskError(f"a message to {kind}, which would be answered without noise. Nothing was sent.")
        try:
            words = RoundWords.from_json(message.content.config_records[RECORD][WORDS])
        except KeyError:
            raise RefusedTaskError("the server does not use CroupierStrategy: it asks without a plan. Nothing was sent.") from None
        except (ValueError, TypeError) as error:
            raise RefusedTaskError(f"{error} Nothing was sent.") from None
        if RECORD in context.state.config_records:
            raise RefusedTaskError("this device has already answered in this run, and each device is asked once. Nothing was sent.")
        self._check_promise(words)
        if self.budget is not None:
            ledger = self._ledger(context)
            if any(entry.task == words.run for entry in ledger.entries()):
                raise RefusedTaskError(
                    "this device has already answered this run, and each device is asked once. Nothing was sent."
                )
            ledger.check(words.run, words.lots.guarantee)
        return words

    def _check_promise(self, words: RoundWords) -> None:
        promise = words.lots.guarantee
        if self.neighbours == "replace-one" and promise.neighbours != "replace-one":
            raise RefusedTaskError("the plan is for zero-out neighbours, but this device demands replace-one. Nothing was sent.")
        epsilon = promise.epsilon(self.max_delta) if promise.slack < self.max_delta else math.inf
        watched = promise.if_watched.epsilon(self.max_delta) if promise.if_watched.slack < self.max_delta else math.inf
        if epsilon > self.max_epsilon or watched > self.max_epsilon_if_watched:
            allowed = "any" if self.max_epsilon_if_watched == math.inf else exact(self.max_epsilon_if_watched)
            raise RefusedTaskError(
                f"the run reveals epsilon = {round_up(epsilon)} at delta = {exact(self.max_delta)}, and to the Flower server, "
                f"which knows when each device answered, {watched_line(promise, self.max_delta)}; allowed here are "
                f"{exact(self.max_epsilon)} (max_epsilon) and {allowed} (max_epsilon_if_watched). "
                "Nothing was sent."
            )

    def _ledger(self, context: Context) -> DeviceBudget:
        return DeviceBudget((self.budget or "").replace("{node}", str(context.node_id)))


def difference(after: ArrayRecord, before: ArrayRecord) -> NDArray[np.float32]:
    """The update as one vector in single precision, in the order of the model's arrays."""
    if list(after.keys()) != list(before.keys()):
        raise ValueError("the app returned a different model")
    update = np.empty(sum(array.numpy().size for array in before.values()), np.float32)
    at = 0
    for name, old in before.items():
        old_numbers, new_numbers = old.numpy(), after[name].numpy()
        if old_numbers.shape != new_numbers.shape:
            raise ValueError("the app returned a different model")
        update[at : at + old_numbers.size] = (new_numbers - old_numbers).ravel()
        at += old_numbers.size
    return update


def _only(records: Any) -> ArrayRecord:
    """The one array record of a message."""
    if len(records) != 1:
        raise ValueError(f"{len(records)} array records where there is one model")
    return next(iter(records.values()))
