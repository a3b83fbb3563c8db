// How the values of the selection spread over the ranks: in numbers, as histogram and box plot,
// and on the topology.

import { button, element, fill, menu, tabs, tip } from "./dom.js";
import { percent } from "./format.js";
import { Histogram } from "./histogram.js";
import { statistics } from "./model.js";
import { Topology } from "./topology.js";

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
    const frame = panes.system.frame;
    frame.head.insertBefore(this.tabs.list, frame.head.querySelector(".gap"));
    this.numbers = element("div", { class: "numbers", role: "group", "aria-label": "Spread over ranks" });
    frame.body.append(tree, distribution, topology, this.numbers);
    panes.system.listeners.push((values, how, spread) => this.show(values, how, spread));
    state.listen(["systemTab", "topology", "ranks", "theme", "scale"], () => this.update());
    this.listenTo(this.histogram.canvas.node, (x, y) => this.histogram.barAt(x, y));
    this.listenTo(this.topology.canvas.node, (x, y) => this.topology.cellAt(x, y));
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
    this.numbers.dataset.mean = summary.mean;
    this.numbers.dataset.deviation = summary.deviation;
    this.numbers.dataset.least = this.values[summary.least];
    this.numbers.dataset.most = this.values[summary.most];
  }
}
