"""Comparisons of a prediction with a measurement, all of one form."""

from dataclasses import dataclass

KINDS = ("fitted", "unseen")


@dataclass(frozen=True)
class Comparison:
    """What was predicted and what was measured, of one configuration.

    Attributes:
        subject: What was measured: a network, a collective, a copy.
        hardware: What it was measured on.
        configuration: The numbers that tell it from its neighbours.
        unit: The unit of both values.
        predicted: What the model says.
        measured: What the measurement says.
        kind: "fitted" where a constant of the model was fitted to it, else
            "unseen".
        work: The class of work: "convolutions", "transformers", "small
            networks", "collectives", "copies", "pipelines".

    Example:
        >>> from dpkit.lab.limits.comparisons import Comparison
        >>> row = Comparison("VGG16", "P100", "batch 64", "images/s",
        ...                  180, 144, "unseen", "convolutions")
        >>> f"{row.error:+.0%}"
        '+25%'
    """

    subject: str
    hardware: str
    configuration: str
    unit: str
    predicted: float
    measured: float
    kind: str
    work: str

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            known = ", ".join(KINDS)
            raise ValueError(
                f"unknown kind (kind: {self.kind!r}, known: {known})"
            )

    @property
    def error(self) -> float:
        """(predicted − measured) / measured."""
        return self.predicted / self.measured - 1
