"""Labels of declared classes, which are public facts: never counted in the data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from ..invalid import known_place
from ..validation import ArgumentError, RecordError
from .private import PrivateEstimator

_HOW = "Pass all labels that may occur, for example classes=[0, 1], whether or not they occur in this data."


@dataclass(kw_only=True, eq=False, repr=False)
class DeclaredClasses(ClassifierMixin, PrivateEstimator):  # type: ignore[misc]
    """An estimator of labels that its parameter `classes` lists."""

    classes: Sequence[Any] | NDArray[Any] | None = None

    def _declare_classes(self, y: NDArray[Any] | None) -> None:
        """Set `classes_`: as declared, or read off the labels where the data is public."""
        if y is not None:
            check_classification_targets(y)
        declared = np.asarray(self._read_off("classes", self.classes, _HOW, None if y is None else lambda: np.unique(y)))
        self.classes_ = np.unique(declared)
        if declared.ndim != 1 or len(self.classes_) != declared.size or len(self.classes_) < 2:
            raise ArgumentError("classes", declared.tolist(), "a list of at least two classes, each once", _HOW)
        if len(self.classes_) > 2 and not self.__sklearn_tags__().classifier_tags.multi_class:
            remedy = "Only binary classification is supported. Use ShuffleLogisticRegression for more classes."
            raise ArgumentError("classes", declared.tolist(), "two classes here", remedy)

    def _class_indices(self, y: NDArray[Any]) -> NDArray[Any]:
        """The place of each label among the classes; NaN for one that is none, where such records count as blank."""
        if y.dtype.kind == self.classes_.dtype.kind != "O":
            index = np.minimum(np.searchsorted(self.classes_, y), len(self.classes_) - 1)
            index = np.where(self.classes_[index] == y, index, -1)
        else:  # by Python's equality
            place = {label: index for index, label in enumerate(self.classes_.tolist())}
            index = np.array([known_place(place, label) for label in y.tolist()])
        if self.invalid == "blank":
            return np.where(index < 0, np.nan, index)
        if (index < 0).any():
            odd = y[index < 0][:1].tolist()[0]
            raise RecordError("y", odd, f"one of the declared classes {self.classes_.tolist()}", "Declare it; nobody was asked.")
        return index
