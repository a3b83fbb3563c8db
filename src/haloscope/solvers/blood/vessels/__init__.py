"""From the vessel of a case to points, openings, walls and signals."""
