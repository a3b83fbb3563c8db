// The cavity's time step: artificial compressibility on collocated nodes, see README.md.
//
// Legend: p pressure, (u, v, w) velocity along (x, y, z), T temperature; neighbours of a node
// W E along x, S N along y, B F along z, doubled letters two nodes away; beta2 the square of the
// artificial speed of sound; lambda the wave speed; h the distance of nodes. The fields lie one
// after the other in one array, `fs` values apart, in the order p u v [w] T.
//
// Compile-time constants: real, DIMENSIONS (2, 3), LOCAL_STEP, RESCALE, GRAVITY_X/_Y/_Z (0, 1),
// PHYSICS_VALUES; on a GPU BLOCK_THREADS and LEAST_BLOCKS (threads of a block, blocks that must
// fit on a multiprocessor), TILE_X, TILE_Y, AHEAD, DRIFT, MOST_POLLS (see update_tiles).

#define FIELDS (DIMENSIONS + 2)
#define THREE (DIMENSIONS == 3)

struct Physics {
  real ax, ay, az;        // 1 / (2 h)
  real nx, ny, nz, n0;    // nu / h^2, and -2 times their sum
  real tx, ty, tz, t0;    // alpha / h^2, and -2 times their sum
  real dx, dy, dz;        // C4 / (2 h): damping, half because wave() is twice lambda
  real gx, gy, gz;        // 1 / (2 h rho): pressure gradient
  real bx, by, bz, tref;  // -beta_T g, reference temperature
  real floor2;            // kappa V_ref^2: least beta2
  real rho;
  real cfl, diffusive, cell;  // local step: factor, diffusive limit, cell-Reynolds limit factor
};
static_assert(sizeof(Physics) == PHYSICS_VALUES * sizeof(real), "as many as Python hands over");

struct Star {
  real c, W, E, S, N, B, F;
};
struct Tips {
  real WW, EE, SS, NN, BB, FF;
};
struct Node {
  real p, u, v, w, T;
};

// Square of the artificial speed of sound: max(|V|^2, kappa V_ref^2).
INLINE real speed2(const Physics &k, real u, real v, real w) {
  real square = fused(v, v, u * u);
#if THREE
  square = fused(w, w, square);
#endif
  return larger(square, k.floor2);
}

// Twice the wave speed lambda = (|u| + sqrt(u^2 + 4 beta2)) / 2.
INLINE real wave(real u, real four_beta2) {
  return absolute(u) + square_root(fused(u, u, four_beta2));
}

// Undivided fourth difference.
INLINE real fourth(real ll, real l, real c, real r, real rr) {
  return fused((real)6, c, fused((real)-4, l + r, ll + rr));
}

// Root of the sum of (lambda / h)^2 over the directions, in 1/s.
INLINE real rate(const Physics &k, real a, real b, real c) {
  a *= k.ax, b *= k.ay;
  real sum = fused(b, b, a * a);
#if THREE
  c *= k.az;
  sum = fused(c, c, sum);
#endif
  return square_root(sum);
}

struct Weights {
  real c, W, E, S, N, B, F;
};

// Weights of a star for diffusion less central convection.
INLINE Weights weights(real nx, real ny, real nz, real n0, real cx, real cy, real cz) {
  return {n0, nx + cx, nx - cx, ny + cy, ny - cy, nz + cz, nz - cz};
}

INLINE real apply(const Weights &m, const Star &f) {
  real sum = fused(m.N, f.N, fused(m.S, f.S, fused(m.E, f.E, fused(m.W, f.W, m.c * f.c))));
#if THREE
  sum = fused(m.F, f.F, fused(m.B, f.B, sum));
#endif
  return sum;
}

