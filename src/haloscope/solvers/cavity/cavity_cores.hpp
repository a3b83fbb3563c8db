// The update on cores: rows as vectors, and two steps in one pass over memory.

// The rows that the stencil of a row reads.
struct Rows {
  const real *c, *S, *N, *B, *F;
};
struct Ends {
  const real *SS, *NN, *BB, *FF;
};

#if THREE
#define STAR(f) star_of(f.c[x], f.c[x - 1], f.c[x + 1], f.S[x], f.N[x], f.B[x], f.F[x])
#define BEHIND(q) q.BB[x], q.FF[x]
#else
#define STAR(f) star_of(f.c[x], f.c[x - 1], f.c[x + 1], f.S[x], f.N[x], 0, 0)
#define BEHIND(q) 0, 0
#endif

INLINE void advance_row(const Physics &k, const Rows &p, const Ends &q, const Rows &u,
                        const Rows &v, const Rows &w, const Rows &T, real *pn, real *un, real *vn,
                        real *wn, real *Tn, long nx, real dt, real reference) {
  PRAGMA(omp simd) for (long x = 0; x < nx; ++x) {
    const Star p_star = STAR(p), u_star = STAR(u), v_star = STAR(v), T_star = STAR(T);
#if THREE
    const Star w_star = STAR(w);
#else
    const Star w_star = {0, 0, 0, 0, 0, 0, 0};
#endif
    const Tips tips = tips_of(p.c[x - 2], p.c[x + 2], q.SS[x], q.NN[x], BEHIND(q));
    const Node next = advance(k, p_star, tips, u_star, v_star, w_star, T_star, dt, reference);
    pn[x] = next.p;
    un[x] = next.u;
    vn[x] = next.v;
#if THREE
    wn[x] = next.w;
#endif
    Tn[x] = next.T;
  }
}

INLINE Rows rows_of(const real *row, long sy, long sz) {
  return {row, row - sy, row + sy, row - sz, row + sz};
}

// Tiles of `rows` rows march along z so that the planes a stencil needs stay in the cache.
KERNEL(update, IN_RESTRICT(real, old), OUT_RESTRICT(real, fresh), VALUE(Physics, physics),
       IN_RESTRICT(real, step), IN_RESTRICT(real, reference_p), LONG(first), LONG(nx), LONG(ny),
       LONG(nz), LONG(sy), LONG(sz), LONG(fs), LONG(rows), LONG(chunk)) {
  const real dt = LOCAL_STEP ? (real)0 : *step;
  const real reference = RESCALE ? *reference_p : (real)0;
  const long tiles = (ny + rows - 1) / rows, chunks = (nz + chunk - 1) / chunk;
  PRAGMA(omp parallel for collapse(2) schedule(static))
  for (long c = 0; c < chunks; ++c)
    for (long t = 0; t < tiles; ++t) {
      const long y1 = smaller(ny, (t + 1) * rows), z1 = smaller(nz, (c + 1) * chunk);
      for (long z = c * chunk; z < z1; ++z)
        for (long y = t * rows; y < y1; ++y) {
          const real *p = old + first + y * sy + z * sz, *T = p + T_FIELD * fs;
          real *out = fresh + first + y * sy + z * sz;
          const Ends q = {p - 2 * sy, p + 2 * sy, p - 2 * sz, p + 2 * sz};
          advance_row(physics, rows_of(p, sy, sz), q, rows_of(p + fs, sy, sz),
                      rows_of(p + 2 * fs, sy, sz), rows_of(p + 3 * fs, sy, sz),
                      rows_of(T, sy, sz), out, out + fs, out + 2 * fs, out + 3 * fs,
                      out + T_FIELD * fs, nx, dt, reference);
        }
    }
}

#if THREE && !RESCALE
extern "C" int omp_get_thread_num(void);

// Two steps in one pass over memory, for a block without neighbours. A tile of `rows` rows marches
// along z; the first step's planes, two rows wider on each side, stay in a thread's scratch until
// the second step, two planes behind, has read them. The walls between the steps are those of
// `walls`; wall nodes whose values never change are read from `old`.
// adiabatic[k]: whether wall k is, of those at the ends of rows, beside rows, and beyond planes.
#define P_RING 5
#define Q_RING 4
#define P_WALLS P_RING

struct Scratch {
  real *base;
  long pitch, plane, origin;  // origin: row of y = 0, column of x = 0

  // Row y of a slot; slots of p come first, then those of u, v, w, T (with its wall planes).
  real *row(long slot, long y) const { return base + slot * plane + origin + y * pitch; }
  real *p(long z, long y) const { return row(z % P_RING, y); }
  real *p_wall(long number, long y) const { return row(P_WALLS + number, y); }
  real *q(long f, long z, long y) const { return row(P_RING + 2 + f * Q_RING + z % Q_RING, y); }
  real *T_wall(long y) const { return row(P_RING + 2 + 4 * Q_RING, y); }
};

