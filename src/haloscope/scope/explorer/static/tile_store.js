// Keeps the tiles of a timeline that were asked for, and asks for those that are missing.

import { kept } from "./model.js";

const MOST_TILES_ASKED = 2000;
const MOST_ROWS_ASKED = 256;
const MOST_KEPT = 60000;
export const BINS = 512;
export const FACTOR = 4;
export const LAST_LEVEL = 15;

/** Tiles of one side's timeline (see timeline.py). */
export class TileStore {
  constructor(source, side, meta, arrived) {
    Object.assign(this, { source, side, meta, arrived });
    this.tiles = new Map();
    this.absent = new Set();
    this.asking = 0;
    this.wanted = [];
  }

  key(row, level, number) {
    return `${row}/${level}/${number}`;
  }

  /**
   * The tile to draw for one: itself, or the nearest above it that is here; an exact one above is
   * as good. `missing` says that a better one is to come.
   */
  find(row, level, number) {
    let best = null;
    for (let above = 0; above <= level; above += 1) {
      const tile = this.tiles.get(this.key(row, above, Math.floor(number / FACTOR ** (level - above))));
      if (!tile) continue;
      if (tile.times) return { tile, missing: false };
      best = tile;
    }
    return { tile: best, missing: !best || best.level < level };
  }

  /** Notes that a tile is wanted by the view being drawn. */
  want(row, level, number) {
    const key = this.key(row, level, number);
    if (!this.absent.has(key)) this.wanted.push([row, level, number]);
  }

  /** Asks for what was wanted in this frame, the rest is forgotten: the view may have moved on. */
  ask() {
    if (!this.wanted.length || this.asking >= 2) {
      this.wanted = [];
      return;
    }
    const groups = new Map();
    for (const [row, level, number] of this.wanted) {
      const group = kept(groups, level, () => ({ level, rows: new Set(), first: number, last: number }));
      group.rows.add(row);
      group.first = Math.min(group.first, number);
      group.last = Math.max(group.last, number);
    }
    this.wanted = [];
    for (const group of groups.values()) this.request(group);
  }

  async request({ level, rows, first, last }) {
    const many = Math.max(1, Math.min(MOST_ROWS_ASKED, Math.floor(MOST_TILES_ASKED / (last - first + 1))));
    const asked = [...rows].sort((a, b) => a - b).slice(0, many);
    this.asking += 1;
    try {
      const { meta, arrays } = await this.source.tiles(this.side, level, first, last, asked);
      this.keep(meta, arrays);
      // A single file never delivers tiles that it lacks.
      for (const row of asked) {
        for (let number = first; number <= last; number += 1) {
          if (this.find(row, level, number).missing) this.absent.add(this.key(row, level, number));
        }
      }
    } catch (error) {
      this.failure = String(error.message || error);
    } finally {
      this.asking -= 1;
      this.arrived();
    }
  }

  keep(listing, { nodes, shares, seconds, times, active }) {
    if (this.tiles.size > MOST_KEPT) this.tiles.clear();
    let bin = 0;
    let segment = 0;
    for (const [row, level, number, count] of listing) {
      const tile = { row, level, number };
      if (count < 0) {
        tile.nodes = nodes.subarray(bin, bin + BINS);
        tile.shares = shares.subarray(bin, bin + BINS);
        tile.seconds = seconds.subarray(bin, bin + BINS);
        bin += BINS;
      } else {
        tile.times = times.subarray(segment, segment + count);
        tile.active = active.subarray(segment, segment + count);
        segment += count;
      }
      this.tiles.set(this.key(row, level, number), tile);
    }
  }

  /** The segment of a row at a moment as far as it is known: {node, begin, end, exact, share}. */
  at(row, time) {
    const { span } = this.meta;
    for (let level = LAST_LEVEL; level >= 0; level -= 1) {
      const width = span / FACTOR ** level;
      const number = Math.floor(time / width);
      const tile = this.tiles.get(this.key(row, level, number));
      if (!tile) continue;
      if (tile.times) {
        const place = after(tile.times, time) - 1;
        if (place < 0) return null;
        const end = place + 1 < tile.times.length ? tile.times[place + 1] : null;
        return { node: tile.active[place], begin: tile.times[place], end, exact: true };
      }
      const bin = Math.min(BINS - 1, Math.floor(((time - number * width) / width) * BINS));
      const begin = number * width + (bin * width) / BINS;
      return { node: tile.nodes[bin], begin, end: begin + width / BINS, share: tile.shares[bin] / 255, exact: false };
    }
    return null;
  }
}

/** The first of so many places for which something holds that holds for all after it. */
export function firstPlace(count, holds) {
  let [low, high] = [0, count];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (holds(middle)) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** Place of the first number that is greater. */
export function after(sorted, value) {
  return firstPlace(sorted.length, (place) => sorted[place] > value);
}
