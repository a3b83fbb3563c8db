// The three panes beside each other: metrics, call paths, system.

import { splitter } from "./dom.js";
import { MetricPane } from "./metric_pane.js";
import { PathPane } from "./path_pane.js";
import { SystemPane } from "./system_pane.js";

const BORDERS = [0.295, 0.645]; // of the panes, as shares of the width
const LEAST = 0.1; // share of the width that a pane keeps

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
    const at = [...BORDERS];
    const place = () => {
      main.style.gridTemplateColumns = `${at[0]}fr 5px ${at[1] - at[0]}fr 5px ${1 - at[1]}fr`;
    };
    ["Width of Metrics", "Width of System"].forEach((label, index) => {
      splitter(
        document.getElementById(`split-${index + 1}`),
        label,
        true,
        () => at[index] * main.clientWidth,
        (x) => {
          const low = index ? at[0] + LEAST : LEAST;
          const high = index ? 1 - LEAST : at[1] - LEAST;
          at[index] = Math.min(high, Math.max(low, x / main.clientWidth));
          place();
        },
      );
    });
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
