// The pane of metrics: the tree of what was measured, and the help of the one that is selected.

import { element, fill, tip } from "./dom.js";
import { single } from "./format.js";
import { DIFFERENCE } from "./model.js";
import { Frame, greatest, toggled } from "./pane_frame.js";
import { Tree } from "./tree.js";
import { Shown, referenceOf } from "./values.js";

// What the letters of formulas stand for; docs/reference/metrics.md says the same.
const LETTERS = "B: time at which a rank enters the call, E: time at which it leaves it; max B, min E: over all participating ranks";

/** The tree of metrics. */
export class MetricPane {
  constructor(model, state, theme) {
    Object.assign(this, { model, state, theme });
    this.hows = new Map();
    this.frame = new Frame(document.getElementById("pane-metrics"), "Metrics", "metrics", state, []);
    this.tree = new Tree("Metrics", this.source(), tip);
    this.help = element("div", { class: "help", "aria-label": "About the selected metric", role: "region" });
    this.frame.body.append(this.tree.node, this.help);
  }

  source() {
    const { model, state } = this;
    const visible = (ids) => (state.hideZero ? ids.filter((id) => model.hasMetric(id)) : ids);
    return {
      roots: () => visible(model.metricBelow.roots),
      below: (id) => visible(model.metricBelow[id]),
      name: (id) => model.metrics[id].title,
      isOpen: (id) => state.metricsOpen.has(id),
      setOpen: (ids, open) => state.set({ metricsOpen: toggled(state.metricsOpen, ids, open) }),
      isSelected: (id) => id === state.metric,
      select: (id) => state.set({ metric: id }),
      value: (id) => {
        const how = this.how(id);
        const row = how.row(this.value(id));
        if (row.text !== "0") row.text += how.label ? ` ${how.label}` : "";
        return row;
      },
      mark: (id) => (model.hasMetric(id) ? "" : "empty"),
      describe: (id) => {
        const metric = model.metrics[id];
        return [metric.title, ...this.how(id).lines(this.value(id)), metric.meaning];
      },
    };
  }

  value(metric) {
    const { model, state } = this;
    const exclusive = state.metricsOpen.has(metric) && model.metricBelow[metric].length > 0;
    return model.total(state.view, metric, exclusive);
  }

  /** How values are shown, once for each root and update. */
  how(metric) {
    const root = this.model.rootMetric(metric);
    if (!this.hows.has(root)) this.hows.set(root, this.howOf(root));
    return this.hows.get(root);
  }

  howOf(root) {
    const { model, state } = this;
    const signed = state.view === DIFFERENCE;
    // Seconds, counts and bytes have nothing in common: each root is the measure of its own tree.
    const most = greatest([root], model.metricBelow, state.metricsOpen, (id) => this.value(id));
    const same = model.metrics[root].unit === model.metrics[state.metric].unit;
    const mode = state.modes.metrics === "selection" && !same ? "root" : state.modes.metrics;
    return new Shown({
      mode,
      unit: model.metrics[root].unit,
      reference: mode === "root" ? model.total(signed ? "0" : state.view, root, false) : referenceOf(model, state, "metrics", root),
      most,
      palette: this.theme.palette,
      signed,
    });
  }

  update() {
    const { state } = this;
    this.hows.clear();
    this.tree.update();
    this.frame.scale.show(this.how(state.metric));
    this.frame.mode.value = state.modes.metrics;
    this.showHelp();
  }

  showHelp() {
    const { model, state } = this;
    const metric = model.metrics[state.metric];
    const value = model.total(state.view, state.metric, state.isExclusiveMetric());
    const exclusive = state.isExclusiveMetric() ? " without its child metrics" : "";
    fill(
      this.help,
      element("div", { class: "strong" }, `${metric.title}${exclusive}: ${single(value, metric.unit)}`),
      element("div", {}, metric.meaning),
      /\b[BE]\b/.test(metric.meaning) ? element("div", { class: "quietly" }, LETTERS) : null,
      metric.remedy ? element("div", { class: "remedy" }, metric.remedy) : null,
    );
  }
}
