// The timeline's panel: which part of the run and which rows are seen, and what the pointer does.

import { KINDS, regionColours } from "./colours.js";
import { Canvas, button, element, menu, say, setText, shown, styleColour, tip } from "./dom.js";
import { single } from "./format.js";
import { LABELS, MOST_LINES_MEANT, Painter, RULER, SLIDER } from "./timeline_paint.js";
import { Rows } from "./timeline_rows.js";
import { TileStore } from "./tile_store.js";
import { Waits } from "./waits.js";

const MOST_LINES = 2000;
const LINES_AFTER = 90; // milliseconds without a change of the view
const SHORTEST = 2e-9; // seconds of a window
const POLL = 600; // milliseconds between looks whether a timeline is ready
const NEAR = 5; // CSS pixels from a message

/** The panel of the timeline. */
export class Timeline {
  constructor(model, state, source, panes) {
    Object.assign(this, { model, state, source, panes });
    this.meta = null;
    this.lines = null;
    this.drawn = null; // messages as they were drawn last, with their places on the canvas
    this.showMessages = true;
    this.showWaits = true;
    this.dimming = false;
    this.instance = null;
    this.waits = new Waits(model, state);
    this.looks = regionColours(model.meta.regions);
    this.paths = new Map();
    this.canvas = new Canvas(
      { class: "picture timeline", role: "application", tabindex: "0", "aria-label": "Timeline" },
      (...a) => this.draw(...a),
    );
    this.rows = new Rows(model, state, this.canvas);
    this.buildBar();
    this.message = element("div", { class: "note" });
    this.node = element("div", { class: "timeline-panel" }, this.bar, this.canvas.node, this.message, this.legend());
    this.listen();
    state.listen(["dock", "trace"], () => this.open());
    state.listen(["window", "metric", "node", "theme"], () => this.refresh());
    state.listen(["metric", "node", "ranks"], () => this.findInstances());
    state.listen(["ranks"], () => this.arrangeRows());
  }

  buildBar() {
    const { state, model } = this;
    const toggle = (text, title, get, set) => {
      const node = button(text, title, () => {
        set(!get());
        node.setAttribute("aria-pressed", String(get()));
        this.arrangeRows();
      }, { "aria-pressed": String(get()) });
      return node;
    };
    this.where = element("span", { class: "quietly where" });
    this.which = element("span", { class: "quietly", "aria-live": "polite" });
    this.rowsToggle = toggle(
      "selected ranks",
      "Show only the ranks that are selected, and those that they wait for",
      () => this.rows.only !== null,
      (on) => {
        this.rows.only = on ? this.ranksOfInterest() : null;
      },
    );
    this.bar = element(
      "div",
      { class: "strip" },
      model.comparing
        ? menu(
            "Timeline of",
            model.sides.map((side, number) => [String(number), `${number ? "second" : "first"}: ${side.folder}`]),
            String(state.trace),
            (side) => state.set({ trace: Number(side), window: null }),
          )
        : null,
      button("whole", "Show the whole run (Home)", () => state.set({ window: null })),
      button("−", "Zoom out (-)", () => this.zoom(2)),
      button("+", "Zoom in (+)", () => this.zoom(0.5)),
      button("◂", "Earlier (left arrow)", () => this.pan(-0.4)),
      button("▸", "Later (right arrow)", () => this.pan(0.4)),
      element("span", { class: "divider" }),
      button("↕−", "Lower rows (alt-wheel)", () => this.resizeRows(0.7)),
      button("↕+", "Higher rows (alt-wheel)", () => this.resizeRows(1.4)),
      this.rowsToggle,
      toggle("stack", "Show callers above each other", () => this.rows.stacked, (on) => {
        this.rows.stacked = on;
      }),
      toggle("messages", "Draw messages as lines", () => this.showMessages, (on) => {
        this.showMessages = on;
        this.askLines();
      }),
      toggle("waits", "Shade wait states", () => this.showWaits, (on) => {
        this.showWaits = on;
      }),
      toggle("dim others", "Dim what is not below the selected call path", () => this.dimming, (on) => {
        this.dimming = on;
      }),
      element("span", { class: "divider" }),
      button("‹", "Previous instance of the selection", () => this.step(-1)),
      button("›", "Next instance of the selection, the longest first", () => this.step(1)),
      this.which,
    );
    this.sideMenu = model.comparing ? this.bar.querySelector("select") : null;
  }

