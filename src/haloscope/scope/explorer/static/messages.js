// The panel of messages: gets what the selected call path sends, shows the map of senders and receivers.

import { Canvas, button, clipped, element, menu, setText, styleColour, tip } from "./dom.js";
import { marks, single } from "./format.js";
import { DIFFERENCE, QUANTITIES, kept } from "./model.js";
import { Receivers } from "./receivers.js";

const CELLS = 256; // along a side of the map, at most
const MARGIN = { left: 54, top: 18, right: 4, bottom: 4 };

/** Draws cells of a window of ranks, and lets it be zoomed and moved. */
class CommunicationMap {
  constructor(model, state, theme) {
    Object.assign(this, { model, state, theme });
    this.map = new Canvas(
      { class: "picture map", role: "img", tabindex: "0", "aria-label": "Communication map" },
      (...a) => this.drawMap(...a),
    );
    this.image = document.createElement("canvas");
    this.legend = element("div", { class: "gradient" });
    this.ends = element("div", { class: "ends" }, element("span"), element("span"));
    this.listen();
  }

  /** Shows cells (by number, each with its sums) of a window; null where there are none to show. */
  show(sums, window, signed) {
    this.sums = sums;
    this.shownWindow = window;
    this.signed = signed;
    if (sums) {
      this.findEnds();
      this.paint();
    }
    this.map.ask();
  }

  listen() {
    const node = this.map.node;
    let drag = null;
    node.addEventListener("pointerdown", (event) => {
      node.setPointerCapture(event.pointerId);
      drag = { from: this.rankAt(event.offsetX, event.offsetY), pan: event.shiftKey };
      this.box = null;
    });
    node.addEventListener("pointermove", (event) => {
      const at = this.rankAt(event.offsetX, event.offsetY);
      if (drag && drag.pan) {
        const moved = this.view();
        const [ds, dr] = [Math.round(drag.from.s - at.s), Math.round(drag.from.r - at.r)];
        if (ds || dr) this.state.set({ map: this.bounded(moved.s0 + ds, moved.s1 + ds, moved.r0 + dr, moved.r1 + dr) });
      } else if (drag) {
        this.box = [drag.from, at];
        this.map.ask();
      }
      tip(event, this.describe(event.offsetX, event.offsetY));
    });
    node.addEventListener("pointerup", () => {
      const { box } = this;
      this.box = null;
      if (drag && !drag.pan && box) {
        const s = [Math.floor(Math.min(box[0].s, box[1].s)), Math.ceil(Math.max(box[0].s, box[1].s))];
        const r = [Math.floor(Math.min(box[0].r, box[1].r)), Math.ceil(Math.max(box[0].r, box[1].r))];
        const far = Math.abs(box[0].x - box[1].x) > 5 || Math.abs(box[0].y - box[1].y) > 5;
        if (far) this.state.set({ map: this.bounded(s[0], s[1], r[0], r[1]) });
      }
      drag = null;
      this.map.ask();
    });
    node.addEventListener("pointerleave", (event) => tip(event, null));
    node.addEventListener("dblclick", () => this.state.set({ map: null }));
    node.addEventListener(
      "wheel",
      (event) => {
        event.preventDefault();
        this.zoom(event.deltaY > 0 ? 1.4 : 1 / 1.4, this.rankAt(event.offsetX, event.offsetY));
      },
      { passive: false },
    );
    node.addEventListener("keydown", (event) => {
      const view = this.view();
      const step = Math.max(1, Math.round((view.s1 - view.s0) / 8));
      const moves = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, -step], ArrowDown: [0, step] };
      if (event.key in moves) {
        const [s, r] = moves[event.key];
        this.state.set({ map: this.bounded(view.s0 + s, view.s1 + s, view.r0 + r, view.r1 + r) });
      } else if (event.key === "+") this.zoom(0.5);
      else if (event.key === "-") this.zoom(2);
      else if (event.key === "0") this.state.set({ map: null });
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
  }

  view() {
    const { size } = this.model.meta;
    return this.state.map || { s0: 0, s1: size, r0: 0, r1: size };
  }

  /** A window within the ranks, of at least one of each. */
  bounded(s0, s1, r0, r1) {
    const { size } = this.model.meta;
    const fit = (low, high) => {
      const width = Math.max(1, Math.min(size, Math.round(high - low)));
      const first = Math.max(0, Math.min(size - width, Math.round(low)));
      return [first, first + width];
    };
    const [a, b] = fit(s0, s1);
    const [c, d] = fit(r0, r1);
    return b - a === size && d - c === size ? null : { s0: a, s1: b, r0: c, r1: d };
  }

  zoom(factor, at) {
    const { s0, s1, r0, r1 } = this.view();
    const s = at ? Math.min(s1, Math.max(s0, at.s)) : (s0 + s1) / 2;
    const r = at ? Math.min(r1, Math.max(r0, at.r)) : (r0 + r1) / 2;
    this.state.set({ map: this.bounded(s - (s - s0) * factor, s + (s1 - s) * factor, r - (r - r0) * factor, r + (r1 - r) * factor) });
  }

