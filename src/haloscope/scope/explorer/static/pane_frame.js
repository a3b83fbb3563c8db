// What all panes have: a head with title and mode, a body, a scale at the bottom.

import { element, fill, menu, setText } from "./dom.js";
import { MODES, MODE_NOTES } from "./values.js";

/** A pane's frame: head with title and mode, body, scale. */
export class Frame {
  constructor(section, title, key, state, extras) {
    this.unit = element("span", { class: "unit" });
    this.mode = menu(`Values of ${title}`, MODES, "absolute", (mode) => {
      state.set({ modes: { ...state.modes, [key]: mode } });
    });
    for (const option of this.mode.options) option.title = MODE_NOTES[option.value];
    this.body = element("div", { class: "body" });
    this.scale = new ScaleBar(title);
    this.head = element(
      "div",
      { class: "head" },
      element("h2", {}, title),
      ...extras,
      element("span", { class: "gap" }),
      this.unit,
      this.mode,
    );
    fill(section, this.head, this.body, this.scale.node);
  }
}

/** A scale with its ends and middle in numbers. */
class ScaleBar {
  constructor(title) {
    this.ends = [0, 1, 2].map(() => element("span"));
    this.bar = element("div", { class: "gradient", role: "img" });
    this.title = title;
    this.node = element("div", { class: "scale" }, this.bar, element("div", { class: "ends" }, ...this.ends));
  }

  show(how) {
    this.bar.style.background = how.palette.gradient(how.signed);
    const at = how.signed ? [-how.most, 0, how.most] : [0, how.most / 2, how.most];
    at.forEach((number, place) => setText(this.ends[place], `${how.how.text(number)} ${how.label}`));
    this.bar.setAttribute("aria-label", `Scale of ${this.title}: ${at.map((n) => how.how.text(n)).join(" to ")} ${how.label}`);
  }
}

/** A set of open nodes with some more, or without them. */
export function toggled(open, ids, on) {
  const next = new Set(open);
  for (const id of ids) {
    if (on) next.add(id);
    else next.delete(id);
  }
  return next;
}

/** Greatest magnitude among the rows of a tree that are open to view. */
export function greatest(roots, below, open, value) {
  let most = 0;
  const waiting = [...roots];
  while (waiting.length) {
    const id = waiting.pop();
    most = Math.max(most, Math.abs(value(id)));
    if (open.has(id)) waiting.push(...below[id]);
  }
  return most;
}
