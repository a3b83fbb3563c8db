// How the values of the selection spread over the ranks: in numbers, as histogram and box plot, and on the topology.

import { contrast } from "./colours.js";
import { Canvas, button, element, fill, line, menu, styleColour, tabs, tips } from "./dom.js";
import { listed, marks, percent } from "./format.js";
import { statistics } from "./model.js";

const MOST_BARS = 48;
const ALIKE = 1e-9; // of the greatest
const ALIKE_BARS = 9; // of which the one in the middle holds values that are all alike
const WHISKER = 1.5; // of the range between the quartiles

/** How many ranks have how much. */
class Histogram {
  constructor(state) {
    this.state = state;
    this.canvas = new Canvas({ class: "picture", role: "img", tabindex: "0" }, (...a) => this.draw(...a));
  }

  /** Takes values of `ranks`, their `summary`, and `how` they are shown. */
  show(ranks, values, summary, how) {
    Object.assign(this, { ranks, values, summary, how });
    this.canvas.ask();
  }

  bars() {
    const { summary, values } = this;
    const low = values[summary.least];
    const high = values[summary.most];
    // Values that differ by rounding alone are one bar, in the middle.
    const alike = high - low <= ALIKE * Math.max(Math.abs(low), Math.abs(high));
    if (alike) {
      const width = Math.abs(low) / ALIKE_BARS || 1 / (this.how.factor || 1);
      const bars = Array.from({ length: ALIKE_BARS }, (_, n) => (n === (ALIKE_BARS - 1) / 2 ? [...this.ranks] : []));
      return { low: low - (ALIKE_BARS / 2) * width, high: low + (ALIKE_BARS / 2) * width, width, bars, only: low };
    }
    const count = Math.max(1, Math.min(MOST_BARS, Math.ceil(2 * Math.sqrt(values.length))));
    const width = (high - low) / count;
    const bars = Array.from({ length: count }, () => []);
    values.forEach((value, place) => {
      bars[Math.min(count - 1, Math.floor((value - low) / width))].push(this.ranks[place]);
    });
    return { low, high, width, bars };
  }

  draw(context, width, height) {
    if (!this.summary) return;
    const { low, high, width: step, bars, only } = this.bars();
    const [left, right, top] = [38, 14, 20];
    const box = Math.min(64, height * 0.28);
    const bottom = height - box - 22;
    const tallest = Math.max(...bars.map((ranks) => ranks.length));
    const span = high - low || step;
    const x = (value) => left + ((value - low) / span) * (width - left - right);
    this.place = { x, left, right, top, bottom, step, low, span, bars };
    const [ink, faint, accent] = ["--text", "--muted", "--accent"].map(styleColour);
    context.font = styleColour("--small-font");
    bars.forEach((ranks, number) => {
      const from = x(low + number * step);
      const to = x(Math.min(low + (number + 1) * step, low + span));
      const tall = (ranks.length / tallest) * (bottom - top);
      context.fillStyle = this.how.row(low + (number + 0.5) * step).colour || faint;
      context.fillRect(from + 0.5, bottom - tall, Math.max(1, to - from - 1), tall);
      if (ranks.some((rank) => this.state.ranks.has(rank))) {
        context.strokeStyle = accent;
        context.lineWidth = 2;
        context.strokeRect(from + 1, bottom - tall, Math.max(1, to - from - 2), tall);
      }
    });
    context.fillStyle = faint;
    context.strokeStyle = styleColour("--line");
    context.lineWidth = 1;
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (const mark of marks(0, tallest, 4)) {
      if (!Number.isInteger(mark)) continue;
      const y = bottom - (mark / tallest) * (bottom - top);
      context.fillText(String(mark), left - 5, y);
      line(context, left - 3, y, left, y);
    }
    line(context, left, bottom + 0.5, width - right, bottom + 0.5);
    context.textBaseline = "top";
    const factor = this.how.factor || 1;
    const ticks = only === undefined ? marks(low * factor, (low + span) * factor, Math.max(2, width / 110)) : [only * factor];
    for (const mark of ticks) {
      const at = x(mark / factor);
      line(context, at, bottom, at, bottom + 4);
      context.textAlign = at < left + 30 ? "left" : at > width - 40 ? "right" : "center";
      context.fillText(this.how.how.text(mark), at, bottom + 6);
    }
    context.textAlign = "left";
    context.fillText("ranks", 6, 3);
    this.drawBox(context, x, bottom + 26, box - 14, ink, faint);
    this.canvas.node.setAttribute(
      "aria-label",
      `Histogram over ${this.values.length} ranks, from ${this.how.spoken(this.values[this.summary.least])} to ${this.how.spoken(this.values[this.summary.most])}, with box plot`,
    );
  }

