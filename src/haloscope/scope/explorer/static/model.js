// The numbers of a report: trees of metrics, call paths and locations, and sums over them.

export const DIFFERENCE = "d";
/** Quantities of messages: name, words and unit. */
export const QUANTITIES = {
  messages: ["messages", "#"],
  empty: ["empty messages", "#"],
  bytes: ["bytes", "B"],
  seconds: ["transfer time", "s"],
  receive_seconds: ["time in receives", "s"],
};
const ROUNDING = 1e-12; // of a sum: what is left when its parts are taken away again
const MOST_KEPT = 400; // tables of values

/** What the page knows from the beginning; a view is "0", "1" or the difference "d" (second less first). */
export class Model {
  constructor({ meta, arrays }) {
    this.meta = meta;
    this.metrics = meta.metrics;
    this.parents = arrays.parents;
    this.regions = arrays.regions;
    this.nodeCount = arrays.parents.length;
    this.placeCount = meta.places.length;
    this.sides = meta.sides;
    this.comparing = meta.sides.length > 1;
    this.hasGpus = meta.sides.some((side) => side.gpus);
    this.arrays = arrays;
    this.rowOf = new Map(meta.present.map((metric, row) => [metric, row]));
    this.metricByName = new Map(this.metrics.map((metric, number) => [metric.name, number]));
    this.metricBelow = childrenOf(this.metrics.map((metric) => metric.parent));
    this.nodeBelow = childrenOf(this.parents);
    this.buildSystem();
    this.kept = new Map();
  }

  // -- names --------------------------------------------------------------------------------

  regionOf(node) {
    return this.meta.regions[this.regions[node]];
  }

  nodeName(node) {
    return this.regionOf(node)[0];
  }

  pathOf(node) {
    const path = [];
    for (let n = node; n >= 0; n = this.parents[n]) path.unshift(n);
    return path;
  }

  pathNames(node) {
    return this.pathOf(node).map((n) => this.nodeName(n));
  }

  // -- values -------------------------------------------------------------------------------

  /** Values of a side's stored table, of the metric alone where `exclusive`. */
  stored(table, side, metric, exclusive) {
    const count = table === "nodes" ? this.nodeCount : this.placeCount;
    const all = this.arrays[`${table}${side}`];
    const read = (number) => {
      const row = this.rowOf.get(number);
      return row === undefined ? null : all.subarray(row * count, (row + 1) * count);
    };
    const whole = read(metric) || new Float64Array(count);
    const values = Float64Array.from(whole);
    if (!exclusive) return values;
    for (const below of this.metricBelow[metric]) {
      const less = read(below);
      if (less) for (let n = 0; n < count; n += 1) values[n] -= less[n];
    }
    for (let n = 0; n < count; n += 1) if (Math.abs(values[n]) <= ROUNDING * Math.abs(whole[n])) values[n] = 0;
    return values;
  }

  /** The same for a view. */
  viewed(table, view, metric, exclusive) {
    const key = `${table} ${view} ${metric} ${exclusive}`;
    return kept(
      this.kept,
      key,
      () =>
        view === DIFFERENCE
          ? difference(this.viewed(table, "0", metric, exclusive), this.viewed(table, "1", metric, exclusive))
          : this.stored(table, view, metric, exclusive),
      MOST_KEPT,
    );
  }

  /** Values of call paths without what they call. */
  nodeOwn(view, metric, exclusive) {
    return this.viewed("nodes", view, metric, exclusive);
  }

  /** Values of call paths with what they call. */
  nodeWhole(view, metric, exclusive) {
    return kept(this.kept, `whole ${view} ${metric} ${exclusive}`, () =>
      this.withBelow(Float64Array.from(this.nodeOwn(view, metric, exclusive))),
    );
  }

  /** Adds to the values of call paths those of what they call. */
  withBelow(values) {
    for (let n = this.nodeCount - 1; n > 0; n -= 1) if (this.parents[n] >= 0) values[this.parents[n]] += values[n];
    return values;
  }

  /** A metric's sum over all call paths and locations. */
  total(view, metric, exclusive) {
    return kept(this.kept, `total ${view} ${metric} ${exclusive}`, () =>
      this.nodeOwn(view, metric, exclusive).reduce((sum, v) => sum + v, 0),
    );
  }

  rootMetric(metric) {
    let root = metric;
    while (this.metrics[root].parent >= 0) root = this.metrics[root].parent;
    return root;
  }

  /** Whether a metric or anything below it has a value on any side. */
  hasMetric(metric) {
    return this.sides.some((_, side) => this.total(String(side), metric, false) !== 0);
  }

