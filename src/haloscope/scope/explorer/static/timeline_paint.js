// Draws the timeline: what is active in its rows, waits, messages, the ruler and the names of the rows.

import { contrast } from "./colours.js";
import { clipped, line, styleColour } from "./dom.js";
import { marks } from "./format.js";
import { BINS, FACTOR, LAST_LEVEL, after } from "./tile_store.js";
import { LABELS, RULER, SCROLLBAR, SLIDER, STACK_BAR, fitting } from "./timeline_looks.js";

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
class Bars {
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
        this.add(tile.nodes[bin], Math.max(begin, at), Math.min(end, at + width), tile.shares[bin] / 255, tile.seconds[bin]);
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
      clipped(context, from, y, to - from, height, () => {
        Object.assign(context, { globalAlpha: alpha, strokeStyle: colour, lineWidth: 3, fillStyle: contrast(colour) });
        context.strokeText(text, left, y + height / 2 + 0.5);
        context.fillText(text, left, y + height / 2 + 0.5);
      });
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

export const MOST_LINES_MEANT = 20000; // messages, of which the longest tell anything
const HATCHED_FROM = 2.5; // CSS pixels of a wait; shorter ones shade the pixels that they are in
const SHADES = 8;
const LEAST_THUMB = 12; // CSS pixels of what shows where the seen rows are

/** One frame of a timeline: what it shows is handed over, nothing is kept. */
export class Painter {
  constructor(context, timeline, width, height) {
    Object.assign(this, { context, timeline, width, height });
    [this.begin, this.end] = timeline.window;
    this.scale = (width - LABELS) / (this.end - this.begin); // CSS pixels a second
    this.colours = Object.fromEntries(
      ["muted", "line", "accent", "sunk", "hatch", "message", "alert"].map((name) => [name, styleColour(`--${name}`)]),
    );
    this.font = styleColour("--small-font");
  }

  x(time) {
    return LABELS + (time - this.begin) * this.scale;
  }

  paint() {
    const { context, timeline } = this;
    const shown = timeline.rows.visible();
    const ticks = this.ticks();
    clipped(context, LABELS, RULER, this.width - LABELS, this.height - RULER - SLIDER, () => {
      const bars = new Bars(context, timeline, this);
      for (const { row, y, height } of shown) bars.row(row, y, height);
      if (timeline.state.drawn.waits) for (const { row, y, height } of shown) this.waits(row, y, height);
      this.grid(ticks);
      if (timeline.state.drawn.messages) this.messages();
      bars.write();
      this.instance();
    });
    this.names(shown);
    this.ruler(ticks);
    this.slider();
    this.scrollbar();
    timeline.store.ask();
  }

  // -- waits and messages -----------------------------------------------------------------------

  waits(row, y, height) {
    const { timeline, context } = this;
    const list = timeline.waits.of(timeline.meta.rows[row][2]);
    if (!list) return;
    const { begin, end, metric, node } = timeline.waits.columns;
    const stacked = timeline.rows.isStack(row);
    const inset = height >= 5 ? 1 : 0;
    const tall = stacked ? STACK_BAR - 1 : Math.max(1, height - 2 * inset);
    const shades = [null, null]; // what part of each pixel is a short wait: others, chosen ones
    for (let place = timeline.waits.first(list, this.begin); place < list.length; place += 1) {
      const wait = list[place];
      if (begin[wait] > this.end) break;
      if (end[wait] < this.begin) continue;
      const from = Math.max(LABELS, this.x(begin[wait]));
      const to = Math.min(this.width, this.x(end[wait]));
      const chosen = this.isChosen(metric[wait]);
      if (to - from < HATCHED_FROM) {
        shades[Number(chosen)] ??= new Float32Array(Math.ceil(this.width - LABELS) + 1);
        addShare(shades[Number(chosen)], from - LABELS, to - LABELS);
        continue;
      }
      // In a stack the call that waits is shaded, not its callers.
      const depth = stacked && node[wait] >= 0 ? timeline.looks.pathOf(node[wait]).length - 1 : 0;
      const top = y + inset + STACK_BAR * Math.min(depth, timeline.rows.levels - 1);
      context.fillStyle = timeline.looks.hatching(context, chosen);
      context.fillRect(from, top, to - from, tall);
      if (chosen && tall > 3) {
        context.fillStyle = this.colours.alert;
        context.fillRect(from, top + tall - 2, to - from, 2);
      }
    }
    shades.forEach((shares, chosen) => {
      if (shares) this.shade(shares, y + inset, height - 2 * inset, chosen ? this.colours.alert : this.colours.hatch);
    });
  }

