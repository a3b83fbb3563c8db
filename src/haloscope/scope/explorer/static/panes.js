// The three panes: metrics, call paths, system; each a tree with its mode and its scale.

import { button, element, fill, menu, setText, splitter, tip } from "./dom.js";
import { listed, single } from "./format.js";
import { DIFFERENCE, difference } from "./model.js";
import { Tree } from "./tree.js";
import { MODES, MODE_NOTES, Shown, referenceOf } from "./values.js";

/** A pane's frame: head with title and mode, body, scale. */
export class Frame {
  constructor(section, title, key, state, extras) {
    this.key = key;
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

/** Wires the panes to the state. `system` is told when the values by location are there. */
export class Panes {
  constructor(model, state, source, theme) {
    Object.assign(this, { model, state, source, theme });
    this.placeValues = null;
    this.placeListeners = [];
    this.asked = 0;
    this.metricFrame = new Frame(document.getElementById("pane-metrics"), "Metrics", "metrics", state, []);
    this.pathFrame = new Frame(document.getElementById("pane-paths"), "Call paths", "paths", state, [
      button("hottest", "Open the path of the greatest values", () => this.openHottest(), { class: "quiet" }),
      button("all", "Open all call paths", () => this.openAll(), { class: "quiet" }),
      button("none", "Close all call paths", () => state.set({ nodesOpen: new Set() }), { class: "quiet" }),
    ]);
    this.systemFrame = new Frame(document.getElementById("pane-system"), "System", "system", state, []);
    this.metricTree = new Tree("Metrics", this.metricSource(), tip);
    this.pathTree = new Tree("Call paths", this.pathSource(), tip);
    this.systemTree = new Tree("System", this.systemSource(), tip);
    this.help = element("div", { class: "help", "aria-label": "About the selected metric", role: "region" });
    this.metricFrame.body.append(this.metricTree.node, this.help);
    this.site = element("div", { class: "site" });
    this.pathFrame.body.append(this.pathTree.node, this.site);
    const all = ["view", "metric", "metricsOpen", "node", "nodesOpen", "modes", "hideZero", "theme", "scale"];
    state.listen(all, () => this.update());
    state.listen(["systemOpen", "ranks"], () => this.systemTree.update());
    this.arrangeSplitters();
  }

  arrangeSplitters() {
    const main = document.getElementById("panes");
    const at = [0.26, 0.63];
    const place = () => {
      main.style.gridTemplateColumns = `${at[0]}fr 5px ${at[1] - at[0]}fr 5px ${1 - at[1]}fr`;
    };
    [1, 2].forEach((number) => {
      const index = number - 1;
      splitter(
        document.getElementById(`split-${number}`),
        number === 1 ? "Width of Metrics" : "Width of System",
        true,
        () => at[index] * main.clientWidth,
        (x) => {
          const low = index ? at[0] + 0.1 : 0.1;
          const high = index ? 0.9 : at[1] - 0.1;
          at[index] = Math.min(high, Math.max(low, x / main.clientWidth));
          place();
        },
      );
    });
    place();
  }

  get palette() {
    return this.theme.palette;
  }

  signed() {
    return this.state.view === DIFFERENCE;
  }

  // -- metrics ------------------------------------------------------------------------------

  metricValue(metric) {
    const { model, state } = this;
    const exclusive = state.metricsOpen.has(metric) && model.metricBelow[metric].length > 0;
    return model.total(state.view, metric, exclusive);
  }

  metricShown(metric) {
    const { model, state } = this;
    const root = model.rootMetric(metric);
    // Seconds, counts and bytes have nothing in common: each root is the measure of its own tree.
    const most = this.greatest([root], model.metricBelow, state.metricsOpen, (id) => this.metricValue(id));
    const reference = referenceOf(model, state, "metrics", metric);
    const same = model.metrics[metric].unit === model.metrics[state.metric].unit;
    const mode = state.modes.metrics === "selection" && !same ? "root" : state.modes.metrics;
    return new Shown({
      mode,
      unit: model.metrics[metric].unit,
      reference: mode === "root" ? model.total(this.signed() ? "0" : state.view, root, false) : reference,
      most,
      palette: this.palette,
      signed: this.signed(),
    });
  }

  /** Greatest magnitude among the rows of a tree that are open to view. */
  greatest(roots, below, open, value) {
    let most = 0;
    const waiting = [...roots];
    while (waiting.length) {
      const id = waiting.pop();
      most = Math.max(most, Math.abs(value(id)));
      if (open.has(id)) waiting.push(...below[id]);
    }
    return most;
  }

  metricSource() {
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
        const how = this.metricHow(id);
        const row = how.row(this.metricValue(id));
        if (row.text !== "0") row.text += how.label ? ` ${how.label}` : "";
        return row;
      },
      mark: (id) => (model.hasMetric(id) ? "" : "empty"),
      describe: (id) => {
        const metric = model.metrics[id];
        return [metric.title, ...this.metricHow(id).lines(this.metricValue(id)), metric.meaning];
      },
    };
  }

