// What each receiver gets, and how large messages are: a table and two charts.

import { Canvas, button, element, fill, line, styleColour, tips } from "./dom.js";
import { column, fixed, marks, percent, single } from "./format.js";
import { QUANTITIES, insideOf, statistics } from "./model.js";

const [LEFT, RIGHT] = [58, 4]; // margins of the charts in CSS pixels

/** Numbers beside the map. */
export class Receivers {
  constructor(model, state, theme) {
    Object.assign(this, { model, state, theme });
    this.about = element("div", { class: "quietly" });
    this.table = element("table", { class: "statistics", "aria-label": "Messages of a receiver" });
    this.sorted = new Canvas({ class: "picture", role: "img" }, (...a) => this.drawSorted(...a));
    this.sizes = new Canvas({ class: "picture", role: "img" }, (...a) => this.drawSizes(...a));
    this.hear(this.sorted, () => this.order, (rank) => [
      `rank ${rank}`,
      ...Object.entries(QUANTITIES).map(([name, [text, unit]]) => `${text}: ${single(this.values[name][rank], unit)}`),
    ]);
    this.hear(this.sizes, () => this.sizeValues, (count, place) => [sizeName(place), `${single(count, "#")} messages`]);
  }

  /** Shows a tip for the bar under the pointer. */
  hear(canvas, bars, lines) {
    tips(canvas.node, (event) => {
      const list = this.values ? bars() : null;
      const place = list ? Math.floor(((event.offsetX - LEFT) / (canvas.width - LEFT - RIGHT)) * list.length) : -1;
      return list && place in list ? lines(list[place], place) : null;
    });
  }

  /** Shows numbers by rank of one side, or of both of which the second less the first is shown. */
  show(receivers, sides) {
    this.receivers = receivers;
    this.sides = sides;
    this.signed = receivers.length > 1;
    this.showTable();
    this.ask();
  }

  /** Shows words only. */
  showNothing(...words) {
    fill(this.about, ...words);
    fill(this.table);
    this.values = null;
    this.ask();
  }

  ask() {
    this.sorted.ask();
    this.sizes.ask();
  }

  showTable() {
    const combined = {};
    for (const name of ["senders", "empty_senders", ...Object.keys(QUANTITIES)]) {
      const last = this.receivers[this.receivers.length - 1][name];
      combined[name] = this.signed ? Float64Array.from(last, (v, n) => v - this.receivers[0][name][n]) : last;
    }
    this.values = combined;
    const rows = [
      ["senders", "senders of data", "#"],
      ["empty_senders", "senders of only empty messages", "#"],
      ...Object.entries(QUANTITIES).map(([name, [label, unit]]) => [name, label, unit]),
    ];
    const cells = rows.map(([name, label, unit]) => {
      const summary = statistics(combined[name]);
      const how = column(unit, Math.max(Math.abs(combined[name][summary.most]), Math.abs(combined[name][summary.least])));
      const mean = unit === "#" ? column("%", 1) : how;
      const text = (value, as = how) => as.text(as === how ? value : value / how.factor);
      return element(
        "tr",
        { "data-name": name, "data-mean": summary.mean, "data-most": combined[name][summary.most] },
        element("th", { scope: "row" }, `${label}${how.label ? ` (${how.label})` : ""}`),
        element("td", {}, text(summary.mean, mean)),
        element("td", {}, text(summary.deviation, mean)),
        element("td", { title: `rank ${summary.least}` }, text(combined[name][summary.least])),
        element("td", { title: `rank ${summary.most}` }, text(combined[name][summary.most])),
        element("td", {}, single(summary.sum, unit)),
      );
    });
    fill(
      this.table,
      element(
        "thead",
        {},
        element("tr", {}, ...["a receiver", "mean", "± sd", "least", "most", "all"].map((t) => element("th", { scope: "col" }, t))),
      ),
      element("tbody", {}, ...cells),
    );
    const sum = (values) => values.reduce((a, b) => a + b, 0);
    const size = this.model.meta.size;
    const pairs = size * (size - 1);
    const exchanging = sum(combined.senders);
    const idle = sum(combined.empty_senders);
    if (this.receivers.every((side) => side.messages.every((count) => count === 0))) {
      this.showNothing(
        `${this.model.nodeName(this.state.node)} sends no messages. `,
        button("whole program", "Select the whole program", () => {
          const open = new Set(this.state.nodesOpen);
          open.delete(0);
          this.state.set({ node: 0, nodesOpen: open });
        }),
      );
      return;
    }
    const path = this.model.isWhole(this.state.node) && !this.state.isOwnNode() ? "whole program" : this.model.nodeName(this.state.node);
    fill(
      this.about,
      this.signed
        ? `${path}: second minus first`
        : `${path}: ${percent(pairs ? exchanging / pairs : 0)} of ${single(pairs, "#")} pairs exchange data` +
            (idle ? `, ${percent(idle / pairs)} only empty messages` : ""),
    );
  }