// One explicit step of a node from its neighbourhood.
INLINE Node advance(const Physics &k, const Star &p, const Tips &q, const Star &u, const Star &v,
                    const Star &w, const Star &T, real global_dt, real reference) {
  const real beta2 = speed2(k, u.c, v.c, w.c), four = 4 * beta2;
  const real su = wave(u.c, four), sv = wave(v.c, four);
  real divergence = fused(k.ay, v.N - v.S, k.ax * (u.E - u.W));
  real damping = fused(k.dy * sv, fourth(q.SS, p.S, p.c, p.N, q.NN),
                       k.dx * su * fourth(q.WW, p.W, p.c, p.E, q.EE));
#if THREE
  const real sw = wave(w.c, four);
  divergence = fused(k.az, w.F - w.B, divergence);
  damping = fused(k.dz * sw, fourth(q.BB, p.B, p.c, p.F, q.FF), damping);
#else
  const real sw = 0;
#endif
  const real cx = u.c * k.ax, cy = v.c * k.ay, cz = w.c * k.az;
  const Weights viscous = weights(k.nx, k.ny, k.nz, k.n0, cx, cy, cz);
  const Weights thermal = weights(k.tx, k.ty, k.tz, k.t0, cx, cy, cz);
  const real excess = T.c - k.tref;
  (void)excess;
  real du = fused(k.gx, p.W - p.E, apply(viscous, u));
  real dv = fused(k.gy, p.S - p.N, apply(viscous, v));
#if GRAVITY_X
  du = fused(k.bx, excess, du);
#endif
#if GRAVITY_Y
  dv = fused(k.by, excess, dv);
#endif
  const real dT = apply(thermal, T);
  const real dp = -fused(beta2 * k.rho, divergence, damping);
#if LOCAL_STEP
  const real slow = 1 / rate(k, su, sv, sw);
  const real dt = k.cfl * smaller(slow, smaller(k.diffusive, k.cell * slow * slow));
  (void)global_dt;
#else
  const real dt = global_dt;
  (void)sw;
#endif
  Node next;
  next.p = fused(dt, dp, p.c);
#if RESCALE
  next.p -= reference;
#else
  (void)reference;
#endif
  next.u = fused(dt, du, u.c);
  next.v = fused(dt, dv, v.c);
  next.T = fused(dt, dT, T.c);
#if THREE
  real dw = fused(k.gz, p.B - p.F, apply(viscous, w));
#if GRAVITY_Z
  dw = fused(k.bz, excess, dw);
#endif
  next.w = fused(dt, dw, w.c);
#else
  next.w = 0;
#endif
  return next;
}

// Walls: p extrapolated to the wall and to the ghost node beyond it, T on adiabatic walls; 1, 2, ...
// count nodes from the wall inwards.
INLINE real wall_pressure(real p1, real p2) { return fused((real)2, p1, -p2); }

// The ghost that makes the central fourth difference at node 1 the one-sided one.
INLINE real ghost_pressure(real p0, real p1, real p2, real p3, real p4) {
  return fused((real)5, p0, fused((real)-10, p1, fused((real)10, p2, fused((real)-5, p3, p4))));
}

INLINE real adiabatic_temperature(real T1, real T2) { return fused((real)4, T1, -T2) / 3; }

INLINE void wall(real *p, real *T, long i, long n, bool adiabatic) {
  p[i] = wall_pressure(p[i + n], p[i + 2 * n]);
  p[i - n] = ghost_pressure(p[i], p[i + n], p[i + 2 * n], p[i + 3 * n], p[i + 4 * n]);
  if (adiabatic) T[i] = adiabatic_temperature(T[i + n], T[i + 2 * n]);
}

#define T_FIELD (FIELDS - 1)