  legend() {
    const used = new Set(this.looks.map((look) => look.kind));
    return element(
      "div",
      { class: "legend" },
      ...KINDS.filter(([kind]) => used.has(kind)).map(([, label, colour]) => {
        const box = element("span", { class: "box" });
        box.style.background = colour;
        return element("span", {}, box, label);
      }),
      element("span", {}, element("span", { class: "box hatched" }), "wait state"),
      element("span", { class: "gap" }),
      this.where,
    );
  }

  // -- data -------------------------------------------------------------------------------------

  /** Gets what there is when the panel is looked at; resolves to whether it can be shown. */
  open() {
    const { state } = this;
    if (state.dock !== "timeline") return Promise.resolve(false);
    if (this.sideMenu) this.sideMenu.value = String(state.trace);
    if (this.side !== state.trace) {
      this.side = state.trace;
      this.meta = null;
      this.lines = null;
      this.instance = null;
      this.canvas.ask();
      this.opening = this.load(state.trace);
    } else this.refresh();
    return this.opening;
  }

  async load(side) {
    const { state, source } = this;
    for (;;) {
      const meta = await source.timeline(side).catch((error) => ({ state: "failed", why: String(error.message) }));
      if (this.side !== side) return false;
      if (meta.state === "ready") {
        this.store = new TileStore(source, side, meta, () => this.canvas.ask());
        this.rows.take(meta.rows);
        const waits = await source.waits(side).catch(() => ({ arrays: null }));
        if (this.side !== side) return false;
        this.waits.take(waits.arrays, meta.begin);
        this.meta = meta;
        break;
      }
      this.showMessage(meta);
      if (meta.state !== "preparing") return false;
      await new Promise((resume) => {
        setTimeout(resume, POLL);
      });
      if (this.side !== side || state.dock !== "timeline") {
        this.side = undefined;
        return false;
      }
    }
    this.showMessage(this.meta);
    this.arrangeRows();
    this.findInstances();
    this.refresh();
    return true;
  }

  showMessage(meta) {
    const text = {
      none: "This measurement holds no trace: measure in trace mode for a timeline.",
      failed: `The timeline cannot be shown: ${meta.why}`,
      preparing: `The timeline is being prepared: ${Math.round(100 * (meta.share || 0))} %`,
      ready: (meta.notes || []).join("; "),
    }[meta.state];
    setText(this.message, text || "");
    this.message.hidden = !text;
  }

  askLines() {
    clearTimeout(this.lineTimer);
    if (!this.meta || !this.showMessages || !this.meta.lines) {
      this.lines = null;
      this.canvas.ask();
      return;
    }
    this.lineTimer = setTimeout(async () => {
      const { meta, side } = this;
      const rows = this.rows.visible().map(({ row }) => row);
      if (!meta || !rows.length) return;
      const [begin, end] = this.window;
      const turn = (this.lineTurn = (this.lineTurn || 0) + 1);
      rows.sort((a, b) => a - b);
      const found = await this.source.lines(side, begin, end, rows, MOST_LINES).catch(() => null);
      if (!found || turn !== this.lineTurn || this.meta !== meta) return;
      this.lines = found.arrays;
      this.lineTotal = found.meta.total;
      this.showWhere();
      this.canvas.ask();
    }, LINES_AFTER);
  }

  // -- rows -------------------------------------------------------------------------------------

  /** Selected ranks, and those of the wait that is pointed out. */
  ranksOfInterest() {
    const ranks = new Set(this.state.ranks);
    for (const row of this.instance ? [this.instance.row, this.instance.causeRow] : []) {
      if (row >= 0) ranks.add(this.rows.rankOf(row));
    }
    return ranks.size ? ranks : null;
  }

  arrangeRows() {
    if (!this.meta) return;
    if (this.rows.only) this.rows.only = this.ranksOfInterest();
    this.rowsToggle.setAttribute("aria-pressed", String(this.rows.only !== null));
    this.rows.arrange();
    this.refreshRows();
  }

  resizeRows(factor) {
    this.rows.resize(factor);
    this.arrangeRows();
  }

  scroll(by) {
    this.rows.scroll(by);
    this.refreshRows();
  }

