"""scikit-learn's own checks, and which of them privacy forbids.

    check_estimator(ShuffleRidge(data_is_public=True), expected_failed_checks=EXPECTED_FAILED_CHECKS)

The checks call fit with bare arrays, so they need data_is_public=True: what they fit has no public facts declared.
"""

EXPECTED_FAILED_CHECKS = {
    "check_class_weight_classifiers": (
        "asks for 87 % of one class from 50 people by weights of 1000 and 0.0001: a model that keeps epsilon = 1 for so few is "
        "mostly noise. It passes with epsilon = 10 and interactivity = 'full'."
    ),
    "check_classifiers_train": (
        "asks for an accuracy of 0.83 from 200 to 300 people: a model that keeps epsilon = 1 for so few is mostly noise. "
        "It passes with epsilon = 10 and interactivity = 'full'."
    ),
    "check_regressors_train": (
        "asks for an R^2 of 0.5 from 200 people and 10 features: a model that keeps epsilon = 1 for so few is mostly noise. "
        "It passes with epsilon = 10 and interactivity = 'full'."
    ),
}
