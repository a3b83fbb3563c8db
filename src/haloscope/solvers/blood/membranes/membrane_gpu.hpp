// Membranes on GPUs: how springs give way, and what computes forces.

// THREADS_A_BLOCK: of a block that computes forces.
CONSTANTS(INT(THREADS_A_BLOCK))

// Springs give way element by element.
KERNEL(relax, IN(double, positions), INOUT(double, first_natural), INOUT(double, second_natural),
       IN(int, elements), IN(double, weights), VALUE(Law, law), IN(int, rows), IN(int, span),
       LONG(capacity), LONG(V), LONG(E), LONG(regular)) {
  FOR_EACH(i, (span[1] - span[0]) * E) {
    const long c = rows[span[0] + i / E], e = i % E;
    const OneCell cell = cell_of(positions, capacity, V, c);
    const auto place = [&](long k) { return at(cell, elements[k * E + e]); };
    const Metric<double> now = metric_now<double>(weights + (e < regular ? 0 : 60), place);
    double *to = (e < V ? first_natural + e : second_natural + (e - V)) + c * V;
    const double values[3] = {now.h11, now.h12, now.h22};
    for (long j = 0; j < 3; j++, to += capacity * V) *to = relaxed(law, *to, values[j]);
  }
}

#if LOOP
#include "membrane_loop_gpu.hpp"
#else
#include "membrane_linear_gpu.hpp"
#endif
