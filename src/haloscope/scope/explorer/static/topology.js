// The values of the selection on the topology: Cartesian communicators, or the ranks in order.

import { contrast } from "./colours.js";
import { Canvas, styleColour } from "./dom.js";

const GREATEST = 64; // CSS pixels of a cell
const WITH_RANK = 22; // CSS pixels of a cell that has room for its rank
const WITH_VALUE = 46; // and for its value
const GAP = 10; // CSS pixels between panels
const MARGIN = 6;
const AXES = 84; // CSS pixels beside the cells that have room for the names of the axes

/** A grid of cells, one for each rank. */
export class Topology {
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
