// Draws what is active in a row of the timeline: bars of regions, mixtures of them, call stacks.

import { contrast } from "./colours.js";
import { styleColour } from "./dom.js";
import { BINS, FACTOR, LAST_LEVEL, after } from "./tile_store.js";
import { LABELS, RULER, SLIDER, STACK_BAR, fitting } from "./timeline_layout.js";

const WIDEST_BIN = 2; // CSS pixels: wider ones are taken from the next level
const UNKNOWN = -2;
const NOTHING = -1;
const TEXT_FROM = 34; // CSS pixels of a bar that has room for a name
const TEXT_HEIGHT = 10; // CSS pixels of the lowest bar that has

/** The finest level that is needed to draw a window on so many pixels. */
function levelFor(span, window, pixels) {
  const share = (window[1] - window[0]) / span;
  let level = 0;
  while (level < LAST_LEVEL && pixels / (share * BINS * FACTOR ** level) > WIDEST_BIN) level += 1;
  return level;
}

/** Draws rows into a frame: what is drawn is handed over, names are kept until the end. */
export class Bars {
  constructor(context, timeline, { width, height, begin, end }) {
    Object.assign(this, { context, timeline, width, height, begin, end });
    this.columns = Math.max(1, Math.round((width - LABELS) * timeline.canvas.ratio));
    this.active = new Int32Array(this.columns);
    this.weight = new Float32Array(this.columns);
    this.second = new Int32Array(this.columns); // what else is in a pixel, where only bins are known
    this.share = new Float32Array(this.columns);
    this.names = []; // written when all else is drawn
    [this.ground, this.faint, this.font] = ["--sunk", "--line", "--small-font"].map(styleColour);
  }

  row(row, y, height) {
    const { timeline, context } = this;
    const { store } = timeline;
    const { span } = timeline.meta;
    const level = levelFor(span, timeline.window, this.width - LABELS);
    const width = span / FACTOR ** level;
    const first = Math.max(0, Math.floor(this.begin / width));
    const last = Math.min(FACTOR ** level - 1, Math.floor(this.end / width));
    this.active.fill(NOTHING);
    this.weight.fill(0);
    this.share.fill(1);
    this.mixed = false;
    for (let number = first; number <= last; number += 1) {
      const { tile, missing } = store.find(row, level, number);
      if (missing) store.want(row, level, number);
      this.tile(tile, number * width, (number + 1) * width);
    }
    const inset = height >= 5 ? 1 : 0;
    context.fillStyle = this.ground;
    context.fillRect(LABELS, y + inset, this.width - LABELS, height - 2 * inset);
    if (timeline.rows.isStack(row)) this.stack(y);
    else if (this.mixed && height >= 4) this.mixture(y + inset, height - 2 * inset);
    else this.runs((from, to, node) => this.bar(from, to, node, y + inset, height - 2 * inset));
  }

  /** Notes for each pixel of a stretch what is active for most of it. */
  tile(tile, from, to) {
    const begin = Math.max(from, this.begin);
    const end = Math.min(to, this.end);
    if (!(begin < end)) return;
    if (!tile) {
      this.add(UNKNOWN, begin, end);
    } else if (tile.times) {
      const { times, active } = tile;
      for (let place = Math.max(0, after(times, begin) - 1); place < times.length; place += 1) {
        if (times[place] >= end) break;
        const stop = place + 1 < times.length ? times[place + 1] : end;
        this.add(active[place], Math.max(begin, times[place]), Math.min(end, stop));
      }
    } else {
      const width = this.timeline.meta.span / FACTOR ** tile.level / BINS;
      const start = tile.number * width * BINS;
      const last = Math.min(BINS - 1, Math.ceil((end - start) / width));
      for (let bin = Math.max(0, Math.floor((begin - start) / width)); bin <= last; bin += 1) {
        const at = start + bin * width;
        this.add(
          tile.nodes[bin],
          Math.max(begin, at),
          Math.min(end, at + width),
          tile.shares[bin] / 255,
          tile.seconds[bin],
        );
      }
      this.mixed = true;
    }
  }

  add(node, begin, end, share = 1, second = node) {
    const perSecond = this.columns / (this.end - this.begin);
    const from = (begin - this.begin) * perSecond;
    const to = (end - this.begin) * perSecond;
    if (!(to > from)) return;
    const first = Math.max(0, Math.floor(from));
    const last = Math.min(this.columns - 1, Math.floor(to));
    for (let pixel = first; pixel <= last; pixel += 1) {
      const part = share * (Math.min(to, pixel + 1) - Math.max(from, pixel));
      if (part > this.weight[pixel]) {
        this.weight[pixel] = part;
        this.active[pixel] = node;
        this.share[pixel] = share;
        this.second[pixel] = second;
      }
    }
  }

