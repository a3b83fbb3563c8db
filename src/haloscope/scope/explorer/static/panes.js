// The three panes beside each other: metrics, call paths, system; each is a tree with a scale.

import { button, element, fill, menu, setText, splitter } from "./dom.js";
import { column, percent, single } from "./format.js";
import { DIFFERENCE, difference, kept } from "./model.js";
import { Tree } from "./tree.js";

export const MODES = [
  ["absolute", "absolute", "values in their unit"],
  [
    "root",
    "% of root",
    "percent of the total of the root metric over the whole program (in a comparison: of the first measurement)",
  ],
  [
    "selection",
    "% of selection",
    "percent of the selection to the left: the selected metric at the selected call path (in a comparison: of the first measurement)",
  ],
];
// What the letters of formulas stand for; docs/reference/metrics.md says the same.
const LETTERS = "B: time at which a rank enters the call, E: time at which it leaves it; max B, min E: over all participating ranks";
const MOST_ROWS_KEPT = 200;

/** Shows numbers of one pane alike. `most` is the greatest magnitude that a row has. */
class Shown {
  constructor({ mode, unit, reference, most, palette, signed }) {
    this.signed = signed;
    this.palette = palette;
    this.unit = mode === "absolute" ? unit : "%";
    this.factor = mode === "absolute" ? 1 : reference ? 100 / reference : 0;
    this.most = most * Math.abs(this.factor);
    this.how = column(this.unit, this.most);
    this.rawUnit = unit;
    this.reference = reference;
  }

  /** {text, number, colour} of a raw value. */
  row(raw) {
    const number = raw * this.factor;
    const share = this.most ? number / this.most : 0;
    return {
      number,
      text: raw === 0 ? "0" : this.how.text(number),
      spoken: raw === 0 ? "0" : `${this.how.text(number)} ${this.how.label}`,
      colour: raw === 0 ? "" : this.palette.css(share, this.signed),
    };
  }

  /** A raw value with its unit. */
  spoken(raw) {
    const { number, spoken } = this.row(raw);
    return number === 0 ? "0" : spoken;
  }

  /** Unit as the head of the column. */
  get label() {
    return this.how.label;
  }