  drawBox(context, x, top, tall, ink, faint) {
    const { summary } = this;
    const [first, middle, third] = summary.quartiles;
    const reach = WHISKER * (third - first);
    const inside = summary.sorted.filter((v) => v >= first - reach && v <= third + reach);
    const [low, high] = [inside[0], inside[inside.length - 1]];
    const y = top + tall / 2;
    context.strokeStyle = ink;
    context.fillStyle = styleColour("--select");
    context.lineWidth = 1;
    line(context, x(low), y, x(high), y);
    line(context, x(low), y - tall / 4, x(low), y + tall / 4);
    line(context, x(high), y - tall / 4, x(high), y + tall / 4);
    const wide = Math.max(1, x(third) - x(first));
    context.fillRect(x(first), top, wide, tall);
    context.strokeRect(x(first), top, wide, tall);
    context.lineWidth = 2;
    line(context, x(middle), top, x(middle), top + tall);
    context.lineWidth = 1;
    const mean = x(summary.mean);
    context.fillStyle = ink;
    context.beginPath();
    context.moveTo(mean, y - 5);
    context.lineTo(mean + 5, y);
    context.lineTo(mean, y + 5);
    context.lineTo(mean - 5, y);
    context.fill();
    context.strokeStyle = faint;
    for (const value of summary.sorted) {
      if (value >= low && value <= high) continue;
      context.beginPath();
      context.arc(x(value), y, 2.5, 0, 7);
      context.stroke();
    }
  }

  barAt(px, py) {
    const { place } = this;
    if (!place || py > place.bottom + 2) return null;
    const value = place.low + ((px - place.left) / (this.canvas.width - place.left - place.right)) * place.span;
    const number = Math.min(place.bars.length - 1, Math.floor((value - place.low) / place.step));
    const ranks = place.bars[number];
    if (!ranks) return null;
    return {
      ranks,
      lines: [
        `${ranks.length} rank${ranks.length === 1 ? "" : "s"}`,
        `${this.how.spoken(place.low + number * place.step)} to ${this.how.spoken(place.low + (number + 1) * place.step)}`,
        ranks.length ? `ranks ${listed(ranks)}` : "",
      ].filter(Boolean),
    };
  }
}

const GREATEST = 64; // CSS pixels of a cell
const WITH_RANK = 22; // CSS pixels of a cell that has room for its rank
const WITH_VALUE = 46; // and for its value
const GAP = 10; // CSS pixels between panels
const MARGIN = 6;
const AXES = 84; // CSS pixels beside the cells that have room for the names of the axes

/** A grid of cells, one for each rank. */
class Topology {
  constructor(model, state, ranks) {
    Object.assign(this, { model, state, ranks });
    this.canvas = new Canvas({ class: "picture", role: "img", tabindex: "0" }, (...a) => this.draw(...a));
    this.shapes = this.list();
  }

  /** Takes values of the ranks, and `how` they are shown. */
  show(values, how) {
    Object.assign(this, { values, how });
    this.canvas.ask();
  }

  get number() {
    return Math.min(this.state.topology, this.shapes.length - 1);
  }

  /** Cartesian communicators, then the plain grid of ranks: {label, rows, columns, panels, at}. */
  list() {
    const shapes = this.model.meta.topologies.map(({ name, dims, axes, members }) => {
      const shape = dims.length === 1 ? [1, 1, dims[0]] : dims.length === 2 ? [1, ...dims] : [
        dims.slice(0, -2).reduce((a, b) => a * b, 1),
        ...dims.slice(-2),
      ];
      return {
        label: `${dims.join(" × ")}${name ? ` ${name}` : ""}`,
        dims,
        axes,
        panels: shape[0],
        rows: shape[1],
        columns: shape[2],
        members,
      };
    });
    const count = this.ranks.length;
    const columns = Math.max(1, 2 ** Math.ceil(Math.log2(Math.sqrt(count))));
    shapes.push({
      label: "ranks in order",
      dims: null,
      panels: 1,
      rows: Math.ceil(count / columns),
      columns: Math.min(columns, count),
      members: this.ranks,
    });
    return shapes;
  }