  /** A row of pixels in which several call paths share the time: the height is divided alike. */
  mixture(y, height) {
    const { context, timeline } = this;
    const { ratio } = timeline.canvas;
    const top = Math.round(Math.max(RULER, y) * ratio);
    const tall = Math.round(Math.min(this.height - SLIDER, y + height) * ratio) - top;
    if (tall < 1) return;
    const image = context.createImageData(this.columns, tall);
    const pixels = new Uint32Array(image.data.buffer);
    for (let x = 0; x < this.columns; x += 1) {
      const main = this.active[x] >= 0 ? timeline.looks.pixelOf(this.active[x]) : 0;
      const other = this.second[x] >= 0 ? timeline.looks.pixelOf(this.second[x]) : 0;
      const edge = this.weight[x] ? Math.round(tall * (1 - this.share[x])) : 0;
      for (let line = 0; line < tall; line += 1) {
        const colour = line < tall - edge ? main : other;
        if (colour) pixels[line * this.columns + x] = colour;
      }
    }
    // Transparent where nothing is active: the row's ground is drawn below.
    this.strip = this.strip || document.createElement("canvas");
    this.strip.width = this.columns;
    this.strip.height = tall;
    this.strip.getContext("2d").putImageData(image, 0, 0);
    context.drawImage(this.strip, LABELS, top / ratio, this.columns / ratio, tall / ratio);
  }

  /** Goes through stretches of pixels that show the same. */
  runs(draw) {
    const { ratio } = this.timeline.canvas;
    let start = 0;
    for (let pixel = 1; pixel <= this.columns; pixel += 1) {
      if (pixel < this.columns && this.active[pixel] === this.active[start]) continue;
      const node = this.active[start];
      if (node !== NOTHING) draw(LABELS + start / ratio, LABELS + pixel / ratio, node);
      start = pixel;
    }
  }

  bar(from, to, node, y, height) {
    const { context, timeline } = this;
    if (node === UNKNOWN) {
      context.fillStyle = this.faint;
      context.fillRect(from, y + height / 2 - 0.5, to - from, 1);
      return;
    }
    const look = timeline.looks.of(node);
    const wide = to - from;
    context.globalAlpha = timeline.looks.isDimmed(node) ? 0.22 : 1;
    context.fillStyle = look.css;
    context.fillRect(from, y, wide > 3 ? wide - 0.6 : wide, height);
    if (wide > TEXT_FROM && height >= TEXT_HEIGHT) {
      this.names.push({ from, to, node, y, height, colour: look.css, alpha: context.globalAlpha });
    }
    context.globalAlpha = 1;
  }

  /** Writes the names of the bars, readable on whatever shades them. */
  write() {
    const { context, timeline } = this;
    context.font = this.font;
    context.textAlign = "left";
    context.textBaseline = "middle";
    context.lineJoin = "round";
    for (const { from, to, node, y, height, colour, alpha } of this.names) {
      // Names are cut to what can be seen of their bar.
      const left = Math.max(from, LABELS) + 3;
      const text = fitting(context, timeline.looks.nameOf(node), Math.min(to, this.width) - left - 2);
      if (!text) continue;
      context.save();
      context.beginPath();
      context.rect(from, y, to - from, height);
      context.clip();
      context.globalAlpha = alpha;
      context.strokeStyle = colour;
      context.lineWidth = 3;
      context.strokeText(text, left, y + height / 2 + 0.5);
      context.fillStyle = contrast(colour);
      context.fillText(text, left, y + height / 2 + 0.5);
      context.restore();
    }
  }

  /** All callers above each other, the outermost on top. */
  stack(y) {
    const { timeline } = this;
    const levels = timeline.rows.levels;
    for (let depth = 0; depth < levels; depth += 1) {
      const top = y + 1 + depth * STACK_BAR;
      let open = null;
      const flush = () => open && this.bar(open.from, open.to, open.node, top, STACK_BAR - 1);
      this.runs((from, to, node) => {
        const path = node === UNKNOWN ? [UNKNOWN] : timeline.looks.pathOf(node);
        const here = path[depth];
        if (open && open.node === here && Math.abs(open.to - from) < 0.01) open.to = to;
        else {
          flush();
          open = here === undefined ? null : { from, to, node: here };
        }
      });
      flush();
    }
  }
}