  findEnds() {
    this.most = 0;
    this.least = Infinity;
    for (const sum of this.sums.values()) {
      const size = Math.abs(sum[this.state.quantity]);
      if (size > this.most) this.most = size;
      if (size > 0 && size < this.least) this.least = size;
    }
    if (!this.most) this.least = 0;
  }

  /** Place of a value on the logarithmic scale, 0 to 1, with its sign. */
  place(value) {
    const size = Math.abs(value);
    if (!size || !this.most) return 0;
    const span = Math.log(this.most / this.least);
    // The least value has a colour of its own: nothing at all has none.
    const share = span > 0 ? 0.08 + (0.92 * Math.log(size / this.least)) / span : 1;
    return Math.sign(value) * share;
  }

  paint() {
    const { s0, s1, r0, r1 } = this.shownWindow;
    const [columns, rows] = [Math.min(CELLS, s1 - s0), Math.min(CELLS, r1 - r0)];
    this.image.width = columns;
    this.image.height = rows;
    const context = this.image.getContext("2d");
    const pixels = context.createImageData(columns, rows);
    for (const [cell, sum] of this.sums) {
      const value = sum[this.state.quantity];
      if (!value) continue;
      const share = this.place(value);
      const colour = this.signed ? this.theme.palette.difference(share) : this.theme.palette.value(share);
      pixels.data.set([...colour, 255], 4 * cell);
    }
    context.putImageData(pixels, 0, 0);
    const [, unit] = QUANTITIES[this.state.quantity];
    this.legend.style.background = this.theme.palette.gradient(this.signed);
    const low = this.signed ? -this.most : this.least;
    setText(this.ends.children[0], single(low, unit));
    setText(this.ends.children[1], `${single(this.most, unit)} (log)`);
  }

  frame() {
    const width = this.map.width - MARGIN.left - MARGIN.right;
    const height = this.map.height - MARGIN.top - MARGIN.bottom;
    const { s0, s1, r0, r1 } = this.view();
    const size = Math.min(width / (s1 - s0), height / (r1 - r0));
    return { left: MARGIN.left, top: MARGIN.top, width: size * (s1 - s0), height: size * (r1 - r0), size };
  }

  rankAt(x, y) {
    const { left, top, size } = this.frame();
    const { s0, r0 } = this.view();
    return { s: s0 + (x - left) / size, r: r0 + (y - top) / size, x, y };
  }

  drawMap(context, width, height) {
    const { left, top, width: w, height: h, size } = this.frame();
    const { s0, s1, r0, r1 } = this.view();
    context.imageSmoothingEnabled = false;
    context.fillStyle = styleColour("--sunk");
    context.fillRect(left, top, w, h);
    if (this.sums && this.shownWindow) {
      const shown = this.shownWindow;
      const [x, y] = [left + (shown.s0 - s0) * size, top + (shown.r0 - r0) * size];
      clipped(context, left, top, w, h, () =>
        context.drawImage(this.image, x, y, (shown.s1 - shown.s0) * size, (shown.r1 - shown.r0) * size),
      );
    }
    context.strokeStyle = styleColour("--line");
    context.strokeRect(left - 0.5, top - 0.5, w + 1, h + 1);
    context.fillStyle = styleColour("--muted");
    context.font = styleColour("--small-font");
    context.textBaseline = "bottom";
    context.textAlign = "left";
    context.fillText("sender →", left, top - 3);
    for (const mark of marks(s0, s1 - 1, Math.max(2, w / 60))) {
      const x = left + (mark - s0 + 0.5) * size;
      if (!Number.isInteger(mark) || x < left + 60 || x > left + w - 6) continue;
      context.textAlign = "center";
      context.fillText(String(mark), x, top - 3);
    }
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (const mark of marks(r0, r1 - 1, Math.max(2, h / 40))) {
      if (Number.isInteger(mark)) context.fillText(String(mark), left - 5, top + (mark - r0 + 0.5) * size);
    }
    context.save();
    context.translate(9, top + h / 2);
    context.rotate(-Math.PI / 2);
    context.textAlign = "center";
    context.fillText("← receiver", 0, 0);
    context.restore();
    context.strokeStyle = styleColour("--accent");
    for (const rank of this.state.ranks) {
      if (this.state.ranks.size > 64) break;
      if (rank >= r0 && rank < r1) context.strokeRect(left, top + (rank - r0) * size, w, Math.max(1, size));
    }
    if (this.box) {
      context.fillStyle = styleColour("--veil");
      const [a, b] = this.box;
      context.fillRect(a.x, a.y, b.x - a.x, b.y - a.y);
      context.strokeRect(a.x, a.y, b.x - a.x, b.y - a.y);
    }
    this.map.node.setAttribute(
      "aria-label",
      `Communication map: ${QUANTITIES[this.state.quantity][0]}, senders ${s0} to ${s1 - 1}, receivers ${r0} to ${r1 - 1}`,
    );
  }

