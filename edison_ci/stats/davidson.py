"""Which strengths explain best who won, who lost and who tied?

The model of Davidson (1970) with the order effect of Davidson and Beaver (1977): with first-shown
i and second-shown j, P(i) : P(j) : P(tie) = pi_i : g pi_j : v sqrt(pi_i pi_j), pi = exp(theta).
Without ties it is that of Bradley and Terry (1952).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci.frozen import dataclass
from edison_ci.stats.libraries import np

if TYPE_CHECKING:
    from edison_ci.stats.arrays import Array

_STEPS = 100
_LARGEST_STEP = 2.0
_CONVERGED = 1e-9
_ENDLESS = 12.0
"""A strength beyond it means that the data set no limit."""


@dataclass(frozen=True, slots=True)
class Model:
    """The model's linear form: what each parameter adds to the log odds of each outcome."""

    design: Array
    """(pairs, 3 outcomes: first, second, tie; parameters)."""
    ties: bool
    order_effect: bool
    systems: int

    @classmethod
    def of(cls, pairs: Array, *, systems: int, ties: bool, order_effect: bool) -> Model:
        """Make the model of ordered pairs of systems, (pairs, 2)."""
        width = systems - 1 + ties + order_effect
        # theta_K = -sum of the others, so the mean strength is 0.
        strength = np.vstack((np.eye(systems - 1), -np.ones(systems - 1)))
        design = np.zeros((len(pairs), 3, width))
        first, second = (strength[pairs[:, side].astype(int)] for side in (0, 1))
        design[:, 0, : systems - 1] = first
        design[:, 1, : systems - 1] = second
        design[:, 2, : systems - 1] = (first + second) / 2
        if ties:
            design[:, 2, systems - 1] = 1
        if order_effect:
            design[:, 1, -1] = 1
        return cls(design, ties, order_effect, systems)

    def chances(self, parameters: Array) -> Array:
        """Return P(first), P(second), P(tie) of each pair, (..., pairs, 3)."""
        logits = np.einsum("pok,...k->...po", self.design, parameters)
        if not self.ties:
            logits[..., 2] = -np.inf
        logits -= logits.max(axis=-1, keepdims=True)
        weights = np.exp(logits)
        return np.asarray(weights / weights.sum(axis=-1, keepdims=True))

    def score(self, parameters: Array, counts: Array) -> Array:
        """Return the gradient of the log-likelihood; `counts` is (..., pairs, 3)."""
        expected = self.chances(parameters) * counts.sum(axis=-1, keepdims=True)
        return np.asarray(np.einsum("...po,pok->...k", counts - expected, self.design))

    def information(self, parameters: Array, counts: Array) -> Array:
        """Return the negative Hessian of the log-likelihood."""
        chances = self.chances(parameters)
        total = counts.sum(axis=-1)
        mean = np.einsum("...po,pok->...pk", chances, self.design)
        square = np.einsum("...p,...po,pok,pol->...kl", total, chances, self.design, self.design)
        return np.asarray(square - np.einsum("...p,...pk,...pl->...kl", total, mean, mean))

    def strengths(self, parameters: Array) -> Array:
        """Return theta of every system, with mean 0."""
        theta = parameters[..., : self.systems - 1]
        return np.concatenate((theta, -theta.sum(axis=-1, keepdims=True)), axis=-1)


@dataclass(frozen=True, slots=True)
class Fit:
    """The most likely parameters of one or many sets of counts."""

    parameters: Array
    settled: bool
    """Whether every set has finite parameters; without it the data set no limit to some."""


def fit(model: Model, counts: Array) -> Fit:
    """Maximise the log-likelihood by Newton's method; it is concave, so the maximum is global.

    `counts` is (..., pairs, 3): sets of counts are fitted side by side.
    """
    shape = (*counts.shape[:-2], model.design.shape[-1])
    parameters = np.zeros(shape)
    ridge = 1e-10 * np.eye(shape[-1])
    for _ in range(_STEPS):
        gradient = model.score(parameters, counts)
        information = model.information(parameters, counts) + ridge
        step = np.linalg.solve(information, gradient[..., None])[..., 0]
        longest = np.abs(step).max(axis=-1, keepdims=True, initial=0)
        # Far from the maximum a full step may overshoot; near it all are full.
        parameters = parameters + step * np.minimum(1, _LARGEST_STEP / np.maximum(longest, 1e-300))
        if longest.max(initial=0) < _CONVERGED:
            break
        if np.abs(parameters).max(initial=0) > 2 * _ENDLESS:
            break
    endless = np.abs(parameters).max(initial=0) > _ENDLESS
    return Fit(parameters, not endless and bool(longest.max(initial=0) < 1e-6))