  /** Whether waits of a metric stand out, asked once for each. */
  isChosen(metric) {
    this.chosen ??= [];
    this.chosen[metric] ??= this.timeline.looks.isChosenMetric(metric);
    return this.chosen[metric];
  }

  /** Shades pixels as much as they are waits. */
  shade(shares, y, height, colour) {
    const { context } = this;
    context.fillStyle = colour;
    for (let shade = 1; shade <= SHADES; shade += 1) {
      context.globalAlpha = shade / SHADES;
      context.beginPath();
      for (let pixel = 0; pixel < shares.length; pixel += 1) {
        if (shares[pixel] && Math.max(1, Math.round(SHADES * Math.min(1, shares[pixel]))) === shade) {
          context.rect(LABELS + pixel, y, 1, Math.max(1, height));
        }
      }
      context.fill();
    }
    context.globalAlpha = 1;
  }

  messages() {
    const { timeline, context } = this;
    const lines = timeline.lines;
    if (!lines) return;
    context.strokeStyle = this.colours.message;
    context.fillStyle = this.colours.message;
    // Many lines are a shade, few are lines.
    context.globalAlpha = Math.min(0.75, Math.max(0.08, 60 / lines.sent.length));
    context.lineWidth = 1;
    this.drawn = [];
    context.beginPath();
    for (let n = 0; n < lines.sent.length; n += 1) {
      const [y0, y1] = [timeline.rows.middleOf(lines.from[n]), timeline.rows.middleOf(lines.to[n])];
      if (y0 === null || y1 === null) continue;
      const [x0, x1] = [this.x(lines.sent[n]), this.x(lines.received[n])];
      if (Math.max(x0, x1) < LABELS || Math.min(x0, x1) > this.width) continue;
      context.moveTo(x0, y0);
      context.lineTo(x1, y1);
      this.drawn.push([x0, y0, x1, y1, n]);
    }
    context.stroke();
    if (this.drawn.length <= 120) for (const [x0, y0, x1, y1] of this.drawn) this.head(x0, y0, x1, y1);
    context.globalAlpha = 1;
    timeline.drawn = { lines, places: this.drawn };
  }

  head(x0, y0, x1, y1) {
    const { context } = this;
    const angle = Math.atan2(y1 - y0, x1 - x0);
    context.beginPath();
    context.moveTo(x1, y1);
    context.lineTo(x1 - 6 * Math.cos(angle - 0.4), y1 - 6 * Math.sin(angle - 0.4));
    context.lineTo(x1 - 6 * Math.cos(angle + 0.4), y1 - 6 * Math.sin(angle + 0.4));
    context.fill();
  }

  /** A frame around the wait that is pointed out, and a line from what it waits for. */
  instance() {
    const { timeline, context } = this;
    const wait = timeline.instances.shown;
    const top = wait ? timeline.rows.topOf(wait.row) : null;
    if (top === null) return;
    const rowHeight = timeline.rows.heightOf(wait.row);
    const [from, to] = [this.x(wait.begin), this.x(wait.end)];
    context.strokeStyle = this.colours.alert;
    context.lineWidth = 2;
    context.strokeRect(from, top, Math.max(2, to - from), rowHeight);
    const cause = wait.causeRow >= 0 ? timeline.rows.middleOf(wait.causeRow) : null;
    if (cause !== null) {
      context.setLineDash([4, 3]);
      line(context, to, cause, to, top + rowHeight / 2);
      context.setLineDash([]);
      context.beginPath();
      context.arc(to, cause, 3.5, 0, 7);
      context.fillStyle = this.colours.alert;
      context.fill();
    }
    context.lineWidth = 1;
  }