  /** Whether a node stands for the whole program when it is collapsed. */
  isWhole(node) {
    return node === 0 && this.nodeBelow.roots.length === 1;
  }

  // -- locations ------------------------------------------------------------------------------

  buildSystem() {
    const places = this.meta.places;
    const hosts = this.meta.sides.map((side) => side.hosts).find((names) => names.length) || [];
    const several = new Set(hosts).size > 1;
    const items = [{ name: `${this.meta.size} rank${this.meta.size === 1 ? "" : "s"}`, parent: -1, rank: -1, places: [] }];
    const add = (item) => items.push({ places: [], ...item }) - 1;
    const hostItem = new Map();
    const rankItem = new Map();
    const byRank = new Map();
    places.forEach(([rank], place) => kept(byRank, rank, () => []).push(place));
    for (const [rank, own] of byRank) {
      let parent = 0;
      if (several) {
        const host = hosts[rank] ?? "another host";
        parent = kept(hostItem, host, () => add({ name: host, parent: 0, rank: -1 }));
      }
      const item = add({ name: `rank ${rank}`, parent, rank });
      rankItem.set(rank, item);
      if (own.length === 1) {
        items[item].places = own;
      } else {
        for (const place of own) {
          add({ name: this.placeName(place, false), parent: item, rank, places: [place] });
        }
      }
    }
    this.system = items;
    this.rankItem = rankItem;
    this.systemBelow = childrenOf(items.map((item) => item.parent));
    for (let item = items.length - 1; item > 0; item -= 1) {
      items[item].all = items[item].all || [...items[item].places];
      const above = items[items[item].parent];
      if (!above.all) above.all = [...above.places];
      for (const place of items[item].all) above.all.push(place);
    }
    items[0].all = items[0].all || items[0].places;
  }

  /** Name of a location. */
  placeName(place, withRank = true) {
    const [rank, number, kind, name, device] = this.meta.places[place];
    const front = withRank ? `rank ${rank}` : "";
    if (kind === "stream") {
      return `${front} GPU${device >= 0 ? ` ${device}` : ""} ${name || `stream ${number}`}`.trim();
    }
    if (number === 0 && (withRank || !name)) return withRank ? front : "main thread";
    return `${front} ${name || `thread ${number}`}`.trim();
  }

  /** Sums of values by location over ranks; ranks without a location count as zero. */
  byRank(values) {
    const sums = new Float64Array(this.meta.size);
    this.meta.places.forEach(([rank], place) => {
      sums[rank] += values[place];
    });
    return sums;
  }
}

/** What is kept under a key, made where it is missing; beyond `most` all others are dropped first. */
export function kept(map, key, make, most = Infinity) {
  if (!map.has(key)) {
    if (map.size > most) map.clear();
    map.set(key, make());
  }
  return map.get(key);
}

/** For each node of a tree whether it is the one asked for or, unless `alone`, lies below it. */
export function insideOf(parents, node, alone = false) {
  const inside = new Uint8Array(parents.length);
  inside[node] = 1;
  for (let n = node + 1; n < inside.length && !alone; n += 1) {
    if (parents[n] >= 0 && inside[parents[n]]) inside[n] = 1;
  }
  return inside;
}

function childrenOf(parents) {
  const below = Array.from(parents, () => []);
  below.roots = [];
  parents.forEach((parent, number) => {
    if (parent >= 0) below[parent].push(number);
    else below.roots.push(number);
  });
  return below;
}

/** Second less first; where the two are the same but for rounding, zero. */
export function difference(first, second) {
  return Float64Array.from(second, (value, n) => {
    const change = value - first[n];
    return Math.abs(change) <= ROUNDING * Math.abs(value) ? 0 : change;
  });
}

/** Mean, spread, extremes and quartiles of numbers, as NumPy gives them. */
export function statistics(values) {
  const count = values.length;
  if (!count) return null;
  let sum = 0;
  let least = 0;
  let most = 0;
  values.forEach((value, place) => {
    sum += value;
    if (value < values[least]) least = place;
    if (value > values[most]) most = place;
  });
  const mean = sum / count;
  let square = 0;
  for (const value of values) square += (value - mean) ** 2;
  const sorted = Float64Array.from(values).sort();
  const quantile = (share) => {
    const place = share * (count - 1);
    const below = Math.floor(place);
    const above = Math.min(count - 1, below + 1);
    return sorted[below] + (sorted[above] - sorted[below]) * (place - below);
  };
  return {
    count,
    sum,
    mean,
    deviation: Math.sqrt(square / count),
    least,
    most,
    quartiles: [quantile(0.25), quantile(0.5), quantile(0.75)],
    sorted,
  };
}