#if ON_GPU
// A thread marches `chunk` nodes along z with its column in registers; the next plane is asked
// for one node ahead of its use. Neighbours along x and y come from the first-level cache.
KERNEL __launch_bounds__(BLOCK_THREADS, LEAST_BLOCKS)
update(const real *__restrict__ old, real *__restrict__ fresh, const Physics k,
       const real *__restrict__ step, const real *__restrict__ reference_p, long first, long nx,
       long ny, long nz, long sy, long sz, long fs, long rows, long chunk) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x;
  const int y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= nx || y >= ny) return;
  const real dt = LOCAL_STEP ? (real)0 : *step;
  const real reference = RESCALE ? *reference_p : (real)0;
  const int z0 = blockIdx.z * (int)chunk, z1 = smaller(z0 + (int)chunk, (int)nz);
  const int s = (int)sy;
  const long i = first + x + y * sy + z0 * sz;
  const real *p = old + i, *u = p + fs, *v = u + fs, *T = old + i + T_FIELD * fs;
  real *pn = fresh + i, *un = pn + fs, *vn = un + fs, *Tn = pn + T_FIELD * fs;
  real pC = p[0], uC = u[0], vC = v[0], TC = T[0];
#if THREE
  const real *w = v + fs;
  real *wn = vn + fs;
  real wC = w[0];
  real pBB = p[-2 * sz], pB = p[-sz], pF = p[sz];
  real uB = u[-sz], vB = v[-sz], wB = w[-sz], TB = T[-sz];
  real uF = u[sz], vF = v[sz], wF = w[sz], TF = T[sz];
#endif
  for (int z = z0; z < z1; ++z) {
#if THREE
    const real pFF = p[2 * sz], uFF = u[2 * sz], vFF = v[2 * sz], wFF = w[2 * sz];
    const real TFF = T[2 * sz];
    const Star w_star = {wC, w[-1], w[1], w[-s], w[s], wB, wF};
#else
    const real pBB = 0, pB = 0, pF = 0, pFF = 0, uB = 0, uF = 0, vB = 0, vF = 0, TB = 0, TF = 0;
    const Star w_star = {0, 0, 0, 0, 0, 0, 0};
#endif
    const Star p_star = {pC, p[-1], p[1], p[-s], p[s], pB, pF};
    const Tips tips = {p[-2], p[2], p[-2 * s], p[2 * s], pBB, pFF};
    const Star u_star = {uC, u[-1], u[1], u[-s], u[s], uB, uF};
    const Star v_star = {vC, v[-1], v[1], v[-s], v[s], vB, vF};
    const Star T_star = {TC, T[-1], T[1], T[-s], T[s], TB, TF};
    const Node next = advance(k, p_star, tips, u_star, v_star, w_star, T_star, dt, reference);
    *pn = next.p;
    *un = next.u;
    *vn = next.v;
    *Tn = next.T;
#if THREE
    *wn = next.w;
    pBB = pB, pB = pC, pC = pF, pF = pFF;
    uB = uC, uC = uF, uF = uFF, vB = vC, vC = vF, vF = vFF;
    wB = wC, wC = wF, wF = wFF, TB = TC, TC = TF, TF = TFF;
    p += sz, u += sz, v += sz, w += sz, T += sz;
    pn += sz, un += sz, vn += sz, wn += sz, Tn += sz;
#endif
  }
}

#if THREE && __CUDA_ARCH__ >= 900
// The same through shared memory: the copy engine brings the rows of a block's tile, ghosts
// included, AHEAD planes before their use, so that enough bytes are under way whatever registers
// leave of occupancy. `first`, the strides and the field distance are multiples of 16 bytes.
//
// One block a multiprocessor goes through its share of columns (a tile times `chunk` planes) and
// keeps in step with the others: rows at the edges of tiles are read by two or three blocks, and
// come from the second-level cache only while these are at nearly the same plane. `progress` counts
// the blocks that have reached each plane; who is DRIFT planes ahead of the last one waits, but never
// for long, so that nothing depends on which blocks run side by side. `other` is the next launch's.
//
// Where `cuts` says so, the ghosts of neighbouring GPUs are filled from here as well, and ghosts that
// come from there are waited for: see exchange/direct.py. Not along x: there they lie a row apart.
//
// A row's last sector of memory costs much where it is written in part. So the update may also store
// `fill_low` values before each row and `fill_high` behind it, which complete its sectors. They are
// values of walls and ghosts as they were, which are constant or come right afterwards, or padding.
#define EDGE (16 / (int)sizeof(real))
#define WIDTH (TILE_X + 2 * EDGE)
#define P_ROWS (TILE_Y + 4)
#define Q_ROWS (TILE_Y + 2)
#define P_PLANES (3 + AHEAD)
#define Q_PLANES (2 + AHEAD)
#define P_SIZE (P_ROWS * WIDTH)
#define Q_SIZE (Q_ROWS * WIDTH)
#define WARPS (TILE_X * TILE_Y / 32)
#define ROWS_A_WARP ((P_ROWS + 4 * Q_ROWS + WARPS - 1) / WARPS)

