"""Whether the fluid of a case is as dense and as viscous as liquids are, or its numbers in another unit."""

from __future__ import annotations

from haloscope.solvers.blood.case import BloodTable

# Of liquids, in kg/m^3 and mPa s. Denser fluids are of use: their steps are longer.
_LIQUID_DENSITY = (500.0, 1.4e4)
_LIQUID_VISCOSITY = (0.1, 1e5)


def on_fluid(table: BloodTable) -> list[str]:
    """Densities and viscosities unlike any liquid's, as of another unit, a line each."""
    lines = []
    density, viscosity = table.density_kg_m3, table.viscosity_mpa_s
    low, high = _LIQUID_DENSITY
    if density < low:
        inferred = density * 1e3
        unit = f"; g/cm^3? give {inferred:g}" if low <= inferred <= high else ""
        lines.append(
            f"blood.density_kg_m3 = {density:g} is below that of any liquid ({low:g} to {high:g}){unit}"
        )
    low, high = _LIQUID_VISCOSITY
    if not low <= viscosity <= high:
        inferred = viscosity * 1e3
        unit = f"; Pa s? give {inferred:g}" if low <= inferred <= high else ""
        lines.append(
            f"blood.viscosity_mpa_s = {viscosity:g} is unlike any liquid's ({low:g} to {high:g} mPa s){unit}"
        )
    return lines
