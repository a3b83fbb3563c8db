// The three panes beside each other: metrics, call paths, system.

import { splitter } from "./dom.js";
import { MetricPane } from "./metric_pane.js";
import { PathPane } from "./path_pane.js";
import { SystemPane } from "./system_pane.js";

/** The panes, wired to the state. */
export class Panes {
  constructor(model, state, source, theme) {
    Object.assign(this, { model, state });
    this.metrics = new MetricPane(model, state, theme);
    this.paths = new PathPane(model, state, theme, () => this.reveal());
    this.system = new SystemPane(model, state, source, theme);
    const all = ["view", "metric", "metricsOpen", "node", "nodesOpen", "modes", "hideZero", "theme", "scale"];
    state.listen(all, () => {
      for (const pane of [this.metrics, this.paths, this.system]) pane.update();
    });
    this.arrangeSplitters();
  }

  arrangeSplitters() {
    const main = document.getElementById("panes");
    const { state } = this;
    const place = () => {
      const [first, second] = state.splits;
      main.style.gridTemplateColumns = `${first}fr 5px ${second - first}fr 5px ${1000 - second}fr`;
    };
    ["Width of Metrics", "Width of System"].forEach((label, index) => {
      splitter(
        document.getElementById(`split-${index + 1}`),
        label,
        true,
        () => (state.splits[index] / 1000) * main.clientWidth,
        (x) => state.split(index, x / main.clientWidth),
      );
    });
    state.listen(["splits"], place);
    place();
  }

  /** Brings what is selected into sight in all panes. */
  reveal() {
    queueMicrotask(() => {
      this.metrics.tree.scrollTo(this.state.metric);
      this.paths.tree.scrollTo(this.state.node);
      const first = [...this.state.ranks][0];
      if (first !== undefined) this.system.tree.scrollTo(this.model.rankItem.get(first));
    });
  }
}