  refreshRows() {
    this.canvas.ask();
    this.askLines();
  }

  // -- looks --------------------------------------------------------------------------------------

  lookOf(node) {
    return this.looks[this.model.regions[node]];
  }

  /** Colour of a call path as a pixel of an image, dimmed where it is to be. */
  pixelOf(node) {
    const [r, g, b] = this.lookOf(node).parts;
    const alpha = this.isDimmed(node) ? 56 : 255;
    return ((alpha << 24) | (b << 16) | (g << 8) | r) >>> 0;
  }

  nameOf(node) {
    return shown(this.model.nodeName(node));
  }

  pathOf(node) {
    if (!this.paths.has(node)) this.paths.set(node, this.model.pathOf(node));
    return this.paths.get(node);
  }

  isDimmed(node) {
    return this.dimming && !this.pathOf(node).includes(this.state.node);
  }

  /** Whether waits of a metric stand out: of all time none does. */
  isChosenMetric(metric) {
    return this.state.metric !== 0 && this.waits.isSelected(metric);
  }

  hatching(strong) {
    const key = `${strong} ${styleColour("--hatch")}`;
    if (this.hatchKey !== styleColour("--hatch")) {
      this.hatchKey = styleColour("--hatch");
      this.hatches = new Map();
    }
    if (!this.hatches.has(key)) {
      const size = 6;
      const made = document.createElement("canvas");
      made.width = size;
      made.height = size;
      const context = made.getContext("2d");
      context.strokeStyle = strong ? styleColour("--alert") : styleColour("--hatch");
      context.lineWidth = strong ? 1.8 : 1.3;
      context.beginPath();
      for (const shift of [-size, 0, size]) {
        context.moveTo(shift - 1, size + 1);
        context.lineTo(shift + size + 1, -1);
      }
      context.stroke();
      this.hatches.set(key, this.canvas.context.createPattern(made, "repeat"));
    }
    return this.hatches.get(key);
  }

  // -- window -------------------------------------------------------------------------------------

  get window() {
    const { span } = this.meta;
    const [begin, end] = this.state.window || [0, span];
    return begin < span && end > 0 ? [Math.max(0, begin), Math.min(span, end)] : [0, span];
  }

  setWindow(begin, end) {
    const { span } = this.meta;
    const wide = Math.min(span, Math.max(SHORTEST, end - begin));
    const first = Math.min(span - wide, Math.max(0, begin));
    this.state.set({ window: wide >= span ? null : [first, first + wide] });
  }

  zoom(factor, at) {
    if (!this.meta) return;
    const [begin, end] = this.window;
    const fixed = at ?? (begin + end) / 2;
    this.setWindow(fixed - (fixed - begin) * factor, fixed + (end - fixed) * factor);
  }

  pan(share) {
    if (!this.meta) return;
    const [begin, end] = this.window;
    this.setWindow(begin + share * (end - begin), end + share * (end - begin));
  }

  timeAt(x) {
    const [begin, end] = this.window;
    return begin + ((x - LABELS) / (this.canvas.width - LABELS)) * (end - begin);
  }

  refresh() {
    if (!this.meta || this.state.dock !== "timeline") return;
    this.canvas.ask();
    this.askLines();
    this.showWhere();
  }

  showWhere() {
    const [begin, end] = this.window;
    const digits = Math.min(11, Math.max(3, 3 - Math.floor(Math.log10(end - begin))));
    let many = "";
    if (this.lines && this.lineTotal > MOST_LINES_MEANT) many = ` · ${single(this.lineTotal, "#")} messages: zoom in for lines`;
    else if (this.lines && this.lineTotal > this.lines.sent.length) {
      many = ` · the ${this.lines.sent.length} longest of ${single(this.lineTotal, "#")} messages`;
    }
    setText(this.where, `${begin.toFixed(digits)} – ${end.toFixed(digits)} s (${single(end - begin, "s")})${many}`);
    this.canvas.node.setAttribute("aria-label", `Timeline from ${begin.toFixed(digits)} to ${end.toFixed(digits)} seconds`);
    this.canvas.node.dataset.lines = this.lines ? this.lines.sent.length : 0;
  }

