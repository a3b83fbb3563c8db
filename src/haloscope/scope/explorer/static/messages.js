// The panel of messages: gets what the selected call path sends, shows map and receivers.

import { CELLS, CommunicationMap, QUANTITIES } from "./communication_map.js";
import { button, element, menu } from "./dom.js";
import { DIFFERENCE } from "./model.js";
import { Receivers } from "./receivers.js";

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

  kept(key, ask) {
    if (!this.answers.has(key)) {
      if (this.answers.size > MOST_ANSWERS_KEPT) this.answers.clear();
      this.answers.set(key, ask());
    }
    return this.answers.get(key);
  }

  async ask() {
    if (this.state.dock !== "messages") return;
    const { node } = this.state;
    const own = this.state.isOwnNode();
    const window = this.map.view();
    const selection = `${node} ${own}`;
    const turn = (this.turn = (this.turn || 0) + 1);
    const sides = this.sidesShown();
    const answers = await Promise.all(
      sides.flatMap((side) => [
        this.kept(`cells ${side} ${selection} ${Object.values(window)}`, () => this.source.cells(side, node, own, window, CELLS)),
        this.kept(`receivers ${side} ${selection}`, () => this.source.receivers(side, node, own)),
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
        if (!sums.has(cell)) sums.set(cell, { pairs: 0, messages: 0, empty: 0, bytes: 0, seconds: 0, receive_seconds: 0 });
        const sum = sums.get(cell);
        for (const name of Object.keys(sum)) sum[name] += sign * cells[name][place];
      });
    });
    return sums;
  }
}
