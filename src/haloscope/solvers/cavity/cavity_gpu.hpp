// The update on GPUs: columns in registers, and tiles that the copy engine brings.

// A thread marches `chunk` nodes along z with its column in registers; the next plane is asked
// for one node ahead of its use. Neighbours along x and y come from the first-level cache.
KERNEL_BOUNDS(__launch_bounds__(BLOCK_THREADS, LEAST_BLOCKS), update, IN_RESTRICT(real, old),
              OUT_RESTRICT(real, fresh), VALUE(Physics, physics), IN_RESTRICT(real, step),
              IN_RESTRICT(real, reference_p), LONG(first), LONG(nx), LONG(ny), LONG(nz), LONG(sy),
              LONG(sz), LONG(fs), LONG(rows), LONG(chunk)) {
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
    const Star w_star = star_of(wC, w[-1], w[1], w[-s], w[s], wB, wF);
#else
    const real pBB = 0, pB = 0, pF = 0, pFF = 0, uB = 0, uF = 0, vB = 0, vF = 0, TB = 0, TF = 0;
    const Star w_star = {0, 0, 0, 0, 0, 0, 0};
#endif
    const Star p_star = star_of(pC, p[-1], p[1], p[-s], p[s], pB, pF);
    const Tips tips = tips_of(p[-2], p[2], p[-2 * s], p[2 * s], pBB, pFF);
    const Star u_star = star_of(uC, u[-1], u[1], u[-s], u[s], uB, uF);
    const Star v_star = star_of(vC, v[-1], v[1], v[-s], v[s], vB, vF);
    const Star T_star = star_of(TC, T[-1], T[1], T[-s], T[s], TB, TF);
    const Node next = advance(physics, p_star, tips, u_star, v_star, w_star, T_star, dt, reference);
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
// One block a multiprocessor goes through its share of columns: the first `whole` tiles, as many as
// all blocks take in some turns, through all planes, the others in marches of `chunk` planes or one
// fewer. It keeps in step with the others: rows at the edges of tiles are read by two or three blocks,
// and come from the second-level cache only while these are at nearly the same plane. `progress` counts
// the blocks that have reached each plane; who is DRIFT planes ahead of the last one waits, but never
// for long, so that nothing depends on which blocks run side by side. `other` is the next launch's.
//
// A thread has NODES_A_THREAD neighbouring nodes of a row, whose values come and go together: fewer
// instructions, and so less of the power that a GPU may draw.
//
// Where `cuts` says so, the ghosts of neighbouring GPUs are filled from here as well, and ghosts that
// come from there are waited for: see mesh/halo.py. Not along x: there they lie a row apart. Code for
// cuts along y and z is there where CUT_Y and CUT_Z are 1. Threads have 128 registers and need about as
// many; what does not find one is fetched from local memory at each plane, past a first-level cache that
// is given to tiles, and has taken a fifth of a step: bench/cavity_registers.py counts it.
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
#define TEAM (TILE_X / NODES_A_THREAD * TILE_Y)
#define WARPS (TEAM / 32)
#define ROWS_A_WARP ((P_ROWS + 4 * Q_ROWS + WARPS - 1) / WARPS)

// Values that lie side by side, brought or stored by one instruction.
template <int COUNT>
struct alignas(COUNT * sizeof(real)) Several {
  real at[COUNT];
};
typedef Several<NODES_A_THREAD> Nodes;

template <int COUNT>
INLINE void take(real *to, const real *from) {
  const Several<COUNT> nodes = *(const Several<COUNT> *)from;
#pragma unroll
  for (int i = 0; i < COUNT; ++i) to[i] = nodes.at[i];
}

// A thread's nodes of a row with `TIPS` (1 or 2) more at each end.
template <int TIPS>
struct Row {
  real at[NODES_A_THREAD + 2 * TIPS];
};

template <int TIPS>
INLINE Row<TIPS> row_at(const real *first) {
  Row<TIPS> row;
  take<NODES_A_THREAD>(row.at + TIPS, first);
  if (NODES_A_THREAD > 1 && TIPS == 2) {
    take<2>(row.at, first - 2);
    take<2>(row.at + 2 + NODES_A_THREAD, first + NODES_A_THREAD);
  } else
#pragma unroll
    for (int i = 1; i <= TIPS; ++i) {
      row.at[TIPS - i] = first[-i];
      row.at[TIPS + NODES_A_THREAD - 1 + i] = first[NODES_A_THREAD - 1 + i];
    }
  return row;
}

INLINE Nodes nodes_at(const real *first) { return *(const Nodes *)first; }

INLINE Star star(const Row<1> &row, int r, const Nodes &S, const Nodes &N, const Nodes &B,
                 const Nodes &F) {
  return star_of(row.at[r + 1], row.at[r], row.at[r + 2], S.at[r], N.at[r], B.at[r], F.at[r]);
}

INLINE void store(real *to, const Node &node, long fs) {
  to[0] = node.p;
  to[fs] = node.u;
  to[2 * fs] = node.v;
  to[3 * fs] = node.w;
  to[4 * fs] = node.T;
}

// A cut behind which the ghosts of another GPU are filled from here; base is 0 where there is none.
struct Cut {
  long base, plane;    // address there of this box's first node, distance of planes there
  long mine, theirs;   // flags: ghosts have come from there, and have gone there
  long columns;        // columns of this box at the cut
};
struct Cuts {
  Cut y_low, y_high, z_low, z_high;
};

// A thread's nodes of a row, or as many of them as the box has.
INLINE void store_nodes(real *to, const Nodes &nodes, int count) {
  if (count == NODES_A_THREAD)
    *(Nodes *)to = nodes;
  else
#pragma unroll
    for (int r = 0; r < NODES_A_THREAD; ++r)
      if (r < count) to[r] = nodes.at[r];
}

struct NodesOfFields {
  Nodes p, u, v, w, T;
};

INLINE void store_nodes(real *to, const NodesOfFields &nodes, int count, long fs) {
  store_nodes(to, nodes.p, count);
  store_nodes(to + fs, nodes.u, count);
  store_nodes(to + 2 * fs, nodes.v, count);
  store_nodes(to + 3 * fs, nodes.w, count);
  store_nodes(to + 4 * fs, nodes.T, count);
}

// Stores nodes beyond a cut: all fields of the outermost layer, p of the second.
INLINE void cross(const Cut &cut, const NodesOfFields &next, int count, long place, long z, long fs,
                  int layer) {
  real *const there = (real *)cut.base + place + z * cut.plane;
  if (layer == 0)
    store_nodes(there, next, count, fs);
  else
    store_nodes(there, next.p, count);
}

// Notes that a column at a cut is done; the last one tells the neighbour.
INLINE void crossed(const Cut &cut, long *arrivals, long epoch) {
  __threadfence_system();
  if (atomicAdd((unsigned long long *)arrivals, 1ULL) + 1 != cut.columns) return;
  *arrivals = 0;
  __threadfence_system();
  flag_raise((long *)cut.theirs, epoch + 1);
}

// What the first thread alone needs from plane to plane, which others have no registers for: counters of
// its column's planes, blocks that are at them together, of these how many were seen at the plane that is
// waited for, and bytes of a plane's rows.
struct Pace {
  long *line;
  int together, seen;
  unsigned plane_bytes;
};

KERNEL_BOUNDS(__launch_bounds__(TEAM, LEAST_BLOCKS), update_tiles, IN_RESTRICT(real, old),
              OUT_RESTRICT(real, fresh), VALUE(Physics, physics), IN_RESTRICT(real, step),
              IN_RESTRICT(real, reference_p), LONG(first), LONG(nx), LONG(ny), LONG(nz), LONG(sy),
              LONG(sz), LONG(fs), LONG(rows), LONG(chunk), LONG(fill_low), LONG(fill_high),
              LONG(whole), INOUT(long, progress), OUT(long, other), LONG(counters),
              VALUE(Cuts, cuts), INOUT(long, epochs), INOUT(long, arrivals)) {
  DYNAMIC_SHARED(real, tiles);
  SHARED(Gate, gates, AHEAD);
  SHARED(Pace, pace, 1);
  real *const p_tiles = tiles, *const q_tiles = tiles + P_PLANES * P_SIZE;
  const int tx = threadIdx.x * NODES_A_THREAD, ty = threadIdx.y;
  const int thread = threadIdx.x + ty * (TILE_X / NODES_A_THREAD);
  const real dt = LOCAL_STEP ? (real)0 : *step;
  const real reference = RESCALE ? *reference_p : (real)0;
  const int tiles_x = ((int)nx + TILE_X - 1) / TILE_X, tiles_y = ((int)ny + TILE_Y - 1) / TILE_Y;
  const int marches = ((int)nz + (int)chunk - 1) / (int)chunk;
  const int first_tiles = (int)whole, other_tiles = tiles_x * tiles_y - first_tiles;
  const int columns = first_tiles + other_tiles * marches;
  for (long i = thread + blockIdx.x * (long)TEAM; i < counters; i += gridDim.x * (long)TEAM)
    other[i] = 0;
  if (thread == 0)
    for (int a = 0; a < AHEAD; ++a) gate_open(gates + a);
  gates_ready();

  // A few lanes of each warp ask for one row each, the same row of every plane.
  const int lane = thread % 32, request = thread / 32 * ROWS_A_WARP + lane;
  const bool of_p = request < P_ROWS;
  const int field = of_p ? 0 : 1 + (request - P_ROWS) / Q_ROWS;
  const int row = of_p ? request - 2 : (request - P_ROWS) % Q_ROWS - 1;
  const int ring = of_p ? (row + 2) * WIDTH
                        : P_PLANES * P_SIZE + (field - 1) * Q_SIZE + (row + 1) * WIDTH;
  const int ring_step = of_p ? P_SIZE : 4 * Q_SIZE;
  const int ring_end = of_p ? P_PLANES * P_SIZE : Q_PLANES * 4 * Q_SIZE;
  const int p_at = (ty + 2) * WIDTH + tx + EDGE, q_at = (ty + 1) * WIDTH + tx + EDGE;
  const long own = tx + ty * sy;
  int gate = 0;
  unsigned parity = 0;

  for (int column = blockIdx.x; column < columns; column += gridDim.x) {
    const bool in_one = column < first_tiles;
    const int behind = column - first_tiles;
    const int tile = in_one ? column : first_tiles + behind % other_tiles;
    const int march = in_one ? 0 : behind / other_tiles, of = in_one ? 1 : marches;
    const int x0 = tile % tiles_x * TILE_X, y0 = tile / tiles_x * TILE_Y;
    const int own_nodes = y0 + ty < ny ? smaller((int)nx - x0 - tx, NODES_A_THREAD) : 0;
    const int z0 = march * (int)nz / of, z1 = (march + 1) * (int)nz / of, planes = z1 - z0;
    const real *corner = old + first + x0 + y0 * sy + z0 * sz;
    real *out = fresh + first + x0 + y0 * sy + z0 * sz + own;
    const int turn = column / (int)gridDim.x, turns_in_one = first_tiles / (int)gridDim.x;

    const bool y_low = CUT_Y && cuts.y_low.base && y0 < 2;
    const bool y_high = CUT_Y && cuts.y_high.base && y0 + TILE_Y > ny - 2;
    const bool z_low = CUT_Z && cuts.z_low.base && z0 < 2;
    const bool z_high = CUT_Z && cuts.z_high.base && z1 > nz - 2;
    const bool at_cut = y_low || y_high || z_low || z_high;
    if (at_cut) {
      // Ghosts of the step before, which the copy engine is to see as well.
      if (thread == 0) {
        const long epoch = glance(epochs);
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
    const bool completes = x0 + tx < fill_low || from_x - NODES_A_THREAD + 1 < fill_high;

    const int below = (int)ny - y0;
    const bool asks = lane < ROWS_A_WARP && request < P_ROWS + 4 * Q_ROWS &&
                      row < below + (of_p ? 2 : 1);
    const int width = smaller(WIDTH, (int)nx - x0 + EDGE + 2);
    const unsigned bytes = (width + EDGE - 1) / EDGE * 16;
    const int p_rows = smaller(P_ROWS, below + 4), q_rows = smaller(Q_ROWS, below + 2);
    if (thread == 0) {
      pace->line = progress + smaller(turn, turns_in_one) * nz +
                   (in_one ? 0 : turn - turns_in_one) * chunk;
      pace->together = smaller((int)gridDim.x, columns - (column - (int)blockIdx.x));
      pace->seen = 0;
      pace->plane_bytes = bytes * (p_rows + 4 * q_rows);
    }
    const real *from = corner - EDGE + row * sy + field * fs;
    int fill = 0;
    auto fetch = [&](Gate *gate) {
      copy_row(tiles + ring + fill, from, bytes, gate);
      from += sz;
      fill = fill + ring_step == ring_end ? 0 : fill + ring_step;
    };
    BARRIER();
    // The first plane comes with the second of p, and with the first behind it of the others.
    for (int a = 0; a < AHEAD && a < planes; ++a) {
      const int at = (gate + a) % AHEAD;
      if (thread == 0)
        gate_expect(gates + at, pace->plane_bytes + (a ? 0 : bytes * (2 * p_rows + 4 * q_rows)));
    }
    if (asks) {
      fetch(gates + gate);
      if (of_p) fetch(gates + gate);
      for (int a = 0; a < AHEAD && a < planes; ++a) fetch(gates + (gate + a) % AHEAD);
    }
    Nodes pBB, pB, uB, vB, wB, TB;
#pragma unroll
    for (int r = 0; r < NODES_A_THREAD; ++r) {
      const real *behind = corner + own + r - sz;
      const bool here = r < own_nodes;
      pBB.at[r] = here ? __ldcg(behind - sz) : (real)0, pB.at[r] = here ? __ldcg(behind) : (real)0;
      uB.at[r] = here ? __ldcg(behind + fs) : (real)0;
      vB.at[r] = here ? __ldcg(behind + 2 * fs) : (real)0;
      wB.at[r] = here ? __ldcg(behind + 3 * fs) : (real)0;
      TB.at[r] = here ? __ldcg(behind + 4 * fs) : (real)0;
    }
    int p_slot = 0, q_slot = 0;
    for (int n = 0; n < planes; ++n) {
      gate_wait(gates + gate, parity);
      if (thread == 0 && n >= DRIFT)
        for (int poll = 0; pace->seen < pace->together && poll < MOST_POLLS; ++poll)
          pace->seen = (int)glance(pace->line + n - DRIFT);
      BARRIER();
      if (thread == 0) {
        atomic_add(pace->line + n, 1L);
        pace->seen = n + 1 >= DRIFT ? (int)glance(pace->line + n + 1 - DRIFT) : 0;
      }
      if (n + AHEAD < planes) {
        if (thread == 0) gate_expect(gates + gate, pace->plane_bytes);
        if (asks) fetch(gates + gate);
      }
      if (++gate == AHEAD) gate = 0, parity ^= 1;
      const int p_one = p_slot + 1 == P_PLANES ? 0 : p_slot + 1;
      const int p_after = p_one + 1 == P_PLANES ? 0 : p_one + 1;
      const int q_after = q_slot + 1 == Q_PLANES ? 0 : q_slot + 1;
      const real *p = p_tiles + p_slot * P_SIZE + p_at;
      const real *u = q_tiles + 4 * q_slot * Q_SIZE + q_at;
      const real *v = u + Q_SIZE, *w = v + Q_SIZE, *T = w + Q_SIZE;
      const real *above = q_tiles + 4 * q_after * Q_SIZE + q_at;
      NodesOfFields next;
      {
        const Row<2> p_row = row_at<2>(p);
        const Row<1> u_row = row_at<1>(u), v_row = row_at<1>(v);
        const Row<1> w_row = row_at<1>(w), T_row = row_at<1>(T);
        const Nodes pS = nodes_at(p - WIDTH), pN = nodes_at(p + WIDTH);
        const Nodes pSS = nodes_at(p - 2 * WIDTH), pNN = nodes_at(p + 2 * WIDTH);
        const Nodes pF = nodes_at(p_tiles + p_one * P_SIZE + p_at);
        const Nodes pFF = nodes_at(p_tiles + p_after * P_SIZE + p_at);
        const Nodes uS = nodes_at(u - WIDTH), uN = nodes_at(u + WIDTH), uF = nodes_at(above);
        const Nodes vS = nodes_at(v - WIDTH), vN = nodes_at(v + WIDTH), vF = nodes_at(above + Q_SIZE);
        const Nodes wS = nodes_at(w - WIDTH), wN = nodes_at(w + WIDTH);
        const Nodes wF = nodes_at(above + 2 * Q_SIZE);
        const Nodes TS = nodes_at(T - WIDTH), TN = nodes_at(T + WIDTH);
        const Nodes TF = nodes_at(above + 3 * Q_SIZE);
#pragma unroll
        for (int r = 0; r < NODES_A_THREAD; ++r) {
          const real *a = p_row.at + 2 + r;
          const Star p_star = star_of(a[0], a[-1], a[1], pS.at[r], pN.at[r], pB.at[r], pF.at[r]);
          const Tips tips = tips_of(a[-2], a[2], pSS.at[r], pNN.at[r], pBB.at[r], pFF.at[r]);
          const Star u_star = star(u_row, r, uS, uN, uB, uF), v_star = star(v_row, r, vS, vN, vB, vF);
          const Star w_star = star(w_row, r, wS, wN, wB, wF), T_star = star(T_row, r, TS, TN, TB, TF);
          const Node one = advance(physics, p_star, tips, u_star, v_star, w_star, T_star, dt, reference);
          next.p.at[r] = one.p, next.u.at[r] = one.u, next.v.at[r] = one.v;
          next.w.at[r] = one.w, next.T.at[r] = one.T;
          pBB.at[r] = pB.at[r], pB.at[r] = p_star.c;
          uB.at[r] = u_star.c, vB.at[r] = v_star.c, wB.at[r] = w_star.c, TB.at[r] = T_star.c;
        }
      }
      store_nodes(out, next, own_nodes, fs);
      if (completes)
#pragma unroll
        for (int r = 0; r < NODES_A_THREAD; ++r) {
          if (r >= own_nodes) break;
          const int x = x0 + tx + r;
          const int aside = x < fill_low ? -(int)fill_low : nx - 1 - x < fill_high ? (int)fill_high : 0;
          if (aside) {
            const int at = r + aside;
            const Node beside = {p[at], u[at], v[at], w[at], T[at]};
            store(out + at, beside, fs);
          }
        }
      if (at_cut && own_nodes > 0) {
        const int z = z0 + n, from_z = (int)nz - 1 - z;
        const int from_low = y0 + ty, from_high = (int)ny - 1 - from_low;
        const long place = x0 + tx + from_low * sy;
        if (z_low && z < 2) cross(cuts.z_low, next, own_nodes, place, z, fs, z);
        if (z_high && from_z < 2) cross(cuts.z_high, next, own_nodes, place, z, fs, from_z);
        if (y_low && from_low < 2) cross(cuts.y_low, next, own_nodes, place, z, fs, from_low);
        if (y_high && from_high < 2) cross(cuts.y_high, next, own_nodes, place, z, fs, from_high);
      }
      out += sz;
      p_slot = p_slot + 1 == P_PLANES ? 0 : p_slot + 1;
      q_slot = q_after;
    }
    if ((CUT_Y || CUT_Z) && epochs) {
      BARRIER();
      if (thread == 0) {
        // The same until this column, too, is counted below.
        const long epoch = glance(epochs);
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
