"""Claims about space that cells take: who is near, inside or in a wall meets something, and nobody else."""

import numpy as np
import pytest

from haloscope.domain.shapes import Tube
from haloscope.domain.voxels import voxelise
from haloscope.solvers.blood.membrane_meshes import sphere
from haloscope.solvers.blood.taken_space import TakenSpace

EDGE = 0.4
BALL = sphere(162, 3.0)


def space() -> TakenSpace:
    return TakenSpace(np.zeros(3), np.full(3, 30.0), EDGE)


def ball(*centre: float, radius: float = 3.0) -> np.ndarray:
    found: np.ndarray = np.array(centre) + BALL.vertices * radius / 3.0
    return found


@pytest.mark.parametrize(
    ("apart", "meets"), [(5.5, True), (6.2, True), (6.9, False), (12.0, False)]
)
def test_cells_that_come_too_near_meet(apart, meets):
    there = space()
    there.add(ball(10.0, 10.0, 10.0)[None], BALL.triangles)
    for way in ((apart, 0, 0), (0, -apart, 0), (0, 0, apart)):
        other = ball(*(np.array([10.0, 10.0, 10.0]) + way))
        assert there.meets(other, BALL.triangles) == meets


def test_a_cell_within_another_meets_it():
    there = space()
    there.add(ball(10.0, 10.0, 10.0, radius=6.0)[None], BALL.triangles)
    assert there.meets(ball(10.0, 10.5, 10.0, radius=1.0), BALL.triangles)
    assert not there.meets(ball(18.5, 10.0, 10.0, radius=1.0), BALL.triangles)


def test_what_lies_beyond_the_box_marks_nothing_in_it():
    there = space()
    there.add(ball(-8.0, 10.0, 10.0)[None], BALL.triangles)
    assert not there.meets(ball(4.0, 10.0, 10.0), BALL.triangles)


def test_walls_are_met_and_points_are_counted():
    lattice = voxelise(Tube(8e-6, 20e-6), 1e-6)
    middle = (np.array(lattice.shape) - 1) / 2
    there = TakenSpace(np.zeros(3) - 2, np.array(lattice.shape) + 2.0, EDGE)
    there.add_walls(lattice)
    assert not there.meets(ball(*middle), BALL.triangles)
    assert there.meets(ball(middle[0], middle[1] + 6.0, middle[2]), BALL.triangles)
    copied = there.copy()
    copied.add(ball(*middle)[None], BALL.triangles)
    assert copied.meets(ball(*middle), BALL.triangles)
    assert not there.meets(ball(*middle), BALL.triangles)
    inside, outside = [middle, middle + 1.0], [middle, middle + (0.0, 30.0, 0.0)]
    assert there.count(np.array([inside, outside])).tolist() == [0, 1]