  /** Lines of a tip about a raw value. */
  lines(raw) {
    const lines = [single(raw, this.rawUnit)];
    if (this.unit === "%") lines.push(`${percent(this.reference ? raw / this.reference : NaN, 2)} here`);
    return lines;
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

/** What all panes have: a head with title and mode, a body with a tree, a scale at the bottom. */
class Pane {
  constructor(model, state, theme, key, title, ...extras) {
    Object.assign(this, { model, state, theme, key });
    this.unit = element("span", { class: "unit" });
    this.mode = menu(`Values of ${title}`, MODES, "absolute", (mode) => {
      state.set({ modes: { ...state.modes, [key]: mode } });
    });
    MODES.forEach(([, , note], place) => {
      this.mode.options[place].title = note;
    });
    this.tree = new Tree(title, this.source());
    this.body = element("div", { class: "body" }, this.tree.node);
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
    fill(document.getElementById(`pane-${key}`), this.head, this.body, this.scale.node);
  }

  /** What all trees ask alike; the state keeps open nodes under a name, empty ones may be hidden. */
  nodes(below, open, isEmpty) {
    const { state } = this;
    const visible = (ids) => (state.hideZero ? ids.filter((id) => !isEmpty(id)) : ids);
    return {
      roots: () => visible(below.roots),
      below: (id) => visible(below[id]),
      isOpen: (id) => state[open].has(id),
      setOpen: (ids, on) => {
        const next = new Set(state[open]);
        for (const id of ids) next[on ? "add" : "delete"](id);
        state.set({ [open]: next });
      },
      mark: (id) => (isEmpty(id) ? "empty" : ""),
    };
  }

  /** Greatest magnitude among the rows of a tree that are open to view. */
  greatest(roots, below, open) {
    let most = 0;
    const waiting = [...roots];
    while (waiting.length) {
      const id = waiting.pop();
      most = Math.max(most, Math.abs(this.value(id)));
      if (open.has(id)) waiting.push(...below[id]);
    }
    return most;
  }

  /** How values of a metric are shown, up to the greatest of them. */
  shown(most, metric = this.state.metric, mode = this.state.modes[this.key]) {
    return new Shown({
      mode,
      unit: this.model.metrics[metric].unit,
      reference: this.reference(mode, metric),
      most,
      palette: this.theme.palette,
      signed: this.state.view === DIFFERENCE,
    });
  }

  /** What 100 % is. */
  reference(mode, metric) {
    const { model, state } = this;
    const base = state.view === DIFFERENCE ? "0" : state.view;
    if (mode === "root") return model.total(base, model.rootMetric(metric), false);
    const exclusive = state.isExclusiveMetric();
    if (this.key !== "system") return model.total(base, state.metric, exclusive);
    return model[state.isOwnNode() ? "nodeOwn" : "nodeWhole"](base, state.metric, exclusive)[state.node];
  }

  /** Draws the tree, and the scale of how it is shown. */
  draw(how) {
    this.tree.update();
    this.scale.show(how);
  }
}

/** The tree of what was measured, and the help of the metric that is selected. */
class MetricPane extends Pane {
  constructor(model, state, theme) {
    super(model, state, theme, "metrics", "Metrics");
    this.hows = new Map();
    this.help = element("div", { class: "help", "aria-label": "About the selected metric", role: "region" });
    this.body.append(this.help);
  }

  source() {
    const { model, state } = this;
    return {
      ...this.nodes(model.metricBelow, "metricsOpen", (id) => !model.hasMetric(id)),
      name: (id) => model.metrics[id].title,
      isSelected: (id) => id === state.metric,
      select: (id) => state.set({ metric: id }),
      value: (id) => {
        const how = this.how(id);
        const row = how.row(this.value(id));
        if (row.text !== "0") row.text += how.label ? ` ${how.label}` : "";
        return row;
      },
      describe: (id) => {
        const metric = model.metrics[id];
        return [metric.title, ...this.how(id).lines(this.value(id)), metric.meaning];
      },
    };
  }

  value(metric) {
    return this.model.total(this.state.view, metric, this.state.isExclusiveMetric(metric));
  }

  /** How values are shown, once for each root and update. */
  how(metric) {
    const { model, state } = this;
    const root = model.rootMetric(metric);
    return kept(this.hows, root, () => {
      // Seconds, counts and bytes have nothing in common: each root is the measure of its own tree.
      const most = this.greatest([root], model.metricBelow, state.metricsOpen);
      const same = model.metrics[root].unit === model.metrics[state.metric].unit;
      return this.shown(most, root, state.modes.metrics === "selection" && !same ? "root" : state.modes.metrics);
    });
  }

  update() {
    this.hows.clear();
    this.draw(this.how(this.state.metric));
    this.showHelp();
  }

  showHelp() {
    const { model, state } = this;
    const metric = model.metrics[state.metric];
    const exclusive = state.isExclusiveMetric() ? " without its child metrics" : "";
    fill(
      this.help,
      element("div", { class: "strong" }, `${metric.title}${exclusive}: ${single(this.value(state.metric), metric.unit)}`),
      element("div", {}, metric.meaning),
      /\b[BE]\b/.test(metric.meaning) ? element("div", { class: "quietly" }, LETTERS) : null,
      metric.remedy ? element("div", { class: "remedy" }, metric.remedy) : null,
    );
  }
}

/** Where in the program the selected metric has its values; `reveal` brings what is selected into sight. */
class PathPane extends Pane {
  constructor(model, state, theme, reveal) {
    super(
      model,
      state,
      theme,
      "paths",
      "Call paths",
      button("hottest", "Open the path with the largest values", () => this.openHottest(), { class: "quiet" }),
      button("all", "Open all call paths", () => this.openAll(), { class: "quiet" }),
      button("none", "Close all call paths", () => state.set({ nodesOpen: new Set() }), { class: "quiet" }),
    );
    this.reveal = reveal;
    this.site = element("div", { class: "site" });
    this.body.append(this.site);
  }

  source() {
    const { model, state } = this;
    return {
      ...this.nodes(model.nodeBelow, "nodesOpen", (id) => this.reach[id] === 0),
      name: (id) => model.nodeName(id),
      isSelected: (id) => id === state.node,
      select: (id) => state.set({ node: id }),
      value: (id) => this.how.row(this.value(id)),
      describe: (id) => [model.nodeName(id), ...this.how.lines(this.value(id)), ...this.about(id)],
    };
  }

  value(node) {
    return (this.state.isOwnNode(node) ? this.own : this.whole)[node];
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
    this.load();
    const { own, whole } = this;
    const open = new Set(state.nodesOpen);
    // Below the selection; where nothing is below it that counts, from the top.
    let node = state.node;
    if (!model.nodeBelow[node].some((b) => whole[b] !== 0)) [node] = model.pathOf(node);
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

  openAll() {
    const { model, state } = this;
    state.set({ nodesOpen: new Set([...model.nodeBelow.keys()].filter((node) => model.nodeBelow[node].length)) });
  }

  /** Gets the values of the selected metric, and whether anything at or below each node has one. */
  load() {
    const { model, state } = this;
    const exclusive = state.isExclusiveMetric();
    this.own = model.nodeOwn(state.view, state.metric, exclusive);
    this.whole = model.nodeWhole(state.view, state.metric, exclusive);
    this.reach = model.withBelow(Float64Array.from(this.own, Math.abs));
  }

  update() {
    const { model, state } = this;
    this.load();
    this.how = this.shown(this.greatest(model.nodeBelow.roots, model.nodeBelow, state.nodesOpen));
    this.draw(this.how);
    setText(this.unit, this.how.label);
    setText(this.site, [model.pathNames(state.node).join(" › "), ...this.about(state.node).slice(1)].join(" · "));
    this.site.title = this.site.textContent;
  }
}

/** Hosts, ranks, threads and streams with the values of the selection. */
class SystemPane extends Pane {
  constructor(model, state, theme, source) {
    super(model, state, theme, "system", "System");
    this.data = source;
    this.values = null; // by location
    this.listeners = []; // told values, how they are shown, and what part of them is spread evenly
    this.turn = 0;
    this.rows = new Map();
    state.listen(["systemOpen", "ranks"], () => this.tree.update());
  }

  source() {
    const { model, state } = this;
    return {
      ...this.nodes(model.systemBelow, "systemOpen", () => false),
      name: (id) => model.system[id].name,
      isSelected: (id) => model.system[id].rank >= 0 && state.ranks.has(model.system[id].rank),
      select: (id, event) => this.select(id, event),
      value: (id) => {
        if (!this.values) return { text: "", number: 0, colour: "" };
        const open = state.systemOpen.has(id) && model.systemBelow[id].length > 0;
        return open ? { text: "", number: 0, colour: "", spoken: "" } : this.howOf(id).row(this.value(id));
      },
      describe: (id) => [model.system[id].name, ...(this.values ? this.howOf(id).lines(this.value(id)) : [])],
    };
  }

  select(id, event) {
    const { model, state } = this;
    const { rank } = model.system[id];
    if (rank < 0) state.set({ ranks: new Set() });
    else if (event.ctrlKey || event.metaKey || event.shiftKey) {
      const ranks = new Set(state.ranks);
      if (!ranks.delete(rank)) ranks.add(rank);
      state.set({ ranks });
    } else state.set({ ranks: new Set([rank]) });
  }

  value(item) {
    let sum = 0;
    for (const place of this.model.system[item].all) sum += this.values[place];
    return sum;
  }

  howOf(item) {
    return item === 0 ? this.wholeHow : this.how;
  }

  /** Gets the values by location of the selection. */
  async update() {
    const { model, state } = this;
    this.turn += 1;
    const { turn } = this;
    const [metric, exclusive] = [state.metric, state.isExclusiveMetric()];
    const [node, own] = [state.node, state.isOwnNode()];
    if (model.isWhole(node) && !own) {
      this.show(model.viewed("places", state.view, metric, exclusive), 0);
      return;
    }
    const key = `${metric} ${exclusive} ${node} ${own}`;
    let loaded;
    try {
      loaded = await kept(this.rows, key, () => this.data.row(metric, exclusive, node, own), MOST_ROWS_KEPT);
    } catch (error) {
      this.rows.delete(key);
      if (turn === this.turn) setText(this.unit, String(error.message || error));
      return;
    }
    if (turn !== this.turn) return;
    const { rows, spread } = loaded;
    this.show(state.view === DIFFERENCE ? difference(rows[0], rows[1]) : rows[Number(state.view)], spread);
  }

  show(values, spread) {
    const { model } = this;
    this.values = values;
    let most = 0;
    for (let item = 1; item < model.system.length; item += 1) {
      if (model.system[item].rank >= 0) most = Math.max(most, Math.abs(this.value(item)));
    }
    this.how = this.shown(most);
    this.wholeHow = this.shown(Math.max(most, Math.abs(this.value(0))));
    this.draw(this.how);
    setText(this.unit, this.how.label);
    for (const listener of this.listeners) listener(values, this.how, spread);
  }
}

/** The panes, wired to the state. */
export class Panes {
  constructor(model, state, source, theme) {
    Object.assign(this, { model, state });
    this.metrics = new MetricPane(model, state, theme);
    this.paths = new PathPane(model, state, theme, () => this.reveal());
    this.system = new SystemPane(model, state, theme, source);
    const all = ["view", "metric", "metricsOpen", "node", "nodesOpen", "modes", "hideZero", "theme", "scale"];
    state.listen(all, () => {
      for (const pane of [this.metrics, this.paths, this.system]) {
        pane.mode.value = state.modes[pane.key];
        pane.update();
      }
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