  /** As metricShown, once for each root and update. */
  metricHow(metric) {
    const key = this.model.rootMetric(metric);
    if (!this.metricHows.has(key)) this.metricHows.set(key, this.metricShown(metric));
    return this.metricHows.get(key);
  }

  // -- call paths -----------------------------------------------------------------------------

  pathSource() {
    const { model, state } = this;
    const visible = (ids) => (state.hideZero ? ids.filter((id) => this.nodeReach[id] !== 0) : ids);
    return {
      roots: () => visible(model.nodeBelow.roots),
      below: (id) => visible(model.nodeBelow[id]),
      name: (id) => model.nodeName(id),
      isOpen: (id) => state.nodesOpen.has(id),
      setOpen: (ids, open) => state.set({ nodesOpen: toggled(state.nodesOpen, ids, open) }),
      isSelected: (id) => id === state.node,
      select: (id) => state.set({ node: id }),
      value: (id) => this.pathHow.row(this.nodeValue(id)),
      mark: (id) => (this.nodeReach[id] === 0 ? "empty" : ""),
      describe: (id) => [
        model.nodeName(id),
        ...this.pathHow.lines(this.nodeValue(id)),
        ...this.aboutNode(id),
      ],
    };
  }

  nodeValue(node) {
    const open = this.state.nodesOpen.has(node) && this.model.nodeBelow[node].length > 0;
    return (open ? this.nodeOwn : this.nodeWhole)[node];
  }

  aboutNode(node) {
    const [, paradigm, role, file, line] = this.model.regionOf(node);
    const site = this.model.meta.sites[node];
    return [
      `${paradigm}${role && role !== "other" ? `, ${role}` : ""}`,
      file ? `${file}${line ? `:${line}` : ""}` : "",
      site ? `called at ${site}` : "",
    ].filter(Boolean);
  }

  openHottest() {
    const { model, state } = this;
    const open = new Set(state.nodesOpen);
    let node = state.node;
    for (;;) {
      const below = model.nodeBelow[node];
      if (!below.length) break;
      const next = below.reduce((a, b) => (Math.abs(this.nodeWhole[b]) > Math.abs(this.nodeWhole[a]) ? b : a));
      if (Math.abs(this.nodeWhole[next]) < Math.abs(this.nodeOwn[node])) break;
      open.add(node);
      node = next;
    }
    state.set({ nodesOpen: open, node });
    this.reveal();
  }

  openAll() {
    const { model, state } = this;
    const open = new Set();
    for (let n = 0; n < model.nodeCount; n += 1) if (model.nodeBelow[n].length) open.add(n);
    state.set({ nodesOpen: open });
  }

  // -- system ---------------------------------------------------------------------------------

  systemSource() {
    const { model, state } = this;
    return {
      roots: () => model.systemBelow.roots,
      below: (id) => model.systemBelow[id],
      name: (id) => model.system[id].name,
      isOpen: (id) => state.systemOpen.has(id),
      setOpen: (ids, open) => state.set({ systemOpen: toggled(state.systemOpen, ids, open) }),
      isSelected: (id) => model.system[id].rank >= 0 && state.ranks.has(model.system[id].rank),
      select: (id, event) => {
        const { rank } = model.system[id];
        if (rank < 0) state.set({ ranks: new Set() });
        else if (event.ctrlKey || event.metaKey || event.shiftKey) {
          const ranks = new Set(state.ranks);
          if (!ranks.delete(rank)) ranks.add(rank);
          state.set({ ranks });
        } else state.set({ ranks: new Set([rank]) });
      },
      value: (id) => {
        if (!this.placeValues) return { text: "", number: 0, colour: "" };
        const open = state.systemOpen.has(id) && model.systemBelow[id].length > 0;
        return open ? { text: "", number: 0, colour: "", spoken: "" } : this.systemHow(id).row(this.systemValue(id));
      },
      describe: (id) => [
        model.system[id].name,
        ...(this.placeValues ? this.systemHow(id).lines(this.systemValue(id)) : []),
      ],
    };
  }

  systemValue(item) {
    let sum = 0;
    for (const place of this.model.system[item].all) sum += this.placeValues[place];
    return sum;
  }

  systemHow(item) {
    return item === 0 ? this.wholeHow : this.placeHow;
  }

  // -- all --------------------------------------------------------------------------------------