  describe(x, y) {
    if (!this.sums) return null;
    const at = this.rankAt(x, y);
    const { s0, s1, r0, r1 } = this.shownWindow;
    if (at.s < s0 || at.r < r0 || at.s >= s1 || at.r >= r1) return null;
    const [columns, rows] = [Math.min(CELLS, s1 - s0), Math.min(CELLS, r1 - r0)];
    const c = Math.floor(((at.s - s0) * columns) / (s1 - s0));
    const r = Math.floor(((at.r - r0) * rows) / (r1 - r0));
    const range = (first, count, span, cell) => {
      const low = first + Math.ceil((cell * span) / count);
      const high = first + Math.ceil(((cell + 1) * span) / count) - 1;
      return low >= high ? `${low}` : `${low}–${high}`;
    };
    const head = `${range(s0, columns, s1 - s0, c)} → ${range(r0, rows, r1 - r0, r)}`;
    const sum = this.sums.get(r * columns + c);
    if (!sum) return [head, "no messages"];
    return [
      head,
      ...(sum.pairs > 1 ? [`${single(sum.pairs, "#")} pairs`] : []),
      ...Object.entries(QUANTITIES).map(([name, [label, unit]]) => `${label}: ${single(sum[name], unit)}`),
    ];
  }
}

const MOST_ANSWERS_KEPT = 40;

/** The panel of messages. */
export class Messages {
  constructor(model, state, source, theme) {
    Object.assign(this, { model, state, source, theme });
    this.map = new CommunicationMap(model, state, theme);
    this.numbers = new Receivers(model, state, theme);
    this.quantity = menu(
      "Quantity of the map",
      Object.entries(QUANTITIES).map(([key, [label]]) => [key, label]),
      state.quantity,
      (quantity) => state.set({ quantity }),
    );
    this.node = element(
      "div",
      { class: "messages" },
      element(
        "div",
        { class: "map-side" },
        element(
          "div",
          { class: "strip" },
          this.quantity,
          button("−", "Zoom out", () => this.map.zoom(2)),
          button("+", "Zoom in", () => this.map.zoom(0.5)),
          button("whole", "Show all ranks", () => state.set({ map: null })),
          element("div", { class: "scale small" }, this.map.legend, this.map.ends),
        ),
        this.map.map.node,
      ),
      element("div", { class: "map-numbers" }, this.numbers.about, this.numbers.table),
      element(
        "div",
        { class: "charts" },
        element("h3", {}, "By receiver, sorted"),
        this.numbers.sorted.node,
        element("h3", {}, "Messages by size"),
        this.numbers.sizes.node,
      ),
    );
    this.answers = new Map();
    state.listen(["view", "node", "nodesOpen", "map", "dock"], () => this.ask());
    state.listen(["quantity", "theme", "scale", "ranks"], () => this.show());
  }

  sidesShown() {
    return this.state.view === DIFFERENCE ? [0, 1] : [Number(this.state.view)];
  }

  async ask() {
    if (this.state.dock !== "messages") return;
    const { node } = this.state;
    const own = this.state.isOwnNode();
    const window = this.map.view();
    const selection = `${node} ${own}`;
    const turn = (this.turn = (this.turn || 0) + 1);
    const sides = this.sidesShown();
    const answer = (key, ask) => kept(this.answers, key, ask, MOST_ANSWERS_KEPT);
    const answers = await Promise.all(
      sides.flatMap((side) => [
        answer(`cells ${side} ${selection} ${Object.values(window)}`, () => this.source.cells(side, node, own, window, CELLS)),
        answer(`receivers ${side} ${selection}`, () => this.source.receivers(side, node, own)),
      ]),
    ).catch((error) => {
      this.numbers.showNothing(String(error.message || error));
      return null;
    });
    if (!answers || turn !== this.turn) return;
    this.cells = answers.filter((_, n) => n % 2 === 0);
    this.receivers = answers.filter((_, n) => n % 2 === 1);
    this.shownWindow = window;
    this.show();
  }

  show() {
    this.quantity.value = this.state.quantity;
    if (!this.cells || this.state.dock !== "messages") return;
    if (this.cells.some((cells) => cells === null) || this.receivers.some((r) => r === null)) {
      this.numbers.showNothing("This file does not hold messages of single call paths: select the whole program.");
      this.map.show(null, this.shownWindow, false);
      return;
    }
    this.numbers.show(this.receivers, this.sidesShown());
    this.map.show(this.combine(), this.shownWindow, this.cells.length > 1);
  }

  /** Cells of the view: of one side, or the second less the first. */
  combine() {
    const sums = new Map();
    this.cells.forEach((cells, number) => {
      const sign = this.cells.length === 2 && number === 0 ? -1 : 1;
      cells.cell.forEach((cell, place) => {
        const sum = kept(sums, cell, () => ({}));
        for (const name of ["pairs", ...Object.keys(QUANTITIES)]) sum[name] = (sum[name] ?? 0) + sign * cells[name][place];
      });
    });
    return sums;
  }
}
