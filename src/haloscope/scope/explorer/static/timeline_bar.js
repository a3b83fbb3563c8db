// What stands above and below the timeline's canvas: its buttons, and what the colours mean.

import { KINDS } from "./colours.js";
import { button, element, menu, setText } from "./dom.js";

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
