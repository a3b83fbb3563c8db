// How the values of the selection spread over the ranks: in numbers, as histogram and box plot,
// and on the topology.

import { Canvas, button, element, fill, menu, setText, styleColour, tabs, tip } from "./dom.js";
import { listed, marks, percent } from "./format.js";
import { statistics } from "./model.js";

const MOST_BARS = 48;
const ALIKE = 1e-9; // of the greatest
const WHISKER = 1.5; // of the range between the quartiles

/** The views beside the tree of the system pane. */
export class Spread {
  constructor(model, state, panes) {
    Object.assign(this, { model, state, panes });
    this.ranks = [...model.rankItem.keys()].sort((a, b) => a - b);
    this.histogram = new Canvas({ class: "picture", role: "img", tabindex: "0" }, (...a) => this.drawHistogram(...a));
    this.grid = new Canvas({ class: "picture", role: "img", tabindex: "0" }, (...a) => this.drawGrid(...a));
    this.topologies = this.listTopologies();
    const tree = element("div", { class: "fill" }, panes.systemTree.node);
    const distribution = element("div", { class: "fill" }, this.histogram.node);
    const topology = element("div", { class: "fill column" });
    if (this.topologies.length > 1) {
      this.choice = menu(
        "Topology",
        this.topologies.map((one, number) => [String(number), one.label]),
        "0",
        (number) => state.set({ topology: Number(number) }),
      );
      topology.append(element("div", { class: "strip" }, this.choice));
    }
    topology.append(this.grid.node);
    this.tabs = tabs(
      "Views of the system",
      [
        ["tree", "Tree", tree],
        ["distribution", "Spread", distribution],
        ["topology", "Topology", topology],
      ],
      (key) => state.set({ systemTab: key }),
    );
    const frame = panes.systemFrame;
    frame.head.insertBefore(this.tabs.list, frame.head.querySelector(".gap"));
    this.numbers = element("div", { class: "numbers", role: "group", "aria-label": "Spread over ranks" });
    frame.body.append(tree, distribution, topology, this.numbers);
    panes.placeListeners.push((values, how, spread) => this.show(values, how, spread));
    state.listen(["systemTab", "topology", "ranks", "theme", "scale"], () => this.update());
    this.listenTo(this.histogram.node, (x, y) => this.barAt(x, y));
    this.listenTo(this.grid.node, (x, y) => this.cellAt(x, y));
    this.update();
  }

  listenTo(node, find) {
    node.addEventListener("pointermove", (event) => {
      const hit = find(event.offsetX, event.offsetY);
      tip(event, hit ? hit.lines : null);
    });
    node.addEventListener("pointerleave", (event) => tip(event, null));
    node.addEventListener("click", (event) => {
      const hit = find(event.offsetX, event.offsetY);
      this.state.set({ ranks: new Set(hit ? hit.ranks : []) });
    });
  }

  update() {
    this.tabs.choose(this.state.systemTab);
    if (this.choice) this.choice.value = String(Math.min(this.state.topology, this.topologies.length - 1));
    this.histogram.ask();
    this.grid.ask();
  }

  show(values, how, spread) {
    this.how = how;
    const all = this.model.byRank(values);
    this.values = this.ranks.map((rank) => all[rank]);
    this.found = statistics(this.values);
    this.showNumbers(spread);
    this.update();
  }

  raw(value) {
    const { number, text } = this.how.row(value);
    return number === 0 ? "0" : `${text} ${this.how.label}`;
  }

