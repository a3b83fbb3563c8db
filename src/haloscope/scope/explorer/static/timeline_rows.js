// Rows of the timeline: which locations are shown, how high, and where on the canvas.

import { shown } from "./dom.js";
import { kept } from "./model.js";
import { after } from "./tile_store.js";
import { RULER, SLIDER, STACK_BAR } from "./timeline_looks.js";

const LOWEST = 4; // CSS pixels, unless someone wants them lower
const HIGHEST = 26;
const DEEPEST = 8; // levels of the stack
const [ON_STREAM, OF_LIBRARY] = [1, 2]; // kinds of locations; others are threads of the program
const FEW_STREAMS = 4; // of a device: all are shown
const NEARLY_EMPTY = 0.1; // of the work of a device's busiest stream: less is folded away
const STREAM = STACK_BAR + 4; // CSS pixels of a stream beside stacks: nothing calls its kernels

/** The rows of one side's timeline on a canvas. */
export class Rows {
  constructor(model, state, canvas) {
    Object.assign(this, { model, state, canvas });
    this.rows = [];
    this.tops = [0]; // of each row below the first, and the end of the last
    this.top = 0;
    this.height = 14; // of a row that is not stacked
    this.only = null; // ranks that are shown, null for all
    // Rows that are folded away: streams that are nearly empty, and threads of libraries.
    this.folded = new Set();
  }

  /** Takes the locations of a timeline: [[rank, number, place, kind, device, seconds of work], ...]. */
  take(locations) {
    this.locations = locations;
    this.rowOfPlace = new Map(locations.map(([, , place], row) => [place, row]));
    this.order();
  }

  /** Puts the streams of a device that has many of them into the order of their work, and folds. */
  order() {
    const { locations } = this;
    const devices = new Map();
    this.folded = new Set();
    locations.forEach(([rank, , , kind, device], row) => {
      if (kind === OF_LIBRARY) this.folded.add(row);
      if (kind !== ON_STREAM) return;
      kept(devices, `${rank}.${device}`, () => []).push(row);
    });
    const behind = new Map(); // by the first stream of a device: all of them, in order
    for (const streams of devices.values()) {
      const work = (row) => locations[row][5];
      if (streams.length > FEW_STREAMS) {
        behind.set(streams[0], streams);
        streams.sort((a, b) => work(b) - work(a) || a - b);
        const least = NEARLY_EMPTY * work(streams[0]);
        streams.filter((row) => work(row) < least).forEach((row) => this.folded.add(row));
      }
    }
    const moved = new Set([...behind.values()].flat());
    this.ordered = locations.flatMap((_, row) => behind.get(row) ?? (moved.has(row) ? [] : [row]));
  }

  /** Folds no more where one of some rows would not be seen. */
  unfold(rows) {
    if (rows.some((row) => this.folded.has(row))) this.state.draw("all", true);
  }

  get room() {
    return this.canvas.height - RULER - SLIDER;
  }

  /** CSS pixels of all rows together. */
  get total() {
    return this.tops[this.rows.length];
  }

  /** Row of a location, -1 where it has none. */
  rowOf(place) {
    return this.rowOfPlace.get(place) ?? -1;
  }

  rankOf(row) {
    return this.locations[row][0];
  }

  /** Name of a row; `short` leaves the rank away below the row of its first thread. */
  name(row, short = false) {
    const [rank, number, place] = this.locations[row];
    if (place < 0) return `rank ${rank}.${number}`;
    const above = this.rows[this.placeOfRow.get(row) - 1];
    const below = short && number > 0 && above !== undefined && this.locations[above][0] === rank;
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
    return this.state.drawn.stack && this.locations[row][3] !== ON_STREAM;
  }

  heightOf(row) {
    if (!this.state.drawn.stack) return this.height;
    return this.isStack(row) ? STACK_BAR * this.levels + 4 : STREAM;
  }

  arrange() {
    this.rows = this.ordered.filter(
      (row) => (!this.only || this.only.has(this.rankOf(row))) && (this.state.drawn.all || !this.folded.has(row)),
    );
    this.placeOfRow = new Map(this.rows.map((row, place) => [row, place]));
    this.levels = Math.min(DEEPEST, this.deepest());
    this.height = this.state.rowHeight ?? Math.min(HIGHEST, Math.max(LOWEST, this.room / Math.max(1, this.rows.length)));
    this.tops = new Float64Array(this.rows.length + 1);
    this.rows.forEach((row, place) => {
      this.tops[place + 1] = this.tops[place] + this.heightOf(row);
    });
    this.follow();
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
    this.state.setRowHeight(this.height * factor);
  }

  /** Makes rows as high as this where they are lower. */
  atLeast(height) {
    if (this.height < height) this.state.setRowHeight(height);
  }

  scroll(by) {
    this.top = this.within(this.top + by);
    const place = Math.max(0, this.placeAt(this.top));
    const part = place < this.rows.length ? (this.top - this.tops[place]) / (this.tops[place + 1] - this.tops[place]) : 0;
    this.state.set({ rowTop: place + part });
  }

  within(top) {
    return Math.min(Math.max(0, this.total - this.room), Math.max(0, top));
  }

  /** Goes to the row that is the first to be seen, as far as there are rows below it. */
  follow() {
    const place = Math.min(Math.floor(this.state.rowTop), this.rows.length);
    const part = place < this.rows.length ? this.state.rowTop - place : 0;
    this.top = this.within(this.tops[place] + part * ((this.tops[place + 1] ?? this.total) - this.tops[place]));
  }

  /** Puts some rows into the middle. */
  centre(rows) {
    const places = rows.filter((row) => this.placeOfRow.has(row)).map((row) => this.placeOfRow.get(row));
    this.top = 0;
    if (!places.length) this.scroll(0);
    else {
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
    const inView = [];
    const bottom = this.canvas.height - SLIDER;
    for (let place = Math.max(0, this.placeAt(this.top)); place < this.rows.length; place += 1) {
      const y = RULER + this.tops[place] - this.top;
      if (y >= bottom) break;
      inView.push({ row: this.rows[place], y, height: this.tops[place + 1] - this.tops[place] });
    }
    return inView;
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
