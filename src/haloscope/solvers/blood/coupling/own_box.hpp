// Where a vertex lies among the lattice points that a rank owns.
//
// Positions are in lattice units and go on over periodic ends (unwrapped).
// A vertex belongs to the rank that owns the lattice point nearest to it. That is decided in whole
// numbers, so each vertex between points has one owner, whatever was rounded.

template <typename T>
INLINE int floor_of(T x) {
  const int i = (int)x;
  return i - (x < (T)i);
}

INLINE int nearest_point(real x) { return floor_of(x + (real)0.5); }

// First own point of an axis, own points, and points of the whole axis if it is periodic, else 0.
struct Axis {
  int first, count, period;
  double inverse;
};

struct Box {
  Axis axes[3];
};

INLINE Box box_of(const int *numbers) {
  Box box;
  for (int d = 0; d < 3; d++) {
    const int period = numbers[6 + d];
    box.axes[d] = {numbers[d], numbers[3 + d], period, period ? 1.0 / period : 0};
  }
  return box;
}

// Whole numbers stay exact and in range for such positions; others, NaN too, have no place.
INLINE bool placeable(real x) { return absolute(x) < (real)1e9; }

// Distance of point i from the first own one, in [0, period) if the axis is periodic. The half
// keeps rounding from the whole quotients.
INLINE int from_first(int i, const Axis &axis) {
  const int distance = i - axis.first;
  return distance - axis.period * floor_of(((double)distance + 0.5) * axis.inverse);
}

// The point `steps` further on from a distance.
INLINE int further(int distance, int steps, const Axis &axis) {
  const int there = distance + steps;
  return axis.period && there >= axis.period ? there - axis.period : there;
}

INLINE bool is_own(int distance, const Axis &axis) {
  return (unsigned)distance < (unsigned)axis.count;
}

// Number of point i among the own ones of an axis; -1 where it is another's.
INLINE int own(int i, const Axis &axis) {
  const int distance = from_first(i, axis);
  return is_own(distance, axis) ? distance : -1;
}

// Numbers of points at the places of the own box and its halo, -1 where none is.
struct Table {
  const int *points;
  long nx, ny, halo;
};

INLINE Table table_of(const int *points, const Box &box, long halo) {
  return {points, box.axes[0].count + 2 * halo, box.axes[1].count + 2 * halo, halo};
}

// Place in the table of points by their numbers among the own ones; they may lie in the halo.
INLINE long place_of(const Table &table, long x, long y, long z) {
  return ((z + table.halo) * table.ny + y + table.halo) * table.nx + x + table.halo;
}