KERNEL(update_twice, IN_RESTRICT(real, old), OUT_RESTRICT(real, fresh), VALUE(Physics, physics),
       IN_RESTRICT(real, step), LONG(first), LONG(nx), LONG(ny), LONG(nz), LONG(sy), LONG(sz),
       LONG(fs), LONG(rows), IN(long, adiabatic), INOUT(real, scratch), LONG(scratch_stride)) {
  const real dt = LOCAL_STEP ? (real)0 : *step;
  const long tiles = (ny + rows - 1) / rows;
  PRAGMA(omp parallel for schedule(static))
  for (long t = 0; t < tiles; ++t) {
    const long y0 = t * rows, y1 = smaller(ny, y0 + rows);
    const long begin = larger(0L, y0 - 2), end = smaller(ny, y1 + 2);
    const long plane = (rows + 8) * sy;
    const Scratch s = {scratch + omp_get_thread_num() * scratch_stride, sy, plane,
                       (4 - y0) * sy + 64 / (long)sizeof(real)};
    const real *start = old + first;

    auto first_step = [&](long z) {
      for (long y = begin; y < end; ++y) {
        const real *p = start + y * sy + z * sz;
        const Ends q = {p - 2 * sy, p + 2 * sy, p - 2 * sz, p + 2 * sz};
        real *pn = s.p(z, y), *fields[4] = {s.q(0, z, y), s.q(1, z, y), s.q(2, z, y), s.q(3, z, y)};
        advance_row(physics, rows_of(p, sy, sz), q, rows_of(p + fs, sy, sz), rows_of(p + 2 * fs, sy, sz),
                    rows_of(p + 3 * fs, sy, sz), rows_of(p + 4 * fs, sy, sz), pn, fields[0],
                    fields[1], fields[2], fields[3], nx, dt, 0);
        for (long f = 0; f < 4; ++f) {
          fields[f][-1] = p[(f + 1) * fs - 1];
          fields[f][nx] = p[(f + 1) * fs + nx];
        }
        wall(pn, fields[3], -1, 1, adiabatic[0]);
        wall(pn, fields[3], nx, -1, adiabatic[1]);
      }
      for (long side = 0; side < 2; ++side) {
        const long y = side ? ny : -1, n = side ? -1 : 1;
        if (side ? y1 < ny : y0 > 0) continue;
        real *p = s.p(z, y), *T = s.q(3, z, y);
        PRAGMA(omp simd) for (long x = 0; x < nx; ++x) wall(p, T, x, n * sy, adiabatic[2 + side]);
      }
    };

    // p on the wall plane and beyond it, T on the wall plane; z1 is the plane next to the wall.
    auto wall_planes = [&](long z1, long n, bool insulated) {
      for (long y = y0; y < y1; ++y) {
        real *p0 = s.p_wall(0, y), *ghost = s.p_wall(1, y), *T0 = s.T_wall(y);
        const real *p1 = s.p(z1, y), *p2 = s.p(z1 + n, y), *p3 = s.p(z1 + 2 * n, y);
        const real *p4 = s.p(z1 + 3 * n, y), *T1 = s.q(3, z1, y), *T2 = s.q(3, z1 + n, y);
        const real *fixed = start + 4 * fs + y * sy + (z1 - n) * sz;
        PRAGMA(omp simd) for (long x = 0; x < nx; ++x) {
          p0[x] = wall_pressure(p1[x], p2[x]);
          ghost[x] = ghost_pressure(p0[x], p1[x], p2[x], p3[x], p4[x]);
          T0[x] = insulated ? adiabatic_temperature(T1[x], T2[x]) : fixed[x];
        }
      }
    };

    auto second_step = [&](long z) {
      for (long y = y0; y < y1; ++y) {
        const real *here = start + y * sy + z * sz;
        auto p_plane = [&](long at) -> const real * {
          if (at < 0) return s.p_wall(-1 - at, y);
          if (at >= nz) return s.p_wall(at - nz, y);
          return s.p(at, y);
        };
        const Rows p = {s.p(z, y), s.p(z, y - 1), s.p(z, y + 1), p_plane(z - 1), p_plane(z + 1)};
        const Ends q = {s.p(z, y - 2), s.p(z, y + 2), p_plane(z - 2), p_plane(z + 2)};
        Rows fields[4];
        for (long f = 0; f < 4; ++f) {
          const real *fixed = here + (f + 1) * fs;
          const bool T_low = f == 3 && adiabatic[2], T_high = f == 3 && adiabatic[3];
          fields[f] = {s.q(f, z, y), y > 0 || T_low ? s.q(f, z, y - 1) : fixed - sy,
                       y + 1 < ny || T_high ? s.q(f, z, y + 1) : fixed + sy,
                       z > 0 ? s.q(f, z - 1, y) : f == 3 ? s.T_wall(y) : fixed - sz,
                       z + 1 < nz ? s.q(f, z + 1, y) : f == 3 ? s.T_wall(y) : fixed + sz};
        }
        real *out = fresh + first + y * sy + z * sz;
        advance_row(physics, p, q, fields[0], fields[1], fields[2], fields[3], out, out + fs,
                    out + 2 * fs, out + 3 * fs, out + 4 * fs, nx, dt, 0);
      }
    };

    for (long z = 0; z < nz; ++z) {
      first_step(z);
      if (z == 3) {
        wall_planes(0, 1, adiabatic[4]);
        second_step(0);
      }
      if (z >= 3) second_step(z - 2);
    }
    wall_planes(nz - 1, -1, adiabatic[5]);
    second_step(nz - 2);
    second_step(nz - 1);
  }
}
#endif