  draw(context, width, height) {
    if (!this.meta) return;
    if (this.sizeSeen !== height) {
      this.sizeSeen = height;
      this.arrangeRows();
    }
    new Painter(context, this, width, height).paint();
    if (this.drag?.zoom) {
      context.fillStyle = styleColour("--veil");
      context.fillRect(this.drag.x, RULER, this.drag.to - this.drag.x, height - RULER - SLIDER);
    }
    if (this.store.failure) setText(this.message, this.store.failure);
  }

  // -- pointer and keys -------------------------------------------------------------------------

  listen() {
    const { node } = this.canvas;
    node.addEventListener("pointerdown", (event) => {
      if (!this.meta || event.button > 1) return;
      node.setPointerCapture(event.pointerId);
      const inSlider = event.offsetY > this.canvas.height - SLIDER;
      const moving = event.shiftKey || event.button === 1;
      this.drag = { x: event.offsetX, y: event.offsetY, to: event.offsetX, window: this.window, top: this.rows.top, slider: inSlider, moving };
      if (inSlider) this.slide(event.offsetX);
    });
    node.addEventListener("pointermove", (event) => this.move(event));
    node.addEventListener("pointerup", (event) => this.release(event));
    node.addEventListener("pointerleave", (event) => tip(event, null));
    node.addEventListener("dblclick", () => this.state.set({ window: null }));
    node.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    node.addEventListener("keydown", (event) => this.key(event));
  }

  move(event) {
    const { drag } = this;
    if (!this.meta) return;
    if (!drag) {
      tip(event, this.describe(event.offsetX, event.offsetY));
      return;
    }
    tip(event, null);
    if (drag.slider) this.slide(event.offsetX);
    else if (drag.moving) {
      const [begin, end] = drag.window;
      const moved = ((drag.x - event.offsetX) / (this.canvas.width - LABELS)) * (end - begin);
      this.setWindow(begin + moved, end + moved);
      this.rows.top = drag.top;
      this.scroll(drag.y - event.offsetY);
    } else {
      drag.to = event.offsetX;
      drag.zoom = Math.abs(drag.to - drag.x) > 4;
      this.canvas.ask();
    }
  }

  release(event) {
    const { drag } = this;
    this.drag = null;
    if (!drag || !this.meta || drag.slider || drag.moving) return;
    if (drag.zoom) {
      const [a, b] = [this.timeAt(Math.max(LABELS, Math.min(drag.x, drag.to))), this.timeAt(Math.max(drag.x, drag.to))];
      this.setWindow(a, b);
      return;
    }
    const row = this.rows.at(event.offsetY);
    if (row === null) return;
    if (event.offsetX < LABELS) {
      this.state.set({ ranks: new Set([this.rows.rankOf(row)]) });
      return;
    }
    const found = this.store.at(row, this.timeAt(event.offsetX));
    if (found && found.node >= 0) {
      this.state.chooseNode(found.node);
      this.panes.reveal();
    }
  }

  slide(x) {
    const [begin, end] = this.window;
    const middle = ((x - LABELS) / (this.canvas.width - LABELS)) * this.meta.span;
    this.setWindow(middle - (end - begin) / 2, middle + (end - begin) / 2);
  }

