"""Shapes of cells from the moments of their volumes: centres, ellipsoids of inertia, inclination."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class CellShapes:
    """What is known of each of n cells."""

    # (n,) of the polyhedron of the vertices.
    volume: np.ndarray
    area: np.ndarray
    centre: np.ndarray  # (n, 3) centroid of the volume
    covariance: np.ndarray  # (n, 3, 3) second moments of the volume about the centre, by the volume
    # (n,) of the worst triangle: 4 sqrt(3) area over the sum of squared sides, 1 for an equilateral
    # one; negative if one is turned over against those around it, -1 if one is no number.
    quality: np.ndarray

    @classmethod
    def from_moments(cls, moments: np.ndarray, first: np.ndarray) -> CellShapes:
        """From what the kernel sums, (12, n), about the first vertices (n, 3)."""
        area, volume = moments[0], moments[1]
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = (moments[2:5] / volume).T
            second = (moments[5:11] / volume).T
        covariance = second[:, [[0, 5, 4], [5, 1, 3], [4, 3, 2]]]
        covariance = covariance - mean[:, :, None] * mean[:, None, :]
        return cls(volume, area, first + mean, covariance, moments[11])

    @property
    def inertia(self) -> np.ndarray:
        """(n, 3, 3) tensors of inertia about the centres at density 1."""
        trace = np.trace(self.covariance, axis1=1, axis2=2)
        tensor: np.ndarray = self.volume[:, None, None] * (
            trace[:, None, None] * np.eye(3) - self.covariance
        )
        return tensor

    @property
    def semi_axes(self) -> np.ndarray:
        """(n, 3) of the ellipsoids with the same moments, the longest first."""
        axes: np.ndarray = np.sqrt(5 * np.linalg.eigvalsh(self.covariance)[:, ::-1])
        return axes

    def taylor_deformation(self, flow: int = 0, gradient: int = 1) -> np.ndarray:
        """(n,) D = (L - B)/(L + B) from the axes of the ellipsoid in the plane of a shear flow."""
        long, short = self._in_plane(flow, gradient)
        deformation: np.ndarray = (long - short) / (long + short)
        return deformation

    def inclination(self, flow: int = 0, gradient: int = 1) -> np.ndarray:
        """(n,) angle in radians from the flow to the long axis in the plane of a shear flow."""
        c = self.covariance
        xx, yy, xy = c[:, flow, flow], c[:, gradient, gradient], c[:, flow, gradient]
        angle: np.ndarray = np.arctan2(2 * xy, xx - yy) / 2
        return angle

    def _in_plane(self, flow: int, gradient: int) -> tuple[np.ndarray, np.ndarray]:
        c = self.covariance
        xx, yy, xy = c[:, flow, flow], c[:, gradient, gradient], c[:, flow, gradient]
        mean, half = (xx + yy) / 2, np.hypot((xx - yy) / 2, xy)
        return np.sqrt(5 * (mean + half)), np.sqrt(5 * np.maximum(mean - half, 0))