  update() {
    const { model, state } = this;
    const exclusive = state.isExclusiveMetric();
    const metric = model.metrics[state.metric];
    this.metricHows = new Map();
    this.metricTree.update();
    this.metricFrame.scale.show(this.metricHow(state.metric));
    this.metricFrame.mode.value = state.modes.metrics;

    this.nodeOwn = model.nodeOwn(state.view, state.metric, exclusive);
    this.nodeWhole = model.nodeWhole(state.view, state.metric, exclusive);
    this.nodeReach = this.reachOf();
    const most = this.greatest(model.nodeBelow.roots, model.nodeBelow, state.nodesOpen, (id) => this.nodeValue(id));
    this.pathHow = new Shown({
      mode: state.modes.paths,
      unit: metric.unit,
      reference: referenceOf(model, state, "paths", state.metric),
      most,
      palette: this.palette,
      signed: this.signed(),
    });
    this.pathTree.update();
    this.pathFrame.scale.show(this.pathHow);
    this.pathFrame.mode.value = state.modes.paths;
    setText(this.pathFrame.unit, this.pathHow.label);
    this.systemFrame.mode.value = state.modes.system;
    this.showHelp();
    this.showSite();
    this.askPlaces();
  }

  /** Whether anything at or below each node has a value, whatever cancels out. */
  reachOf() {
    const reach = Float64Array.from(this.nodeOwn, Math.abs);
    for (let n = reach.length - 1; n > 0; n -= 1) {
      if (this.model.parents[n] >= 0) reach[this.model.parents[n]] += reach[n];
    }
    return reach;
  }

  showHelp() {
    const { model, state } = this;
    const metric = model.metrics[state.metric];
    const value = model.total(state.view, state.metric, state.isExclusiveMetric());
    const exclusive = state.isExclusiveMetric() ? " without what is below it" : "";
    fill(
      this.help,
      element("div", { class: "strong" }, `${metric.title}${exclusive}: ${single(value, metric.unit)}`),
      element("div", {}, metric.meaning),
      metric.remedy ? element("div", { class: "remedy" }, metric.remedy) : null,
    );
  }

  showSite() {
    const { model, state } = this;
    setText(
      this.site,
      [model.pathNames(state.node).join(" › "), ...this.aboutNode(state.node).slice(1)].join("   "),
    );
    this.site.title = this.site.textContent;
  }

  /** Gets the values by location of the selection. */
  async askPlaces() {
    const { model, state } = this;
    this.asked += 1;
    const turn = this.asked;
    const [metric, exclusive] = [state.metric, state.isExclusiveMetric()];
    const [node, own] = [state.node, state.isOwnNode()];
    let values;
    let spread = 0;
    if (model.isWhole(node) && !own) {
      values = model.viewed("places", state.view, metric, exclusive);
    } else {
      let found;
      try {
        found = await this.row(metric, exclusive, node, own);
      } catch (error) {
        if (turn === this.asked) setText(this.systemFrame.unit, String(error.message || error));
        return;
      }
      if (turn !== this.asked) return;
      spread = found.spread;
      const side = state.view === DIFFERENCE ? 0 : Number(state.view);
      values = found.rows[side];
      if (state.view === DIFFERENCE) values = difference(found.rows[0], found.rows[1]);
    }
    this.showPlaces(values, spread);
  }

  row(metric, exclusive, node, own) {
    const key = `${metric} ${exclusive} ${node} ${own}`;
    this.rows = this.rows || new Map();
    if (!this.rows.has(key)) {
      if (this.rows.size > 200) this.rows.clear();
      const asked = this.source.row(metric, exclusive, node, own);
      asked.catch(() => this.rows.delete(key));
      this.rows.set(key, asked);
    }
    return this.rows.get(key);
  }

  showPlaces(values, spread) {
    const { model, state } = this;
    this.placeValues = values;
    const metric = model.metrics[state.metric];
    const common = {
      mode: state.modes.system,
      unit: metric.unit,
      reference: referenceOf(model, state, "system", state.metric),
      palette: this.palette,
      signed: this.signed(),
    };
    let most = 0;
    for (let item = 1; item < model.system.length; item += 1) {
      if (model.system[item].rank >= 0) most = Math.max(most, Math.abs(this.systemValue(item)));
    }
    this.placeHow = new Shown({ ...common, most });
    this.wholeHow = new Shown({ ...common, most: Math.max(most, Math.abs(this.systemValue(0))) });
    this.systemTree.update();
    this.systemFrame.scale.show(this.placeHow);
    setText(this.systemFrame.unit, this.placeHow.label);
    for (const listener of this.placeListeners) listener(values, this.placeHow, spread);
  }

  /** Brings what is selected into sight in all panes. */
  reveal() {
    queueMicrotask(() => {
      this.metricTree.scrollTo(this.state.metric);
      this.pathTree.scrollTo(this.state.node);
      const first = [...this.state.ranks][0];
      if (first !== undefined) this.systemTree.scrollTo(this.model.rankItem.get(first));
    });
  }

  /** Words about which ranks are selected. */
  rankText() {
    return this.state.ranks.size ? `ranks ${listed(this.state.ranks)}` : "all ranks";
  }
}

function toggled(open, ids, on) {
  const next = new Set(open);
  for (const id of ids) {
    if (on) next.add(id);
    else next.delete(id);
  }
  return next;
}
