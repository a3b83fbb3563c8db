// The timeline's panel: which part of the run and which rows are seen, and the data for them.

import { Canvas, element, setText, styleColour } from "./dom.js";
import { single } from "./format.js";
import { TileStore } from "./tile_store.js";
import { Instances, Waits } from "./timeline_instances.js";
import { LABELS, Looks, RULER, SLIDER, controls, legend } from "./timeline_looks.js";
import { MOST_LINES_MEANT, Painter } from "./timeline_paint.js";
import { Pointer } from "./timeline_pointer.js";
import { Rows } from "./timeline_rows.js";

const MOST_LINES = 2000;
const LINES_AFTER = 90; // milliseconds without a change of the view
const SHORTEST = 2e-9; // seconds of a window
const POLL = 600; // milliseconds between looks whether a timeline is ready

/** The panel of the timeline. */
export class Timeline {
  constructor(model, state, source, panes) {
    Object.assign(this, { model, state, source, panes });
    this.meta = null;
    this.lines = null;
    this.drawn = null; // messages as they were drawn last, with their places on the canvas
    this.canvas = new Canvas(
      { class: "picture timeline", role: "application", tabindex: "0", "aria-label": "Timeline" },
      (...a) => this.draw(...a),
    );
    this.waits = new Waits(model, state);
    this.looks = new Looks(model, state, this.waits);
    this.rows = new Rows(model, state, this.canvas);
    this.instances = new Instances(this);
    this.pointer = new Pointer(this);
    this.controls = controls(this);
    this.where = element("span", { class: "quietly where" });
    this.message = element("div", { class: "note" });
    this.node = element(
      "div",
      { class: "timeline-panel" },
      this.controls.node,
      this.canvas.node,
      this.message,
      legend(this.looks.kinds, this.where),
    );
    state.listen(["dock", "trace"], () => this.open());
    state.listen(["window", "metric", "node", "theme"], () => this.refresh());
    state.listen(["metric", "node", "ranks"], () => this.instances.find());
    state.listen(["ranks", "drawn", "rowHeight"], () => this.arrangeRows());
    state.listen(["rowTop"], () => this.followRows());
    state.listen(["instance"], () => this.instances.restore());
  }

  // -- data -------------------------------------------------------------------------------------

  /** Gets what there is when the panel is looked at; resolves to whether it can be shown. */
  open() {
    const { state } = this;
    if (state.dock !== "timeline") return Promise.resolve(false);
    if (this.controls.sides) this.controls.sides.value = String(state.trace);
    if (this.side !== state.trace) {
      this.side = state.trace;
      this.meta = null;
      this.lines = null;
      Object.assign(this.instances, { shown: null, followed: null });
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
    this.instances.find();
    this.instances.restore();
    this.refresh();
    return true;
  }

  showMessage(meta) {
    const text = {
      none: "This measurement holds no trace: measure with --trace for a timeline.",
      failed: `The timeline cannot be shown: ${meta.why}`,
      preparing: `The timeline is being prepared: ${Math.round(100 * (meta.share || 0))} %`,
      ready: (meta.notes || []).join("; "),
    }[meta.state];
    setText(this.message, text || "");
    this.message.hidden = !text;
  }

  askLines() {
    clearTimeout(this.lineTimer);
    if (!this.meta || !this.state.drawn.messages || !this.meta.lines) {
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
      const reply = await this.source.lines(side, begin, end, rows, MOST_LINES).catch(() => null);
      if (!reply || turn !== this.lineTurn || this.meta !== meta) return;
      this.lines = reply.arrays;
      this.lineTotal = reply.meta.total;
      this.showWhere();
      this.canvas.ask();
    }, LINES_AFTER);
  }

  // -- rows -------------------------------------------------------------------------------------

  /** Selected ranks, and those of the wait that is pointed out; null for all. */
  ranksOfInterest() {
    const ranks = new Set(this.state.ranks);
    const { shown } = this.instances;
    for (const row of shown ? [shown.row, shown.causeRow] : []) {
      if (row >= 0) ranks.add(this.rows.rankOf(row));
    }
    return ranks.size ? ranks : null;
  }

  arrangeRows() {
    if (!this.meta) return;
    this.rows.only = this.state.drawn.only ? this.ranksOfInterest() : null;
    if (this.state.drawn.only && !this.rows.only) this.state.draw("only", false);
    this.controls.show();
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

  followRows() {
    if (!this.meta) return;
    this.rows.follow();
    this.refreshRows();
  }

  refreshRows() {
    this.canvas.ask();
    this.askLines();
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

  /** The whole run, and all ranks as far as there is room for them. */
  showAll() {
    this.state.draw("only", false);
    this.state.set({ window: null, rowHeight: null, rowTop: 0 });
    this.arrangeRows();
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
    const { drag } = this.pointer;
    if (drag?.zoom) {
      context.fillStyle = styleColour("--veil");
      context.fillRect(drag.x, RULER, drag.to - drag.x, height - RULER - SLIDER);
    }
    if (this.store.failure) {
      setText(this.message, this.store.failure);
      this.message.hidden = false;
    }
  }
}
