"""Keys of a Maxwell case for what is worked out of a run: spectra at probes, the far field."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from haloscope.case.tables import Position, Table

_SMALLEST, _LARGEST = 1e-30, 1e30
Positive = Annotated[float, Field(ge=_SMALLEST, le=_LARGEST)]
NotNegative = Annotated[float, Field(ge=0.0, le=_LARGEST)]
Name = Annotated[str, Field(min_length=1, max_length=200)]
Degrees = Annotated[float, Field(ge=-360.0, le=360.0)]


class SpectrumTable(Table):
    """Spectra and resonances at probes."""

    band: tuple[NotNegative, Positive]
    """Lowest and highest frequency in Hz (in natural units: oscillations a metre of c t)."""
    start: NotNegative | None = None
    """Series count from this time in s; when left out from where the last source has ended, or 0."""
    probes: Annotated[tuple[Name, ...], Field(max_length=1000)] = ()
    """Names of probes; all when left out."""
    window: Literal["none", "hann", "fade"] = "fade"
    """What the series is multiplied by for the spectrum (not for the resonances). none: for what has
    died away; hann: for a steady oscillation; fade: 1 at first, 0 at the end, for what still rings."""

    @model_validator(mode="after")
    def _consistent(self) -> SpectrumTable:
        if not self.band[0] < self.band[1]:
            raise ValueError(
                f"band = {list(self.band)}: the lowest frequency is not below the highest; give "
                "[low, high]"
            )
        return self


class FarFieldTable(Table):
    """Waves far away, from the fields on a closed surface; what is around it must be uniform.

    The surface may end at complete plane walls (pec or pmc), for which image currents stand.

    Amplitudes are those of a steady state in which the waveform of the first wave, or of the first
    source where there is none, has the amplitude 1.
    """

    frequencies: Annotated[tuple[Positive, ...], Field(min_length=1, max_length=1000)]
    """In Hz (in natural units: oscillations a metre of c t)."""
    box: tuple[Position, Position] | None = None
    """Surface: around the elements whose centre lies between this lower and upper corner, in m."""
    regions: tuple[Name, ...] = ()
    """Surface: around these regions. With neither: around what holds the total field of a wave, or
    else around all that is not in the absorbing layer."""
    theta: Annotated[int, Field(ge=2, le=3601)] = 91
    """Number of angles from +z, evenly from 0 to 180 degrees."""
    phi: Annotated[tuple[Degrees, ...], Field(min_length=1, max_length=720)] = (0.0, 90.0)
    """Angles from +x in degrees."""
    start: NotNegative = 0.0
    """Fields count from this time in s; with a sine give one when all is steady."""
    interval: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Steps between two samples; when left out at least 12 fall in the shortest period."""

    @model_validator(mode="after")
    def _consistent(self) -> FarFieldTable:
        if self.box is not None and self.regions:
            raise ValueError("box and regions are both given; give one of them")
        return self