  showNumbers(spread) {
    const { found } = this;
    if (!found) return;
    const rank = (place, label) =>
      button(`${label} ${this.raw(this.values[place])} (rank ${this.ranks[place]})`, `Select rank ${this.ranks[place]}, the one with the ${label}`, () => {
        this.state.set({ ranks: new Set([this.ranks[place]]) });
        this.panes.reveal();
      }, { class: "link" });
    fill(
      this.numbers,
      element("span", {}, `mean ${this.raw(found.mean)}`),
      element("span", {}, `± ${this.raw(found.deviation)} (${percent(found.mean ? found.deviation / Math.abs(found.mean) : 0)})`),
      element("span", {}, `median ${this.raw(found.quartiles[1])}`),
      rank(found.least, "least"),
      rank(found.most, "most"),
      spread > 0.0005
        ? element("span", { class: "warn", title: "This file holds only sums of small values; haloscope explore DIR shows all of them" }, `${percent(spread)} of this is spread evenly: left out of this file`)
        : null,
    );
    this.numbers.dataset.mean = found.mean;
    this.numbers.dataset.deviation = found.deviation;
    this.numbers.dataset.least = this.values[found.least];
    this.numbers.dataset.most = this.values[found.most];
  }

  // -- histogram and box plot -----------------------------------------------------------------

  bars() {
    const { found, values } = this;
    const low = values[found.least];
    const high = values[found.most];
    // Values that differ by rounding alone are one bar.
    const alike = high - low <= ALIKE * Math.max(Math.abs(low), Math.abs(high));
    const count = alike ? 1 : Math.max(1, Math.min(MOST_BARS, Math.ceil(2 * Math.sqrt(values.length))));
    const width = (high - low) / count || 1;
    const bars = Array.from({ length: count }, () => []);
    values.forEach((value, place) => {
      bars[Math.min(count - 1, Math.floor((value - low) / width))].push(this.ranks[place]);
    });
    return { low, high, width, bars };
  }

  drawHistogram(context, width, height) {
    if (!this.found) return;
    const { low, high, width: step, bars } = this.bars();
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
    const ticks = marks(low * this.how.factor, (low + span) * this.how.factor, Math.max(2, width / 110));
    for (const mark of ticks) {
      const at = x(mark / (this.how.factor || 1));
      line(context, at, bottom, at, bottom + 4);
      context.textAlign = at < left + 30 ? "left" : at > width - 40 ? "right" : "center";
      context.fillText(this.how.how.text(mark), at, bottom + 6);
    }
    context.textAlign = "left";
    context.fillText("ranks", 6, 3);
    this.drawBox(context, x, bottom + 26, box - 14, ink, faint);
    this.histogram.node.setAttribute(
      "aria-label",
      `Histogram over ${this.values.length} ranks, from ${this.raw(low)} to ${this.raw(high)}, with box plot`,
    );
  }

  drawBox(context, x, top, tall, ink, faint) {
    const { found } = this;
    const [first, middle, third] = found.quartiles;
    const reach = WHISKER * (third - first);
    const inside = found.sorted.filter((v) => v >= first - reach && v <= third + reach);
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
    const mean = x(found.mean);
    context.fillStyle = ink;
    context.beginPath();
    context.moveTo(mean, y - 5);
    context.lineTo(mean + 5, y);
    context.lineTo(mean, y + 5);
    context.lineTo(mean - 5, y);
    context.fill();
    context.strokeStyle = faint;
    for (const value of found.sorted) {
      if (value >= low && value <= high) continue;
      context.beginPath();
      context.arc(x(value), y, 2.5, 0, 7);
      context.stroke();
    }
  }

  barAt(px, py) {
    const { place } = this;
    if (!place || py > place.bottom + 2) return null;
    const value = place.low + ((px - place.left) / (this.histogram.width - place.left - place.right)) * place.span;
    const number = Math.min(place.bars.length - 1, Math.floor((value - place.low) / place.step));
    const ranks = place.bars[number];
    if (!ranks) return null;
    return {
      ranks,
      lines: [
        `${ranks.length} rank${ranks.length === 1 ? "" : "s"}`,
        `${this.raw(place.low + number * place.step)} to ${this.raw(place.low + (number + 1) * place.step)}`,
        ranks.length ? `ranks ${listed(ranks)}` : "",
      ].filter(Boolean),
    };
  }

  // -- topology ---------------------------------------------------------------------------------