// A cut behind which the ghosts of another GPU are filled from here; base is 0 where there is none.
struct Cut {
  long base, plane;    // address there of this box's first node, distance of planes there
  long mine, theirs;   // flags: ghosts have come from there, and have gone there
  long columns;        // columns of this box at the cut
};
struct Cuts {
  Cut y_low, y_high, z_low, z_high;
};

// Stores a node beyond a cut: all fields of the outermost layer, p of the second.
INLINE void cross(const Cut &cut, const Node &next, long place, long z, long fs, int layer) {
  real *there = (real *)cut.base + place + z * cut.plane;
  there[0] = next.p;
  if (layer) return;
  there[fs] = next.u;
  there[2 * fs] = next.v;
  there[3 * fs] = next.w;
  there[4 * fs] = next.T;
}

// Notes that a column at a cut is done; the last one tells the neighbour.
INLINE void crossed(const Cut &cut, long *arrivals, long epoch) {
  __threadfence_system();
  if (atomicAdd((unsigned long long *)arrivals, 1ULL) + 1 != cut.columns) return;
  *arrivals = 0;
  __threadfence_system();
  flag_raise((long *)cut.theirs, epoch + 1);
}

KERNEL __launch_bounds__(TILE_X *TILE_Y, LEAST_BLOCKS)
update_tiles(const real *__restrict__ old, real *__restrict__ fresh, const Physics k,
             const real *__restrict__ step, const real *__restrict__ reference_p, long first,
             long nx, long ny, long nz, long sy, long sz, long fs, long rows, long chunk,
             long fill_low, long fill_high, long *progress, long *other, long counters,
             const Cuts cuts, long *epochs, long *arrivals) {
  DYNAMIC_SHARED(real, tiles);
  SHARED(Gate, gates, AHEAD);
  real *const p_tiles = tiles, *const q_tiles = tiles + P_PLANES * P_SIZE;
  const int tx = threadIdx.x, ty = threadIdx.y, thread = tx + ty * TILE_X;
  const real dt = LOCAL_STEP ? (real)0 : *step;
  const real reference = RESCALE ? *reference_p : (real)0;
  const int tiles_x = ((int)nx + TILE_X - 1) / TILE_X, tiles_y = ((int)ny + TILE_Y - 1) / TILE_Y;
  const int marches = ((int)nz + (int)chunk - 1) / (int)chunk;
  const int columns = tiles_x * tiles_y * marches;
  for (long i = thread + blockIdx.x * (long)(TILE_X * TILE_Y); i < counters;
       i += gridDim.x * (long)(TILE_X * TILE_Y))
    other[i] = 0;
  if (thread == 0)
    for (int a = 0; a < AHEAD; ++a) gate_open(gates + a);
  gates_ready();

  // A few lanes of each warp ask for one row each, the same row of every plane.
  const int lane = thread % 32, request = thread / 32 * ROWS_A_WARP + lane;
  const bool of_p = request < P_ROWS;
  const int field = of_p ? 0 : 1 + (request - P_ROWS) / Q_ROWS;
  const int row = of_p ? request - 2 : (request - P_ROWS) % Q_ROWS - 1;
  real *const ring = of_p ? p_tiles + (row + 2) * WIDTH
                          : q_tiles + (field - 1) * Q_SIZE + (row + 1) * WIDTH;
  const int ring_step = of_p ? P_SIZE : 4 * Q_SIZE;
  const int ring_end = of_p ? P_PLANES * P_SIZE : Q_PLANES * 4 * Q_SIZE;
  const int p_at = (ty + 2) * WIDTH + tx + EDGE, q_at = (ty + 1) * WIDTH + tx + EDGE;
  const long own = tx + ty * sy;
  int gate = 0;
  unsigned parity = 0;
  const long epoch = epochs ? *epochs : 0;

  for (int column = blockIdx.x; column < columns; column += gridDim.x) {
    const int tile = column % (tiles_x * tiles_y);
    const int x0 = tile % tiles_x * TILE_X, y0 = tile / tiles_x * TILE_Y;
    const bool active = x0 + tx < nx && y0 + ty < ny;
    const int z0 = column / (tiles_x * tiles_y) * (int)chunk;
    const int z1 = smaller(z0 + (int)chunk, (int)nz);
    const real *corner = old + first + x0 + y0 * sy + z0 * sz;
    real *out = fresh + first + x0 + y0 * sy + z0 * sz + own;
    const int together = smaller((int)gridDim.x, columns - (column - (int)blockIdx.x));
    long *const line = progress + column / (int)gridDim.x * chunk;
    long seen = 0;

    const bool y_low = cuts.y_low.base && y0 < 2, y_high = cuts.y_high.base && y0 + TILE_Y > ny - 2;
    const bool z_low = cuts.z_low.base && z0 < 2, z_high = cuts.z_high.base && z1 > nz - 2;
    const bool at_cut = y_low || y_high || z_low || z_high;
    if (at_cut) {
      // Ghosts of the step before, which the copy engine is to see as well.
      if (thread == 0) {
        if (y_low) flag_wait((long *)cuts.y_low.mine, epoch);
        if (y_high) flag_wait((long *)cuts.y_high.mine, epoch);
        if (z_low) flag_wait((long *)cuts.z_low.mine, epoch);
        if (z_high) flag_wait((long *)cuts.z_high.mine, epoch);
      }
      BARRIER();
      asm volatile("fence.proxy.async;" ::: "memory");
    }

    // Where this thread also stores a value that completes a sector.
    const int from_x = (int)nx - 1 - x0 - tx;
    const int aside = x0 + tx < fill_low ? -(int)fill_low : from_x < fill_high ? (int)fill_high : 0;

    const int below = (int)ny - y0;
    const bool asks = lane < ROWS_A_WARP && request < P_ROWS + 4 * Q_ROWS &&
                      row < below + (of_p ? 2 : 1);
    const int width = smaller(WIDTH, (int)nx - x0 + EDGE + 2);
    const unsigned bytes = (width + EDGE - 1) / EDGE * 16;
    const int p_rows = smaller(P_ROWS, below + 4), q_rows = smaller(Q_ROWS, below + 2);
    const unsigned plane_bytes = bytes * (p_rows + 4 * q_rows);
    const real *from = corner - EDGE + row * sy + field * fs;
    int fill = 0;
    auto fetch = [&](Gate *gate) {
      copy_row(ring + fill, from, bytes, gate);
      from += sz;
      fill = fill + ring_step == ring_end ? 0 : fill + ring_step;
    };
    BARRIER();
    // The first plane comes with the second of p, and with the first behind it of the others.
    for (int a = 0; a < AHEAD && z0 + a < z1; ++a) {
      const int at = (gate + a) % AHEAD;
      if (thread == 0)
        gate_expect(gates + at, plane_bytes + (a ? 0 : bytes * (2 * p_rows + 4 * q_rows)));
    }
    if (asks) {
      fetch(gates + gate);
      if (of_p) fetch(gates + gate);
      for (int a = 0; a < AHEAD && z0 + a < z1; ++a) fetch(gates + (gate + a) % AHEAD);
    }
    const real *behind = corner + own;
    real pBB = 0, pB = 0, uB = 0, vB = 0, wB = 0, TB = 0;
    if (active) {
      pBB = __ldcg(behind - 2 * sz), pB = __ldcg(behind - sz), uB = __ldcg(behind + fs - sz);
      vB = __ldcg(behind + 2 * fs - sz), wB = __ldcg(behind + 3 * fs - sz);
      TB = __ldcg(behind + 4 * fs - sz);
    }
    real pC = 0, pF = 0, uC = 0, vC = 0, wC = 0, TC = 0;
    int p_slot = 0, q_slot = 0;
    for (int z = z0; z < z1; ++z) {
      gate_wait(gates + gate, parity);
      if (thread == 0 && z - z0 >= DRIFT)
        for (int poll = 0; seen < together && poll < MOST_POLLS; ++poll)
          seen = glance(line + (z - z0) - DRIFT);
      BARRIER();
      if (thread == 0) {
        atomic_add(line + (z - z0), 1L);
        seen = z + 1 - z0 >= DRIFT ? glance(line + (z + 1 - z0) - DRIFT) : 0;
      }
      if (z + AHEAD < z1) {
        if (thread == 0) gate_expect(gates + gate, plane_bytes);
        if (asks) fetch(gates + gate);
      }
      if (++gate == AHEAD) gate = 0, parity ^= 1;
      const int p_after = p_slot + 2 >= P_PLANES ? p_slot + 2 - P_PLANES : p_slot + 2;
      const int q_after = q_slot + 1 == Q_PLANES ? 0 : q_slot + 1;
      const real *p = p_tiles + p_slot * P_SIZE + p_at, *u = q_tiles + 4 * q_slot * Q_SIZE + q_at;
      const real *v = u + Q_SIZE, *w = v + Q_SIZE, *T = w + Q_SIZE;
      const real *above = q_tiles + 4 * q_after * Q_SIZE + q_at;
      if (z == z0) {
        const int p_one = p_slot + 1 == P_PLANES ? 0 : p_slot + 1;
        pC = p[0], pF = p_tiles[p_one * P_SIZE + p_at];
        uC = u[0], vC = v[0], wC = w[0], TC = T[0];
      }
      const real pFF = p_tiles[p_after * P_SIZE + p_at];
      const real uF = above[0], vF = above[Q_SIZE], wF = above[2 * Q_SIZE], TF = above[3 * Q_SIZE];
      const Star p_star = {pC, p[-1], p[1], p[-WIDTH], p[WIDTH], pB, pF};
      const Tips tips = {p[-2], p[2], p[-2 * WIDTH], p[2 * WIDTH], pBB, pFF};
      const Star u_star = {uC, u[-1], u[1], u[-WIDTH], u[WIDTH], uB, uF};
      const Star v_star = {vC, v[-1], v[1], v[-WIDTH], v[WIDTH], vB, vF};
      const Star w_star = {wC, w[-1], w[1], w[-WIDTH], w[WIDTH], wB, wF};
      const Star T_star = {TC, T[-1], T[1], T[-WIDTH], T[WIDTH], TB, TF};
      const Node next = advance(k, p_star, tips, u_star, v_star, w_star, T_star, dt, reference);
      if (active) {
        *out = next.p;
        out[fs] = next.u;
        out[2 * fs] = next.v;
        out[3 * fs] = next.w;
        out[4 * fs] = next.T;
        if (aside) {
          out[aside] = p[aside];
          out[fs + aside] = u[aside];
          out[2 * fs + aside] = v[aside];
          out[3 * fs + aside] = w[aside];
          out[4 * fs + aside] = T[aside];
        }
        if (at_cut) {
          const long place = x0 + tx + (y0 + ty) * sy;
          const int from_y = (int)ny - 1 - y0 - ty, from_z = (int)nz - 1 - z;
          if (z_low && z < 2) cross(cuts.z_low, next, place, z, fs, z);
          if (z_high && from_z < 2) cross(cuts.z_high, next, place, z, fs, from_z);
          if (y_low && ty < 2) cross(cuts.y_low, next, place, z, fs, ty);
          if (y_high && from_y < 2) cross(cuts.y_high, next, place, z, fs, from_y);
        }
      }
      out += sz;
      pBB = pB, pB = pC, pC = pF, pF = pFF;
      uB = uC, uC = uF, vB = vC, vC = vF, wB = wC, wC = wF, TB = TC, TC = TF;
      p_slot = p_slot + 1 == P_PLANES ? 0 : p_slot + 1;
      q_slot = q_after;
    }
    if (epochs) {
      BARRIER();
      if (thread == 0) {
        if (y_low) crossed(cuts.y_low, arrivals + 2, epoch);
        if (y_high) crossed(cuts.y_high, arrivals + 3, epoch);
        if (z_low) crossed(cuts.z_low, arrivals + 4, epoch);
        if (z_high) crossed(cuts.z_high, arrivals + 5, epoch);
        if (atomicAdd((unsigned long long *)arrivals + 6, 1ULL) + 1 == columns) {
          arrivals[6] = 0;
          *epochs = epoch + 1;
        }
      }
    }
  }
}
#endif

