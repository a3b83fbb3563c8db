// How the timeline looks: how its canvas is divided, its colours and names, its buttons, and what the colours mean.

import { KINDS, regionColours } from "./colours.js";
import { button, element, menu, setText, shown, styleColour } from "./dom.js";
import { kept } from "./model.js";
import { firstPlace } from "./tile_store.js";

export const LABELS = 104; // of the row names
export const RULER = 18; // of the times above the rows
export const SLIDER = 12; // of the bar that shows which part of the run is seen
export const SCROLLBAR = 9; // of the bar at the right that shows which rows are seen
export const STACK_BAR = 12; // of one level of the call stack

/** Text cut to a width, empty where hardly anything fits. */
export function fitting(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  const long = firstPlace(text.length, (n) => context.measureText(`${text.slice(0, n + 1)}…`).width > width);
  return long >= 3 ? `${text.slice(0, long)}…` : "";
}

const HATCH = 6; // CSS pixels from line to line

/** Looks of what a timeline draws; `waits` are those of the side that is shown. */
export class Looks {
  constructor(model, state, waits) {
    Object.assign(this, { model, state, waits });
    this.regions = regionColours(model.meta.regions);
    this.kinds = new Set(this.regions.map((look) => look.kind));
    this.paths = new Map();
    this.hatches = new Map();
  }

  of(node) {
    return this.regions[this.model.regions[node]];
  }

  /** Colour of a call path as a pixel of an image, dimmed where it is to be. */
  pixelOf(node) {
    const [r, g, b] = this.of(node).parts;
    const alpha = this.isDimmed(node) ? 56 : 255;
    return ((alpha << 24) | (b << 16) | (g << 8) | r) >>> 0;
  }

  nameOf(node) {
    return shown(this.model.nodeName(node));
  }

  pathOf(node) {
    return kept(this.paths, node, () => this.model.pathOf(node));
  }

  isDimmed(node) {
    return this.state.drawn.dim && !this.pathOf(node).includes(this.state.node);
  }

  /** Whether waits of a metric stand out: of all time none does. */
  isChosenMetric(metric) {
    return this.state.metric !== 0 && this.waits.isSelected(metric);
  }

  /** Pattern of a wait, in the colour of the theme. */
  hatching(context, strong) {
    const colour = styleColour(strong ? "--alert" : "--hatch");
    return kept(this.hatches, `${strong} ${colour}`, () => {
      const made = document.createElement("canvas");
      made.width = HATCH;
      made.height = HATCH;
      const drawn = made.getContext("2d");
      drawn.strokeStyle = colour;
      drawn.lineWidth = strong ? 1.8 : 1.3;
      drawn.beginPath();
      for (const shift of [-HATCH, 0, HATCH]) {
        drawn.moveTo(shift - 1, HATCH + 1);
        drawn.lineTo(shift + HATCH + 1, -1);
      }
      drawn.stroke();
      return context.createPattern(made, "repeat");
    });
  }
}

/** The buttons of a timeline: {node, sides, show}; `show` makes them tell how it is. */
export function controls(timeline) {
  const { state, model, rows } = timeline;
  const toggles = new Map();
  const toggle = (name, text, title) => {
    toggles.set(name, button(text, title, () => state.draw(name, !state.drawn[name])));
    return toggles.get(name);
  };
  const onlyRows = toggle("only", "selected ranks", "Show only the selected ranks and the ranks for which they wait");
  const allRows = toggle("all", "", "");
  const show = () => {
    toggles.forEach((node, name) => node.setAttribute("aria-pressed", String(state.drawn[name])));
    const many = rows.folded.size;
    allRows.hidden = !many;
    setText(allRows, `all rows (+${many})`);
    allRows.title = "Show also threads of libraries and streams with less than a tenth of the work of the busiest stream of their device";
  };
  const sides = model.comparing
    ? menu(
        "Timeline of",
        model.sides.map((side, number) => [String(number), `${number ? "second" : "first"}: ${side.folder}`]),
        String(state.trace),
        (side) => state.set({ trace: Number(side), window: null, instance: null }),
      )
    : null;
  const node = element(
    "div",
    { class: "strip" },
    sides,
    button("whole", "Show the whole run and all ranks (Home)", () => timeline.showAll()),
    button("−", "Zoom out (-)", () => timeline.zoom(2)),
    button("+", "Zoom in (+)", () => timeline.zoom(0.5)),
    button("◂", "Earlier (left arrow)", () => timeline.pan(-0.4)),
    button("▸", "Later (right arrow)", () => timeline.pan(0.4)),
    element("span", { class: "divider" }),
    button("↕−", "Lower rows (alt-wheel)", () => timeline.resizeRows(0.7)),
    button("↕+", "Higher rows (alt-wheel)", () => timeline.resizeRows(1.4)),
    onlyRows,
    allRows,
    toggle("stack", "stack", "Show callers above each other"),
    toggle("messages", "messages", "Draw messages as lines"),
    toggle("waits", "waits", "Shade wait states"),
    toggle("dim", "dim others", "Dim everything outside the selected call path"),
    element("span", { class: "divider" }),
    button("‹", "Previous instance of the selection (p)", () => timeline.instances.step(-1)),
    button("›", "Next instance of the selection, the longest first (n)", () => timeline.instances.step(1)),
    timeline.instances.node,
  );
  show();
  return { node, sides, show };
}

/** What the colours mean, as far as the measurement has them, and `where` at the right. */
export function legend(kinds, where) {
  return element(
    "div",
    { class: "legend" },
    ...KINDS.filter(([kind]) => kinds.has(kind)).map(([, label, colour]) => {
      const box = element("span", { class: "box" });
      box.style.background = colour;
      return element("span", {}, box, label);
    }),
    element("span", {}, element("span", { class: "box hatched" }), "wait state"),
    element("span", { class: "gap" }),
    where,
  );
}