  draw(context, width, height) {
    if (!this.values) return;
    const shape = this.shapes[this.number];
    // Lines of few cells are folded: a ring of 64 ranks is no strip of 64 dots.
    let { rows, columns } = shape;
    if (shape.panels === 1 && rows === 1 && columns > 16) {
      columns = Math.ceil(Math.sqrt(columns * 2));
      rows = Math.ceil(shape.columns / columns);
    }
    const label = shape.panels > 1 ? 12 : 0;
    let best = { size: 0, across: 1 };
    for (let across = 1; across <= shape.panels; across += 1) {
      const down = Math.ceil(shape.panels / across);
      const size = Math.min(
        (width - 2 * MARGIN - GAP * (across - 1)) / (across * columns),
        (height - 2 * MARGIN - (GAP + label) * down) / (down * rows),
      );
      if (size > best.size) best = { size, across };
    }
    const size = Math.max(1, Math.min(GREATEST, best.size));
    const value = new Map(this.ranks.map((rank, place) => [rank, this.values[place]]));
    const [ink, faint, accent, muted] = ["--text", "--line", "--accent", "--muted"].map(styleColour);
    context.font = styleColour("--small-font");
    this.cells = [];
    context.textAlign = "center";
    context.textBaseline = "middle";
    const inset = size > 5 ? 0.5 : 0;
    for (let panel = 0; panel < shape.panels; panel += 1) {
      const left = MARGIN + (panel % best.across) * (columns * size + GAP);
      const top = MARGIN + label + Math.floor(panel / best.across) * (rows * size + GAP + label);
      if (label) {
        context.fillStyle = muted;
        context.textAlign = "left";
        context.fillText(this.panelName(shape, panel), left, top - 6);
        context.textAlign = "center";
      }
      for (let cell = 0; cell < shape.rows * shape.columns; cell += 1) {
        const rank = shape.members[panel * shape.rows * shape.columns + cell];
        if (rank === undefined) continue;
        const x = left + (cell % columns) * size;
        const y = top + Math.floor(cell / columns) * size;
        const shown = this.how.row(value.get(rank) ?? 0);
        if (shown.colour) {
          context.fillStyle = shown.colour;
          context.fillRect(x + inset, y + inset, size - 2 * inset, size - 2 * inset);
        } else if (size > 3) {
          context.strokeStyle = faint;
          context.strokeRect(x + 1, y + 1, size - 2, size - 2);
        }
        if (this.state.ranks.has(rank)) {
          context.strokeStyle = accent;
          context.lineWidth = 2;
          context.strokeRect(x + 1, y + 1, size - 2, size - 2);
          context.lineWidth = 1;
        }
        if (size >= WITH_RANK) {
          const lines = size >= WITH_VALUE ? [String(rank), shown.text] : [String(rank)];
          context.fillStyle = shown.colour ? contrast(shown.colour) : ink;
          lines.forEach((text, n) => context.fillText(text, x + size / 2, y + size / 2 + 13 * (n - (lines.length - 1) / 2)));
        }
        this.cells.push([x, y, size, rank, cell, panel]);
      }
    }
    const right = MARGIN + best.across * (columns * size + GAP);
    if (shape.dims?.length > 1 && columns === shape.columns && width - right > AXES) {
      context.fillStyle = muted;
      context.textAlign = "left";
      const last = shape.dims.length - 1;
      const name = (axis) => shape.axes?.[axis] ?? `dimension ${axis}`;
      context.fillText(`→ ${name(last)}`, right, MARGIN + 8);
      context.fillText(`↓ ${name(last - 1)}`, right, MARGIN + 24);
    }
    this.canvas.node.setAttribute("aria-label", `Topology ${shape.label} coloured by value`);
    this.shape = shape;
  }

  panelName(shape, panel) {
    const leading = shape.dims.slice(0, -2);
    return `${coordinates(panel, leading).join(", ")}, ·, ·`;
  }

  cellAt(px, py) {
    const cell = (this.cells || []).find(([x, y, size]) => px >= x && px < x + size && py >= y && py < y + size);
    if (!cell) return null;
    const [, , , rank, number, panel] = cell;
    const { shape } = this;
    const place = this.ranks.indexOf(rank);
    return {
      ranks: [rank],
      lines: [
        `rank ${rank}`,
        shape.dims ? `at (${coordinates(panel * shape.rows * shape.columns + number, shape.dims).join(", ")})` : "",
        place >= 0 ? this.how.spoken(this.values[place]) : "not measured",
      ].filter(Boolean),
    };
  }
}