  // -- frame ------------------------------------------------------------------------------------

  names(shown) {
    const { context, timeline } = this;
    context.font = this.font;
    context.textAlign = "right";
    context.textBaseline = "middle";
    // Where rows are low, selected ones are named first, others where room is left.
    const taken = [];
    const place = ({ row, y, height }) => {
      const middle = Math.max(RULER + 6, y + Math.min(height, 24) / 2);
      if (middle > this.height - SLIDER - 4 || taken.some((other) => Math.abs(other - middle) < 12)) return;
      taken.push(middle);
      context.fillStyle = timeline.rows.isChosen(row) ? this.colours.accent : this.colours.muted;
      context.fillText(fitting(context, timeline.rows.name(row, true), LABELS - 10), LABELS - 6, middle);
    };
    for (const one of shown) if (timeline.rows.isChosen(one.row) && timeline.rows.isHost(one.row)) place(one);
    for (const one of shown) place(one);
  }

  /** Round times that are marked. */
  ticks() {
    return marks(this.begin, this.end, Math.max(2, (this.width - LABELS) / 130));
  }

  grid(ticks) {
    const { context } = this;
    context.strokeStyle = this.colours.line;
    context.globalAlpha = 0.6;
    context.beginPath();
    for (const tick of ticks) {
      const x = Math.round(this.x(tick)) + 0.5;
      context.moveTo(x, RULER);
      context.lineTo(x, this.height - SLIDER);
    }
    context.stroke();
    context.globalAlpha = 1;
  }

  ruler(ticks) {
    const { context } = this;
    context.fillStyle = this.colours.muted;
    context.strokeStyle = this.colours.line;
    context.font = this.font;
    context.textBaseline = "middle";
    const step = ticks.length > 1 ? ticks[1] - ticks[0] : this.end - this.begin;
    const digits = Math.min(11, Math.max(0, -Math.floor(Math.log10(step) + 1e-9)));
    context.beginPath();
    for (const tick of ticks) {
      const x = Math.round(this.x(tick)) + 0.5;
      context.moveTo(x, RULER - 5);
      context.lineTo(x, RULER);
      context.textAlign = x < LABELS + 20 ? "left" : x > this.width - 40 ? "right" : "center";
      context.fillText(`${tick.toFixed(digits)} s`, x, 7);
    }
    context.stroke();
  }

  slider() {
    const { context, timeline } = this;
    const { span } = timeline.meta;
    const top = this.height - SLIDER + 4;
    context.fillStyle = this.colours.sunk;
    context.fillRect(LABELS, top, this.width - LABELS, SLIDER - 5);
    const per = (this.width - LABELS) / span;
    context.fillStyle = this.colours.accent;
    context.globalAlpha = 0.6;
    context.fillRect(LABELS + this.begin * per, top, Math.max(3, (this.end - this.begin) * per), SLIDER - 5);
    context.globalAlpha = 1;
  }

  /** Which of the rows are seen, where there is no room for all. */
  scrollbar() {
    const { context } = this;
    const { rows } = this.timeline;
    if (!rows.overflows) return;
    const left = this.width - SCROLLBAR + 2;
    const tall = Math.max(LEAST_THUMB, (rows.room / rows.total) * rows.room);
    const top = RULER + (rows.top / (rows.total - rows.room)) * (rows.room - tall);
    context.fillStyle = this.colours.sunk;
    context.globalAlpha = 0.85;
    context.fillRect(left - 1, RULER, SCROLLBAR, rows.room);
    context.fillStyle = this.colours.accent;
    context.fillRect(left, top, SCROLLBAR - 3, tall);
    context.globalAlpha = 1;
  }
}

/** Adds to each pixel what part of it lies between two places. */
function addShare(shares, from, to) {
  for (let pixel = Math.max(0, Math.floor(from)); pixel < to && pixel < shares.length; pixel += 1) {
    shares[pixel] += Math.min(to, pixel + 1) - Math.max(from, pixel);
  }
}
