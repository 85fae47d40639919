"""Public weights of classes."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from ..problem import Loss, Weighted
from ..validation import ArgumentError, real

_REMEDY = (
    "Say how much a class counts by what everybody may know: class_weight={'ill': 10} if about one person in eleven is ill. "
    "'balanced' would count the classes in the data, which no guarantee covers."
)


def weighted_loss(loss: Loss, class_weight: Any, classes: NDArray[Any]) -> Loss:
    """The loss with public weights of classes, scaled so that the largest is 1.

    A weight multiplies a user's gradient. Since no weight is above 1, no gradient is longer than the loss's own bound: noise and
    guarantee are those of the loss without weights.

    Parameters
    ----------
    loss : Loss
        Of labels 0, 1, ... in the order of `classes`.
    class_weight : dict or None
        A positive weight for each class that is named; the others have 1. None is 1 for all.
    classes : array
        The declared classes.

    Returns
    -------
    Loss

    Raises
    ------
    ArgumentError
        For "balanced", for what is no dict, for a class that was not declared, and for a weight that is not positive.
    """
    if class_weight is None:
        return loss
    if not isinstance(class_weight, dict):
        raise ArgumentError("class_weight", class_weight, "a dict from declared classes to public weights", _REMEDY)
    labels = classes.tolist()
    for label, weight in class_weight.items():
        if label not in labels:
            raise ArgumentError(
                "class_weight", label, f"about the declared classes {labels}", "Check the class's spelling and type."
            )
        real(f"class_weight[{label!r}]", weight, above=0, at_most=1e6, remedy="To leave a class out, drop its people beforehand.")
    weights = [float(class_weight.get(label, 1.0)) for label in labels]
    return Weighted(loss, tuple(weight / max(weights) for weight in weights))
