// The pane of call paths: where in the program the selected metric has its values.

import { button, element, setText, tip } from "./dom.js";
import { DIFFERENCE } from "./model.js";
import { Frame, greatest, toggled } from "./pane_frame.js";
import { Tree } from "./tree.js";
import { Shown, referenceOf } from "./values.js";

/** The tree of call paths; `reveal` brings what is selected into sight. */
export class PathPane {
  constructor(model, state, theme, reveal) {
    Object.assign(this, { model, state, theme, reveal });
    this.frame = new Frame(document.getElementById("pane-paths"), "Call paths", "paths", state, [
      button("hottest", "Open the path with the largest values", () => this.openHottest(), { class: "quiet" }),
      button("all", "Open all call paths", () => this.openAll(), { class: "quiet" }),
      button("none", "Close all call paths", () => state.set({ nodesOpen: new Set() }), { class: "quiet" }),
    ]);
    this.tree = new Tree("Call paths", this.source(), tip);
    this.site = element("div", { class: "site" });
    this.frame.body.append(this.tree.node, this.site);
  }

  source() {
    const { model, state } = this;
    const visible = (ids) => (state.hideZero ? ids.filter((id) => this.reach[id] !== 0) : ids);
    return {
      roots: () => visible(model.nodeBelow.roots),
      below: (id) => visible(model.nodeBelow[id]),
      name: (id) => model.nodeName(id),
      isOpen: (id) => state.nodesOpen.has(id),
      setOpen: (ids, open) => state.set({ nodesOpen: toggled(state.nodesOpen, ids, open) }),
      isSelected: (id) => id === state.node,
      select: (id) => state.set({ node: id }),
      value: (id) => this.how.row(this.value(id)),
      mark: (id) => (this.reach[id] === 0 ? "empty" : ""),
      describe: (id) => [model.nodeName(id), ...this.how.lines(this.value(id)), ...this.about(id)],
    };
  }

  value(node) {
    const open = this.state.nodesOpen.has(node) && this.model.nodeBelow[node].length > 0;
    return (open ? this.own : this.whole)[node];
  }

  /** What a call path is, where it is written and where it is called. */
  about(node) {
    const [, paradigm, role, file, line] = this.model.regionOf(node);
    const site = this.model.meta.sites[node];
    return [
      `${paradigm}${role && role !== "other" ? `, ${role}` : ""}`,
      file ? `in ${file}${line ? `:${line}` : ""}` : "",
      site ? `called at ${site}` : "",
    ].filter(Boolean);
  }

  openHottest() {
    const { model, state } = this;
    const exclusive = state.isExclusiveMetric();
    const own = model.nodeOwn(state.view, state.metric, exclusive);
    const whole = model.nodeWhole(state.view, state.metric, exclusive);
    const open = new Set(state.nodesOpen);
    // Below the selection; where nothing is below it that counts, from the top.
    let node = model.nodeBelow[state.node].some((b) => whole[b] !== 0) ? state.node : this.topOf(state.node);
    for (;;) {
      const below = model.nodeBelow[node];
      if (!below.length) break;
      const next = below.reduce((a, b) => (Math.abs(whole[b]) > Math.abs(whole[a]) ? b : a));
      if (whole[next] === 0 || Math.abs(whole[next]) < Math.abs(own[node])) break;
      open.add(node);
      node = next;
    }
    state.set({ nodesOpen: open, node });
    this.reveal();
  }

  /** The call path without a caller that leads to a node. */
  topOf(node) {
    while (this.model.parents[node] >= 0) node = this.model.parents[node];
    return node;
  }

  openAll() {
    const { model, state } = this;
    const open = new Set();
    for (let n = 0; n < model.nodeCount; n += 1) if (model.nodeBelow[n].length) open.add(n);
    state.set({ nodesOpen: open });
  }

  update() {
    const { model, state } = this;
    const exclusive = state.isExclusiveMetric();
    this.own = model.nodeOwn(state.view, state.metric, exclusive);
    this.whole = model.nodeWhole(state.view, state.metric, exclusive);
    this.reach = this.reachOf();
    this.how = new Shown({
      mode: state.modes.paths,
      unit: model.metrics[state.metric].unit,
      reference: referenceOf(model, state, "paths", state.metric),
      most: greatest(model.nodeBelow.roots, model.nodeBelow, state.nodesOpen, (id) => this.value(id)),
      palette: this.theme.palette,
      signed: state.view === DIFFERENCE,
    });
    this.tree.update();
    this.frame.scale.show(this.how);
    this.frame.mode.value = state.modes.paths;
    setText(this.frame.unit, this.how.label);
    setText(this.site, [model.pathNames(state.node).join(" › "), ...this.about(state.node).slice(1)].join(" · "));
    this.site.title = this.site.textContent;
  }

  /** Whether anything at or below each node has a value, whatever cancels out. */
  reachOf() {
    const reach = Float64Array.from(this.own, Math.abs);
    for (let n = reach.length - 1; n > 0; n -= 1) {
      if (this.model.parents[n] >= 0) reach[this.model.parents[n]] += reach[n];
    }
    return reach;
  }
}