#else
// The rows that the stencil of a row reads.
struct Rows {
  const real *c, *S, *N, *B, *F;
};
struct Ends {
  const real *SS, *NN, *BB, *FF;
};

#if THREE
#define STAR(f) {f.c[x], f.c[x - 1], f.c[x + 1], f.S[x], f.N[x], f.B[x], f.F[x]}
#define BEHIND(q) q.BB[x], q.FF[x]
#else
#define STAR(f) {f.c[x], f.c[x - 1], f.c[x + 1], f.S[x], f.N[x], 0, 0}
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
    const Tips tips = {p.c[x - 2], p.c[x + 2], q.SS[x], q.NN[x], BEHIND(q)};
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
KERNEL update(const real *__restrict__ old, real *__restrict__ fresh, const Physics k,
              const real *__restrict__ step, const real *__restrict__ reference_p, long first,
              long nx, long ny, long nz, long sy, long sz, long fs, long rows, long chunk) {
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
          advance_row(k, rows_of(p, sy, sz), q, rows_of(p + fs, sy, sz),
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
// adiabatic[k]: whether wall k of x_low, x_high, y_low, y_high, z_low, z_high is.
#define P_RING 5
#define Q_RING 4
#define P_WALLS P_RING
#define T_WALLS Q_RING

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

KERNEL update_twice(const real *__restrict__ old, real *__restrict__ fresh, const Physics k,
                    const real *__restrict__ step, long first, long nx, long ny, long nz, long sy,
                    long sz, long fs, long rows, const long *adiabatic, real *scratch,
                    long scratch_each) {
  const real dt = LOCAL_STEP ? (real)0 : *step;
  const long tiles = (ny + rows - 1) / rows;
  PRAGMA(omp parallel for schedule(static))
  for (long t = 0; t < tiles; ++t) {
    const long y0 = t * rows, y1 = smaller(ny, y0 + rows);
    const long begin = larger(0L, y0 - 2), end = smaller(ny, y1 + 2);
    const long plane = (rows + 8) * sy;
    const Scratch s = {scratch + omp_get_thread_num() * scratch_each, sy, plane,
                       (4 - y0) * sy + 64 / (long)sizeof(real)};
    const real *start = old + first;

    auto first_step = [&](long z) {
      for (long y = begin; y < end; ++y) {
        const real *p = start + y * sy + z * sz;
        const Ends q = {p - 2 * sy, p + 2 * sy, p - 2 * sz, p + 2 * sz};
        real *pn = s.p(z, y), *fields[4] = {s.q(0, z, y), s.q(1, z, y), s.q(2, z, y), s.q(3, z, y)};
        advance_row(k, rows_of(p, sy, sz), q, rows_of(p + fs, sy, sz), rows_of(p + 2 * fs, sy, sz),
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
        advance_row(k, p, q, fields[0], fields[1], fields[2], fields[3], out, out + fs,
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
#endif

// sides[k] = {first node, inward stride, stride a, stride b, nodes a, nodes b, adiabatic}
#define SIDE_WORDS 7

#if ON_GPU
// Along x the nodes of a wall lie far apart and those next to one side by side: there four lanes a
// node read the four values that it needs and write its results.
INLINE void wall_by_four(const long *side, real *state, long fs, long a, long b) {
  const int lane = threadIdx.x % 4;
  const long n = side[1];
  const bool here = a < side[4] && b < side[5];
  real *p = state + side[0] + a * side[2] + b * side[3], *T = p + T_FIELD * fs;
  const real own_p = here ? p[(lane + 1) * n] : (real)0;
  const real own_T = here && lane < 2 ? T[(lane + 1) * n] : (real)0;
  const real p1 = of_four(own_p, 0), p2 = of_four(own_p, 1), p3 = of_four(own_p, 2);
  const real p4 = of_four(own_p, 3), T1 = of_four(own_T, 0), T2 = of_four(own_T, 1);
  if (!here) return;
  const real wall_p = wall_pressure(p1, p2);
  if (lane == 0) p[0] = wall_p;
  if (lane == 1) p[-n] = ghost_pressure(wall_p, p1, p2, p3, p4);
  if (lane == 2 && side[6]) T[0] = adiabatic_temperature(T1, T2);
}
#endif

KERNEL walls(real *state, const long *sides, long count, long fs) {
#if ON_GPU
  for (long k = blockIdx.z; k < count; k += gridDim.z) {
    const long *side = sides + k * SIDE_WORDS;
    const long b = blockIdx.y * (long)blockDim.y + threadIdx.y;
    const long a = blockIdx.x * (long)blockDim.x + threadIdx.x;
    if (side[1] == 1 || side[1] == -1)
      wall_by_four(side, state, fs, a / 4, b);
    else if (a < side[4] && b < side[5])
      wall(state, state + T_FIELD * fs, side[0] + a * side[2] + b * side[3], side[1], side[6]);
  }
#else
  for (long k = 0; k < count; ++k) {
    const long *side = sides + k * SIDE_WORDS;
    const long nb = side[5], na = side[4];
    PRAGMA(omp parallel for schedule(static) if (na * nb > 8192))
    for (long b = 0; b < nb; ++b)
      PRAGMA(omp simd) for (long a = 0; a < na; ++a)
        wall(state, state + T_FIELD * fs, side[0] + a * side[2] + b * side[3], side[1], side[6]);
  }
#endif
}

// parts[k] = largest rate() of the nodes of part k, in 1/s.
KERNEL fastest_wave(const real *state, const Physics k, long first, long nx, long ny, long nz,
                    long sy, long sz, long fs, double *parts, long n) {
  PARTS(j, n) {
    real most = 0;
    CELLS_OF_PART(j, n, x, y, z, nx, ny, nz) {
      const long i = first + x + y * sy + z * sz;
      const real u = state[i + fs], v = state[i + 2 * fs];
      const real w = THREE ? state[i + 3 * fs] : (real)0;
      const real four = 4 * speed2(k, u, v, w);
      most = larger(rate(k, wave(u, four), wave(v, four), THREE ? wave(w, four) : (real)0), most);
    }
    parts[j] = most;
  }
}

// The pressure at the centre node, kept for the rescaling of the next step.
KERNEL keep_reference(const real *state, real *reference, long centre) {
  FOR_EACH(i, 1) reference[i] = state[centre];
}
