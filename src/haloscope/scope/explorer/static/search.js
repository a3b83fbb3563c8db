// The search box: metrics, call paths and ranks by parts of their names.

import { element, fill } from "./dom.js";

const MOST_HITS = 12; // of a kind

/** Finds by text; `go` selects a hit. */
export class Search {
  constructor(model, state, panes) {
    Object.assign(this, { model, state, panes });
    this.hits = [];
    this.active = -1;
    this.box = element("input", {
      type: "search",
      role: "searchbox",
      "aria-label": "Search metrics, call paths, ranks",
      placeholder: "Search  /",
      autocomplete: "off",
      spellcheck: "false",
      "aria-controls": "hits",
      "aria-expanded": "false",
    });
    this.list = element("div", { id: "hits", role: "listbox", "aria-label": "Matches", hidden: true });
    this.node = element("div", { class: "search" }, this.box, this.list);
    this.box.addEventListener("input", () => this.find());
    this.box.addEventListener("focus", () => this.find());
    // A click on a hit takes the focus away before it arrives.
    this.box.addEventListener("blur", () => {
      setTimeout(() => document.activeElement !== this.box && this.close(), 150);
    });
    this.box.addEventListener("keydown", (event) => this.key(event));
  }

  find() {
    const text = this.box.value.trim().toLowerCase();
    this.hits = [];
    if (text) {
      const { model } = this;
      const add = (kind, entries) => this.hits.push(...entries.slice(0, MOST_HITS).map((entry) => ({ kind, ...entry })));
      add(
        "metric",
        model.metrics
          .map((metric, id) => ({ id, text: metric.title, note: model.hasMetric(id) ? "" : "zero" }))
          .filter((hit) => hit.text.toLowerCase().includes(text))
          .sort((a, b) => a.note.length - b.note.length),
      );
      const whole = model.nodeWhole(this.state.view, this.state.metric, this.state.isExclusiveMetric());
      const nodes = [];
      for (let id = 0; id < model.nodeCount; id += 1) {
        if (model.nodeName(id).toLowerCase().includes(text)) nodes.push(id);
      }
      nodes.sort((a, b) => Math.abs(whole[b]) - Math.abs(whole[a]));
      add(
        "call path",
        nodes.slice(0, MOST_HITS).map((id) => ({
          id,
          text: model.nodeName(id),
          note: model.pathNames(id).slice(0, -1).slice(-3).join(" › "),
        })),
      );
      const rank = text.match(/^(?:rank )?\s*(\d+)$/);
      const item = rank ? model.rankItem.get(Number(rank[1])) : undefined;
      if (item !== undefined) add("rank", [{ id: Number(rank[1]), text: `rank ${rank[1]}`, note: "" }]);
    }
    this.active = this.hits.length ? 0 : -1;
    this.show();
  }

  show() {
    const open = document.activeElement === this.box && this.box.value.trim() !== "";
    this.list.hidden = !open;
    this.box.setAttribute("aria-expanded", String(open));
    fill(
      this.list,
      ...(this.hits.length
        ? this.hits.map((hit, number) =>
            element(
              "div",
              {
                role: "option",
                id: `hit-${number}`,
                "aria-selected": String(number === this.active),
                class: "hit",
                on: { pointerdown: (event) => event.preventDefault(), click: () => this.go(hit) },
              },
              element("span", { class: "kind" }, hit.kind),
              element("span", { class: "what" }, hit.text),
              element("span", { class: "where" }, hit.note),
            ),
          )
        : [element("div", { class: "hit" }, "no matches")]),
    );
    if (this.active >= 0) {
      this.box.setAttribute("aria-activedescendant", `hit-${this.active}`);
      this.list.children[this.active].scrollIntoView({ block: "nearest" });
    } else this.box.removeAttribute("aria-activedescendant");
  }

  key(event) {
    event.stopPropagation();
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      const step = event.key === "ArrowDown" ? 1 : -1;
      if (this.hits.length) this.active = (this.active + step + this.hits.length) % this.hits.length;
      this.show();
    } else if (event.key === "Enter" && this.active >= 0) {
      this.go(this.hits[this.active]);
    } else if (event.key === "Escape") {
      this.box.value = "";
      this.box.blur();
    } else return;
    event.preventDefault();
  }

  go(hit) {
    if (hit.kind === "metric") this.state.chooseMetric(hit.id);
    else if (hit.kind === "rank") this.state.set({ ranks: new Set([hit.id]), systemTab: "tree" });
    else this.state.chooseNode(hit.id);
    this.panes.reveal();
    this.close();
    const pane = { metric: "metrics", rank: "system", "call path": "paths" }[hit.kind];
    this.panes[pane].tree.node.focus();
  }

  close() {
    this.list.hidden = true;
    this.box.setAttribute("aria-expanded", "false");
  }
}