function coordinates(number, dims) {
  const position = [];
  let rest = number;
  for (let axis = dims.length - 1; axis >= 0; axis -= 1) {
    position.unshift(rest % dims[axis]);
    rest = Math.floor(rest / dims[axis]);
  }
  return position;
}

const SHOWN_FROM = 0.0005; // share that a single file has spread evenly

/** The views beside the tree of the system pane. */
export class Spread {
  constructor(model, state, panes) {
    Object.assign(this, { model, state, panes });
    this.ranks = [...model.rankItem.keys()].sort((a, b) => a - b);
    this.histogram = new Histogram(state);
    this.topology = new Topology(model, state, this.ranks);
    const tree = element("div", { class: "fill" }, panes.system.tree.node);
    const distribution = element("div", { class: "fill" }, this.histogram.canvas.node);
    const topology = element("div", { class: "fill column" });
    if (this.topology.shapes.length > 1) {
      this.choice = menu(
        "Topology",
        this.topology.shapes.map((one, number) => [String(number), one.label]),
        "0",
        (number) => state.set({ topology: Number(number) }),
      );
      topology.append(element("div", { class: "strip" }, this.choice));
    }
    topology.append(this.topology.canvas.node);
    this.tabs = tabs(
      "Views of the system",
      [
        ["tree", "Tree", tree],
        ["distribution", "Spread", distribution],
        ["topology", "Topology", topology],
      ],
      (key) => state.set({ systemTab: key }),
    );
    const { head, body } = panes.system;
    head.insertBefore(this.tabs.list, head.querySelector(".gap"));
    this.numbers = element("div", { class: "numbers", role: "group", "aria-label": "Spread over ranks" });
    body.append(tree, distribution, topology, this.numbers);
    panes.system.listeners.push((values, how, spread) => this.show(values, how, spread));
    state.listen(["systemTab", "topology", "ranks", "theme", "scale"], () => this.update());
    this.listenTo(this.histogram.canvas.node, (x, y) => this.histogram.barAt(x, y));
    this.listenTo(this.topology.canvas.node, (x, y) => this.topology.cellAt(x, y));
    this.update();
  }

  listenTo(node, find) {
    tips(node, (event) => find(event.offsetX, event.offsetY)?.lines);
    node.addEventListener("click", (event) => {
      const hit = find(event.offsetX, event.offsetY);
      this.state.set({ ranks: new Set(hit ? hit.ranks : []) });
    });
  }

  update() {
    this.tabs.choose(this.state.systemTab);
    if (this.choice) this.choice.value = String(this.topology.number);
    this.histogram.canvas.ask();
    this.topology.canvas.ask();
  }

  show(values, how, spread) {
    this.how = how;
    const all = this.model.byRank(values);
    this.values = this.ranks.map((rank) => all[rank]);
    this.summary = statistics(this.values);
    this.histogram.show(this.ranks, this.values, this.summary, how);
    this.topology.show(this.values, how);
    this.showNumbers(spread);
  }

  showNumbers(spread) {
    const { summary } = this;
    if (!summary) return;
    const rank = (place, label) =>
      button(`${label} ${this.how.spoken(this.values[place])} (rank ${this.ranks[place]})`, `Select rank ${this.ranks[place]}, the one with the ${label}`, () => {
        this.state.set({ ranks: new Set([this.ranks[place]]) });
        this.panes.reveal();
      }, { class: "link" });
    fill(
      this.numbers,
      element("span", {}, `mean ${this.how.spoken(summary.mean)}`),
      element("span", {}, `± ${this.how.spoken(summary.deviation)} (${percent(summary.mean ? summary.deviation / Math.abs(summary.mean) : 0)})`),
      element("span", {}, `median ${this.how.spoken(summary.quartiles[1])}`),
      rank(summary.least, "least"),
      rank(summary.most, "most"),
      spread > SHOWN_FROM
        ? element("span", { class: "warn", title: "This file holds only sums of small values; haloscope explore DIR shows all values" }, `${percent(spread)} of this value is spread evenly: this file has no values by rank`)
        : null,
    );
    const [least, most] = [this.values[summary.least], this.values[summary.most]];
    Object.assign(this.numbers.dataset, { mean: summary.mean, deviation: summary.deviation, least, most });
  }
}
