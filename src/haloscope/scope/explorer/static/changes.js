// What differs most between two measurements: the metrics whose own time changed most, and where.

import { DIFFERENCE } from "./model.js";

const LEAST = 1e-3; // of the time of the first, below which a change is not told

/**
 * Changes of the time, second less first, the greatest first: {metric, node, first, second}.
 * A metric stands for itself without those below it, so that nothing is told twice.
 */
export function changes(model, most) {
  const root = model.metricByName.get("time");
  const whole = Math.abs(model.total("0", root, false));
  return model.metrics
    .map((_, metric) => metric)
    .filter((metric) => model.rootMetric(metric) === root)
    .map((metric) => ({ metric, first: model.total("0", metric, true), second: model.total("1", metric, true) }))
    .filter(({ first, second }) => Math.abs(second - first) > LEAST * whole)
    .sort((a, b) => Math.abs(b.second - b.first) - Math.abs(a.second - a.first))
    .slice(0, most)
    .map((change) => ({ ...change, node: whereMost(model, change) }));
}

/** The call path in which a metric changed most in the direction in which it changed altogether. */
function whereMost(model, { metric, first, second }) {
  const sign = Math.sign(second - first);
  const own = model.nodeOwn(DIFFERENCE, metric, true);
  let best = 0;
  own.forEach((value, node) => {
    if (sign * value > sign * own[best]) best = node;
  });
  return best;
}
