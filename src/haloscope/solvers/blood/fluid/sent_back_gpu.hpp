// The step between two buffers where some walls move or do not lie halfway: what these send back is worked out
// as points fetch what arrives.
//
// A lane that went through the links of its own point would go through all directions, with the other lanes
// beside it mostly idle: of the points that a warp takes few lie at walls, and each there has other links. So
// lanes leave what has arrived at their points for each other, take a link each, and fetch what has been sent
// back. The links of points WARP * n .. are those from starts[n] to starts[n + 1], by direction. Of each,
// `links` has:
//   bits 0 to 4    the lane whose point it goes to
//   bits 5 to 9    its direction, less one
//   bits 10 to 14  the opposite one, less one
//   bit 15         set: far; else near
// and `shares` the coefficients of correct_walls [2][total], the second ones where walls move (WALLS 2). Of a near
// link the other share is what arrives against it; of a far one what left along it, which is in a slot of the
// point. Where there is a link nothing arrives from a neighbour: no lane reads what another one changes.

// WARP: threads that run side by side.
CONSTANTS(INT(WARP))

struct Link {
  int bits;
  real share, other;
};

// The n-th link, where there is one before `end`, but for what has left its point.
INLINE Link link_of(const unsigned short *links, const real *shares, int n, int end) {
  return {n < end ? links[n] : 0, n < end ? shares[n] : (real)0, 0};
}

// What has left the point of a far link along its direction; p is the point of this lane.
INLINE real left_along(const Stored *from, long stride, int p, int bits) {
  const Stored *const own = from + __shfl_sync(~0u, p, bits & 31);
  return bits >> 15 ? number(own[((bits >> 10 & 31) + 1) * stride]) : (real)0;
}

// `arrived` has what has arrived at the points of the warp [18][WARP].
INLINE void send_back(const Link &link, real pushed, real *arrived) {
  real *const of_point = arrived + (link.bits & 31), *const sent = of_point + (link.bits >> 5 & 31) * WARP;
  const real other = link.bits >> 15 ? link.other : of_point[(link.bits >> 10 & 31) * WARP];
  *sent = as_kept(fused(link.share, *sent, fused(1 - link.share, other, pushed)));
}

KERNEL_BOUNDS(__launch_bounds__(THREADS_A_BLOCK, BLOCKS_A_PROCESSOR), advance_across,
              IN_CHANGING(Stored, old), OUT_CHANGING(Stored, fresh), LONG(stride),
              VALUE(Physics, physics), IN_CHANGING(real, body), IN_RESTRICT(int, points), LONG(count),
              IN_RESTRICT(int, kinds), IN_RESTRICT(int, distances), LONG(pitch), LONG(mask_bits),
              SURROUNDINGS, LONG(backward), IN_RESTRICT(int, starts),
              IN_RESTRICT(unsigned short, links), IN_RESTRICT(real, shares), LONG(total)) {
  SHARED(real, left, THREADS_A_BLOCK * (Q - 1));
  real *const arrived = left + threadIdx.x / WARP * (WARP * (Q - 1));
  const int lane = threadIdx.x % WARP;
  let_step_after_begin();
  const Surroundings around = {force, velocity, inside};
  FOR_EACH_FROM(q, (count + WARP - 1) / WARP * WARP, backward) {
    const int p = q >= count ? 0 : points ? points[q] : (int)q;
    // Asked for first: all else waits for it.
    const int kind = kinds[p];
    int begin = starts[q / WARP];
    const int end = starts[q / WARP + 1];
    Link link = link_of(links, shares, begin + lane, end);
    Link next = link_of(links, shares, begin + WARP + lane, end);
    const bool chosen = q < count && !left_out(kind);
    bool bounded = false;
    real h[Q];
    Force g;
    if (chosen) {
      int d[ROW];
      bounded = !find_neighbours(kind, distances, pitch, mask_bits, stride, d);
      wait_for_step_before();
      g = force_everywhere(body);
      arrive(old, stride, p, d, h);
    } else {
      wait_for_step_before();
    }
    if (begin < end) {
      link.other = left_along(old, stride, p, link.bits);
      if (begin + WARP < end) next.other = left_along(old, stride, p, next.bits);
      if (bounded) UNROLLED for (int i = 1; i < Q; ++i) arrived[(i - 1) * WARP + lane] = h[i];
      __syncwarp();
#pragma unroll 1  // what more of them take of registers, others lack
      for (; begin < end; begin += WARP) {
        const int n = begin + lane;
        if (n < end) send_back(link, WALLS == 2 ? shares[total + n] : (real)0, arrived);
        link = next;
        if (begin + 2 * WARP < end) {
          next = link_of(links, shares, n + 2 * WARP, end);
          next.other = left_along(old, stride, p, next.bits);
        }
      }
      __syncwarp();
      if (bounded) UNROLLED for (int i = 1; i < Q; ++i) h[i] = arrived[(i - 1) * WARP + lane];
    }
    if (chosen) {
      collide_at(physics, around, stride, p, g, h);
      leave(fresh, stride, p, h);
    }
  }
}