  /** Cartesian communicators, then the plain grid of ranks: {label, rows, columns, panels, at}. */
  listTopologies() {
    const found = this.model.meta.topologies.map(({ name, dims, members }) => {
      const shape = dims.length === 1 ? [1, 1, dims[0]] : dims.length === 2 ? [1, ...dims] : [
        dims.slice(0, -2).reduce((a, b) => a * b, 1),
        ...dims.slice(-2),
      ];
      return {
        label: `${dims.join(" × ")}${name ? ` ${name}` : ""}`,
        dims,
        panels: shape[0],
        rows: shape[1],
        columns: shape[2],
        members,
      };
    });
    const count = this.ranks.length;
    const columns = Math.max(1, 2 ** Math.ceil(Math.log2(Math.sqrt(count))));
    found.push({
      label: "ranks in order",
      dims: null,
      panels: 1,
      rows: Math.ceil(count / columns),
      columns: Math.min(columns, count),
      members: this.ranks,
    });
    return found;
  }

  drawGrid(context, width, height) {
    if (!this.found) return;
    const shape = this.topologies[Math.min(this.state.topology, this.topologies.length - 1)];
    // Lines of few cells are folded: a ring of 64 ranks is no strip of 64 dots.
    let { rows, columns } = shape;
    if (shape.panels === 1 && rows === 1 && columns > 16) {
      columns = Math.ceil(Math.sqrt(columns * 2));
      rows = Math.ceil(shape.columns / columns);
    }
    const gap = 10;
    const label = shape.panels > 1 ? 12 : 0;
    let best = { size: 0, across: 1 };
    for (let across = 1; across <= shape.panels; across += 1) {
      const down = Math.ceil(shape.panels / across);
      const size = Math.min(
        (width - 12 - gap * (across - 1)) / (across * columns),
        (height - 12 - (gap + label) * down) / (down * rows),
      );
      if (size > best.size) best = { size, across };
    }
    const size = Math.max(1, Math.min(64, best.size));
    const value = new Map(this.ranks.map((rank, place) => [rank, this.values[place]]));
    const [ink, line_, accent, muted] = ["--text", "--line", "--accent", "--muted"].map(styleColour);
    this.cells = [];
    context.textAlign = "center";
    context.textBaseline = "middle";
    const inset = size > 5 ? 0.5 : 0;
    for (let panel = 0; panel < shape.panels; panel += 1) {
      const left = 6 + (panel % best.across) * (columns * size + gap);
      const top = 6 + label + Math.floor(panel / best.across) * (rows * size + gap + label);
      if (label) {
        context.font = styleColour("--small-font");
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
          context.strokeStyle = line_;
          context.strokeRect(x + 1, y + 1, size - 2, size - 2);
        }
        if (this.state.ranks.has(rank)) {
          context.strokeStyle = accent;
          context.lineWidth = 2;
          context.strokeRect(x + 1, y + 1, size - 2, size - 2);
          context.lineWidth = 1;
        }
        if (size >= 22) {
          context.font = styleColour("--small-font");
          context.fillStyle = shown.colour ? contrast(shown.colour) : ink;
          context.fillText(String(rank), x + size / 2, y + size / 2);
        }
        this.cells.push([x, y, size, rank, cell, panel]);
      }
    }
    this.grid.node.setAttribute("aria-label", `Topology ${shape.label} coloured by value`);
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
        place >= 0 ? this.raw(this.values[place]) : "not measured",
      ].filter(Boolean),
    };
  }
}

function coordinates(number, dims) {
  const found = [];
  let rest = number;
  for (let axis = dims.length - 1; axis >= 0; axis -= 1) {
    found.unshift(rest % dims[axis]);
    rest = Math.floor(rest / dims[axis]);
  }
  return found;
}

function line(context, x0, y0, x1, y1) {
  context.beginPath();
  context.moveTo(x0, y0);
  context.lineTo(x1, y1);
  context.stroke();
}

/** Black or white, whichever is read better on a colour given as rgb(). */
export function contrast(colour) {
  const [r, g, b] = colour.match(/\d+/g).map(Number);
  return 0.299 * r + 0.587 * g + 0.114 * b > 140 ? "#111" : "#fff";
}
