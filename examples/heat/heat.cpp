// Heat conduction on a Cartesian grid: one explicit step, dT/dt = alpha (T_xx + T_yy + T_zz).
//
// Second-order central differences, three nodes along each axis; ax = alpha dt / dx^2, ay and az likewise.
// sy, sz: distances between rows and between planes, in values.
CONSTANTS(TYPE(real))

INLINE real conducted(const real *T, long sy, long sz, real ax, real ay, real az) {
  const real along_x = fused((real)-2, T[0], T[-1] + T[1]);
  const real along_y = fused((real)-2, T[0], T[-sy] + T[sy]);
  const real along_z = fused((real)-2, T[0], T[-sz] + T[sz]);
  return fused(ax, along_x, fused(ay, along_y, fused(az, along_z, T[0])));
}

// Nodes of a box from `first` on; rows are sy values apart, planes sz.
KERNEL(conduct, IN(real, old), OUT(real, fresh), LONG(first), LONG(nx), LONG(ny), LONG(nz),
       LONG(sy), LONG(sz), DOUBLE(ax), DOUBLE(ay), DOUBLE(az)) {
  FOR_CELLS(x, y, z, nx, ny, nz) {
    const long i = first + x + y * sy + z * sz;
    fresh[i] = conducted(old + i, sy, sz, (real)ax, (real)ay, (real)az);
  }
}