  drawSorted(context, width, height) {
    if (!this.values) return;
    const [label, unit] = QUANTITIES[this.state.quantity];
    const own = this.values[this.state.quantity];
    this.order = [...own.keys()].sort((a, b) => own[b] - own[a]);
    const values = this.order.map((rank) => own[rank]);
    const most = Math.max(Math.abs(values[0]), Math.abs(values.at(-1)));
    const colour = (value) => this.theme.palette.css(most ? value / most : 0, this.signed);
    plot(context, width, height, values, unit, colour, values.length > 1 ? ["most", "least"] : []);
    this.sorted.node.setAttribute("aria-label", `${label} of each receiver, sorted, from ${single(values[0], unit)} to ${single(values.at(-1), unit)}`);
  }

  /** Messages by size of the selected call paths. */
  sizesOf(side) {
    const { model, state } = this;
    const nodes = model.arrays[`size_nodes${side}`];
    const table = model.arrays[`sizes${side}`];
    const width = nodes.length ? table.length / nodes.length : 0;
    const total = new Float64Array(width);
    const inside = insideOf(model.parents, state.node, state.isOwnNode());
    nodes.forEach((node, row) => {
      if (inside[node]) for (let n = 0; n < width; n += 1) total[n] += table[row * width + n];
    });
    return total;
  }

  drawSizes(context, width, height) {
    if (!this.values) return;
    const sides = this.sides.map((side) => this.sizesOf(side));
    const count = Math.max(...sides.map((s) => s.length));
    if (!count) return;
    let values = Array.from({ length: count }, (_, n) => (sides[sides.length - 1][n] || 0) - (sides.length > 1 ? sides[0][n] || 0 : 0));
    let last = values.length;
    while (last > 1 && !values[last - 1]) last -= 1;
    values = values.slice(0, last);
    plot(context, width, height, values, "#", (value) => this.theme.palette.css(0.55 * Math.sign(value), this.signed), ["0", last > 1 ? sizeName(last - 1) : ""]);
    this.sizes.node.setAttribute("aria-label", `Messages by size: ${values.map((v, n) => (v ? `${sizeName(n)}: ${v}` : "")).filter(Boolean).join(", ")}`);
    this.sizeValues = values;
  }
}

/** Words for a place in a table of messages by size. */
function sizeName(place) {
  if (place < 2) return place ? "1 B" : "0";
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
  return `≤ ${2 ** ((place - 1) % 10)} ${units[Math.floor((place - 1) / 10)]}`;
}

/** Bars beside each other, with marks on the left and words under the ends. */
function plot(context, width, height, values, unit, colour, ends) {
  const [left, right, top, bottom] = [LEFT, RIGHT, 8, height - 14];
  const [low, high] = values.reduce(([a, b], value) => [Math.min(a, value), Math.max(b, value)], [0, 0]);
  const span = high - low || 1;
  const y = (value) => bottom - ((value - low) / span) * (bottom - top);
  const wide = (width - left - right) / values.length;
  const how = column(unit, Math.max(high, -low));
  context.font = styleColour("--small-font");
  context.fillStyle = styleColour("--muted");
  context.strokeStyle = styleColour("--line");
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (const mark of marks(low / how.factor, high / how.factor, Math.max(1, height / 40))) {
    const at = y(mark * how.factor);
    line(context, left, Math.round(at) + 0.5, width - right, Math.round(at) + 0.5);
    const digits = (String(Number(mark.toPrecision(3))).split(".")[1] || "").length;
    context.fillText(`${fixed(mark, digits)} ${how.label}`.trim(), left - 4, Math.min(bottom, Math.max(top, at)));
  }
  values.forEach((value, place) => {
    if (!value) return;
    context.fillStyle = colour(value);
    const x = left + place * wide;
    context.fillRect(x, Math.min(y(value), y(0)), Math.max(0.7, wide - (wide > 4 ? 1 : 0)), Math.max(1, Math.abs(y(value) - y(0))));
  });
  context.fillStyle = styleColour("--muted");
  context.textBaseline = "bottom";
  context.textAlign = "left";
  if (ends[0]) context.fillText(ends[0], left, height);
  context.textAlign = "right";
  if (ends[1]) context.fillText(ends[1], width - right, height);
}