  wheel(event) {
    if (!this.meta) return;
    event.preventDefault();
    if (event.altKey) this.resizeRows(event.deltaY > 0 ? 1 / 1.2 : 1.2);
    else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      this.pan((event.deltaX || event.deltaY) / 1000);
    } else if (event.ctrlKey || event.metaKey || event.offsetY < RULER || !this.rows.overflows) {
      this.zoom(1.0015 ** event.deltaY, this.timeAt(Math.max(LABELS, event.offsetX)));
    } else this.scroll(event.deltaY);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const keys = {
      ArrowLeft: () => this.pan(-0.2),
      ArrowRight: () => this.pan(0.2),
      a: () => this.pan(-0.2),
      d: () => this.pan(0.2),
      "+": () => this.zoom(0.6),
      "=": () => this.zoom(0.6),
      w: () => this.zoom(0.6),
      "-": () => this.zoom(1 / 0.6),
      s: () => this.zoom(1 / 0.6),
      ArrowUp: () => this.scroll(-40),
      ArrowDown: () => this.scroll(40),
      Home: () => this.state.set({ window: null }),
      n: () => this.step(1),
      p: () => this.step(-1),
    };
    if (!(event.key in keys)) return;
    keys[event.key]();
    event.preventDefault();
    event.stopPropagation();
  }

  /** What lies under the pointer: a message, or a segment with its wait. */
  describe(x, y) {
    const row = this.rows.at(y);
    if (row === null || !this.store) return null;
    if (x < LABELS) return [this.rows.name(row)];
    const line = this.showMessages && this.drawn ? this.lineAt(x, y) : null;
    if (line !== null) return this.describeLine(line);
    const time = this.timeAt(x);
    const found = this.store.at(row, time);
    if (!found || found.node < 0) return [this.rows.name(row), `at ${time.toFixed(6)} s`];
    const lines = [
      this.nameOf(found.node),
      `${this.rows.name(row)} · ${this.pathOf(found.node).map((n) => this.nameOf(n)).slice(0, -1).join(" › ")}`,
    ];
    if (found.exact) lines.push(`from ${found.begin.toFixed(9)} s${found.end !== null ? `, for ${single(found.end - found.begin, "s")}` : ""}`);
    else lines.push(`${Math.round(100 * found.share)} % of ${single(found.end - found.begin, "s")} here: zoom in for details`);
    const wait = this.waits.at(this.meta.rows[row][2], time);
    if (wait !== null) lines.push(this.waits.words(wait));
    return lines;
  }

  lineAt(x, y) {
    let best = null;
    let nearest = NEAR;
    for (const [x0, y0, x1, y1, n] of this.drawn.places) {
      const [dx, dy] = [x1 - x0, y1 - y0];
      const long = dx * dx + dy * dy || 1;
      const along = Math.min(1, Math.max(0, ((x - x0) * dx + (y - y0) * dy) / long));
      const away = Math.hypot(x - x0 - along * dx, y - y0 - along * dy);
      if (away < nearest) [nearest, best] = [away, n];
    }
    return best;
  }

  describeLine(n) {
    const { lines } = this.drawn;
    return [
      `message ${this.rows.name(lines.from[n])} → ${this.rows.name(lines.to[n])}`,
      `${single(lines.bytes[n], "B")}, tag ${lines.tag[n]}`,
      `sent at ${lines.sent[n].toFixed(9)} s, received at ${lines.received[n].toFixed(9)} s`,
      `under way for ${single(lines.received[n] - lines.sent[n], "s")}`,
    ];
  }

  // -- instances ----------------------------------------------------------------------------------

  findInstances() {
    this.waits.findInstances();
    setText(this.which, this.meta ? this.waits.status : "");
  }

  /** Points out the next wait of the selection, or the one before. */
  step(by) {
    const wait = this.meta ? this.waits.step(by) : null;
    if (wait === null) {
      say("There is no recorded instance of this metric, call path and ranks");
      return;
    }
    const { place, begin, end } = this.waits.columns;
    this.pointOut(place[wait], begin[wait], end[wait]);
    setText(this.which, this.waits.status);
  }

  /** Shows a wait of a location, with what it waits for. */
  pointOut(place, begin, end) {
    const { rows, waits } = this;
    const row = rows.rowOfPlace.get(place) ?? -1;
    const wait = row >= 0 && waits.columns ? waits.at(place, (begin + end) / 2) : null;
    const causeRow = wait === null ? -1 : (rows.rowOfPlace.get(waits.columns.cause[wait]) ?? -1);
    this.instance = { begin, end, row, causeRow };
    const long = Math.max(SHORTEST, end - begin);
    this.setWindow(begin - 0.8 * long, end + 0.8 * long);
    if (row < 0) return;
    rows.only = null;
    const apart = causeRow >= 0 ? Math.abs(row - causeRow) * rows.height : 0;
    if (apart + rows.height > rows.room) rows.only = this.ranksOfInterest();
    this.arrangeRows();
    rows.centre([row, causeRow]);
    this.refreshRows();
  }

  /** Goes to a wait, or to the longest of the selection, on the timeline of a side. */
  async jump(side, instance) {
    const { state } = this;
    state.set({ trace: side, dock: "timeline" });
    await new Promise((resume) => {
      setTimeout(resume, 0);
    });
    if (!(await this.open())) return;
    this.findInstances();
    if (instance) this.pointOut(instance.place, instance.begin - this.meta.begin, instance.end - this.meta.begin);
    else if (this.waits.instances.length) this.step(1);
  }
}
