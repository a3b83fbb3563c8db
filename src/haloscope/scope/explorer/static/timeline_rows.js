// Rows of the timeline: which locations are shown, how high, and where on the canvas.

import { shown } from "./dom.js";
import { RULER, SLIDER, STACK_BAR } from "./timeline_layout.js";
import { after } from "./tile_store.js";

const LOWEST = 4; // CSS pixels, unless someone wants them lower
const HIGHEST = 26;
const LIMITS = [1, 60]; // of what someone may want
const DEEPEST = 8; // levels of the stack
const STREAM = STACK_BAR + 4; // CSS pixels of a stream beside stacks: nothing calls its kernels

/** The rows of one side's timeline on a canvas. */
export class Rows {
  constructor(model, state, canvas) {
    Object.assign(this, { model, state, canvas });
    this.rows = [];
    this.tops = [0]; // of each row below the first, and the end of the last
    this.top = 0;
    this.height = 14; // of a row that is not stacked
    this.wanted = null;
    this.stacked = false;
    this.only = null; // ranks that are shown, null for all
  }

  /** Takes the locations of a timeline: [[rank, number, place, on a stream], ...]. */
  take(locations) {
    this.locations = locations;
    this.rowOfPlace = new Map(locations.map(([, , place], row) => [place, row]));
  }

  get room() {
    return this.canvas.height - RULER - SLIDER;
  }

  /** CSS pixels of all rows together. */
  get total() {
    return this.tops[this.rows.length];
  }

  rankOf(row) {
    return this.locations[row][0];
  }

  /** Name of a row; `short` leaves the rank away below the row of its first thread. */
  name(row, short = false) {
    const [rank, number, place] = this.locations[row];
    if (place < 0) return `rank ${rank}.${number}`;
    const below = short && number > 0 && this.placeOfRow.has(row - 1) && this.locations[row - 1]?.[0] === rank;
    if (!below) return shown(this.model.placeName(place));
    const name = this.model.meta.places[place][3] || this.model.placeName(place, false);
    return shown(`↳ ${name.replace(/^(GPU \d+) stream /, "$1 · ")}`);
  }

  isHost(row) {
    return this.locations[row][1] === 0;
  }

  isChosen(row) {
    return this.state.ranks.has(this.rankOf(row));
  }

  /** Whether a row shows callers above each other. */
  isStack(row) {
    return this.stacked && !this.locations[row][3];
  }

  heightOf(row) {
    if (!this.stacked) return this.height;
    return this.isStack(row) ? STACK_BAR * this.levels + 4 : STREAM;
  }

  arrange() {
    const all = this.locations.map((_, row) => row);
    this.rows = this.only ? all.filter((row) => this.only.has(this.rankOf(row))) : all;
    this.placeOfRow = new Map(this.rows.map((row, place) => [row, place]));
    this.levels = Math.min(DEEPEST, this.deepest());
    this.height = this.wanted ?? Math.min(HIGHEST, Math.max(LOWEST, this.room / Math.max(1, this.rows.length)));
    this.tops = new Float64Array(this.rows.length + 1);
    this.rows.forEach((row, place) => {
      this.tops[place + 1] = this.tops[place] + this.heightOf(row);
    });
    this.scroll(0);
  }

  deepest() {
    if (this.depth === undefined) {
      const depth = new Int32Array(this.model.nodeCount);
      this.depth = 1;
      this.model.parents.forEach((parent, node) => {
        depth[node] = parent >= 0 ? depth[parent] + 1 : 1;
        this.depth = Math.max(this.depth, depth[node]);
      });
    }
    return this.depth;
  }

  resize(factor) {
    this.wanted = Math.min(LIMITS[1], Math.max(LIMITS[0], this.height * factor));
  }

  /** Makes rows as high as this where they are lower. */
  atLeast(height) {
    if (this.height < height) this.wanted = height;
  }

  scroll(by) {
    this.top = Math.min(Math.max(0, this.total - this.room), Math.max(0, this.top + by));
  }

  /** Puts some rows into the middle. */
  centre(rows) {
    const places = rows.filter((row) => this.placeOfRow.has(row)).map((row) => this.placeOfRow.get(row));
    this.top = 0;
    if (places.length) {
      this.scroll((this.tops[Math.min(...places)] + this.tops[Math.max(...places) + 1] - this.room) / 2);
    }
  }

  get overflows() {
    return this.total > this.room + 1;
  }

  /** Place of the row that a height below the first one falls into. */
  placeAt(height) {
    return after(this.tops, height) - 1;
  }

  /** Rows that can be seen: [{row, y, height}, ...]. */
  visible() {
    const found = [];
    const bottom = this.canvas.height - SLIDER;
    for (let place = Math.max(0, this.placeAt(this.top)); place < this.rows.length; place += 1) {
      const y = RULER + this.tops[place] - this.top;
      if (y >= bottom) break;
      found.push({ row: this.rows[place], y, height: this.tops[place + 1] - this.tops[place] });
    }
    return found;
  }

  topOf(row) {
    const place = this.placeOfRow.get(row);
    return place === undefined ? null : RULER + this.tops[place] - this.top;
  }

  middleOf(row) {
    const top = this.topOf(row);
    return top === null ? null : top + this.heightOf(row) / 2;
  }

  at(y) {
    if (y < RULER || y > this.canvas.height - SLIDER) return null;
    const place = this.placeAt(y - RULER + this.top);
    return place in this.rows ? this.rows[place] : null;
  }
}
