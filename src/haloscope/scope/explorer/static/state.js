// What is shown: selections, open nodes, modes and windows; and the link that brings it back.

import { runs } from "./format.js";
import { QUANTITIES } from "./model.js";

// Letters of a link for what the timeline shows.
const DRAWN = { s: "stack", m: "messages", w: "waits", d: "dim", a: "all", o: "only" };
const USUAL = "mw";
const ROW_HEIGHTS = [1, 60]; // CSS pixels
// In thousandths: ends of the panes Metrics and Call paths, height of the lower panel.
const SPLITS = [295, 645, 420];
const LEAST_PANE = 100;
const DOCK = [120, 850];

/** The state of the view; listeners hear which parts have changed. */
export class State {
  constructor(model) {
    this.model = model;
    this.listeners = [];
    this.changed = new Set();
    Object.assign(this, {
      view: model.comparing ? "d" : "0",
      metric: 0,
      node: 0,
      ranks: new Set(),
      metricsOpen: new Set(),
      nodesOpen: new Set(),
      systemOpen: new Set([0]),
      modes: { metrics: "absolute", paths: "absolute", system: "absolute" },
      hideZero: false,
      scale: "viridis",
      systemTab: "tree",
      topology: 0,
      dock: "findings",
      quantity: "bytes",
      window: null, // of the timeline: [begin, end] in seconds since its begin
      map: null, // window of the map: {s0, s1, r0, r1}
      trace: model.comparing ? 1 : 0, // side whose timeline is shown
      instance: null, // what the timeline points out: {place, begin, end}
      drawn: drawnOf(USUAL), // what the timeline shows: {stack, messages, waits, dim, all, only}
      rowHeight: null, // of the timeline in CSS pixels; null: as there is room
      rowTop: 0, // its first row that is seen
      large: false, // whether the lower panel takes all room
      splits: SPLITS,
    });
  }

  listen(parts, listener) {
    this.listeners.push([new Set(parts), listener]);
  }

  /** Changes parts; listeners are called once for all changes made in one turn. */
  set(changes) {
    for (const [name, value] of Object.entries(changes)) {
      this[name] = value;
      this.changed.add(name);
    }
    if (this.waiting) return;
    this.waiting = true;
    queueMicrotask(() => {
      this.waiting = false;
      const changed = this.changed;
      this.changed = new Set();
      for (const [parts, listener] of this.listeners) {
        if ([...changed].some((name) => parts.has(name) || parts.has("*"))) listener(changed);
      }
    });
  }

  isExclusiveMetric(metric = this.metric) {
    return this.metricsOpen.has(metric) && this.model.metricBelow[metric].length > 0;
  }

  isOwnNode(node = this.node) {
    return this.nodesOpen.has(node) && this.model.nodeBelow[node].length > 0;
  }

  /** Selects a metric and opens what is above it; `alone` opens it too: without what is below it. */
  chooseMetric(metric, alone = false) {
    const open = opened(this.metricsOpen, this.model.metrics.map((m) => m.parent), metric);
    if (alone) open.add(metric);
    this.set({ metric, metricsOpen: open });
  }

  /** Selects a call path and opens what is above it. */
  chooseNode(node) {
    this.set({ node, nodesOpen: opened(this.nodesOpen, this.model.parents, node) });
  }

  /** Turns one of the things that the timeline shows on or off. */
  draw(name, isOn) {
    this.set({ drawn: { ...this.drawn, [name]: isOn } });
  }

  setRowHeight(height) {
    const [least, most] = ROW_HEIGHTS;
    this.set({ rowHeight: height === null ? null : Math.min(most, Math.max(least, height)) });
  }

  /** Moves a border: 0 and 1 those of the panes, as shares of the width; 2 the lower panel's height. */
  split(which, share) {
    const [first, second] = this.splits;
    const limits = [
      [LEAST_PANE, second - LEAST_PANE],
      [first + LEAST_PANE, 1000 - LEAST_PANE],
      DOCK,
    ][which];
    const splits = [...this.splits];
    splits[which] = Math.min(limits[1], Math.max(limits[0], Math.round(1000 * share)));
    this.set({ splits });
  }

  /** Text that brings this view back when it follows the # of the page's address. */
  link() {
    const model = this.model;
    const parts = [];
    const say = (name, text) => text !== "" && parts.push(`${name}=${text}`);
    say("m", model.metrics[this.metric].name);
    parts.push(`mo=${[...this.metricsOpen].map((n) => model.metrics[n].name).join(".")}`);
    say("c", pathText(model, this.node));
    say("co", runText(this.nodesOpen));
    say("h", treeMark(model));
    say("r", runText(this.ranks));
    say("so", runText(this.systemOpen));
    if (model.comparing) say("v", this.view);
    say("p", Object.values(this.modes).map((mode) => mode[0]).join(""));
    say("st", this.systemTab === "tree" ? "" : this.systemTab);
    say("d", this.dock);
    say("q", this.quantity);
    if (this.hideZero) say("z", "1");
    if (this.scale !== "viridis") say("s", this.scale);
    if (this.topology) say("g", String(this.topology));
    if (model.comparing) say("w", String(this.trace));
    if (this.window) say("t", this.window.map(timeText).join("_"));
    const drawn = Object.keys(DRAWN).filter((letter) => this.drawn[DRAWN[letter]]).join("");
    if (drawn !== USUAL) say("l", drawn || "-");
    if (this.rowHeight !== null) say("e", this.rowHeight.toFixed(1));
    if (this.rowTop) say("y", this.rowTop.toFixed(2));
    if (this.instance) say("i", [this.instance.place, ...[this.instance.begin, this.instance.end].map(timeText)].join("_"));
    if (this.large) say("b", "1");
    if (this.splits.join() !== SPLITS.join()) say("x", this.splits.join("_"));
    if (this.map) say("k", [this.map.s0, this.map.s1, this.map.r0, this.map.r1].join("_"));
    return parts.join("&");
  }

  /** Takes a view from the text of a link; ignores parts that do not fit. */
  restore(text) {
    const model = this.model;
    const parts = new Map(text.replace(/^#/, "").split("&").map((part) => part.split("=", 2)));
    const changes = {};
    const metric = model.metricByName.get(parts.get("m"));
    if (metric !== undefined) changes.metric = metric;
    if (parts.has("mo")) {
      const names = parts.get("mo").split(".").map((name) => model.metricByName.get(name));
      changes.metricsOpen = new Set(names.filter((n) => n !== undefined));
    } else if (metric !== undefined) {
      changes.metricsOpen = opened(new Set(), model.metrics.map((m) => m.parent), metric);
    }
    const node = parts.has("c") ? findPath(model, parts.get("c")) : -1;
    if (node >= 0) {
      const same = parts.get("h") === treeMark(model);
      const open = same ? runsOf(parts.get("co"), model.nodeCount) : [];
      changes.node = node;
      changes.nodesOpen = same ? new Set(open) : opened(new Set(), model.parents, node);
    }
    if (parts.has("m")) changes.ranks = new Set(runsOf(parts.get("r"), model.meta.size));
    if (parts.has("so")) changes.systemOpen = new Set(runsOf(parts.get("so"), model.system.length));
    if (model.comparing && ["0", "1", "d"].includes(parts.get("v"))) changes.view = parts.get("v");
    if (/^[ars]{3}$/.test(parts.get("p") ?? "")) {
      const modes = { a: "absolute", r: "root", s: "selection" };
      const [metrics, paths, system] = [...parts.get("p")].map((letter) => modes[letter]);
      changes.modes = { metrics, paths, system };
    }
    const one = (key, name, allowed) => allowed.includes(parts.get(key)) && (changes[name] = parts.get(key));
    one("st", "systemTab", ["tree", "distribution", "topology"]);
    one("d", "dock", ["findings", "timeline", "messages", "about", ...(model.hasGpus ? ["gpus"] : [])]);
    one("q", "quantity", Object.keys(QUANTITIES));
    one("s", "scale", ["viridis", "cividis"]);
    if (parts.has("m")) changes.hideZero = parts.get("z") === "1";
    if (/^\d{1,2}$/.test(parts.get("g") ?? "")) changes.topology = Number(parts.get("g"));
    if (/^[01]$/.test(parts.get("w") ?? "") && model.comparing) changes.trace = Number(parts.get("w"));
    const window = timesOf(parts.get("t"));
    if (window.length === 2 && window[0] < window[1]) changes.window = window;
    if (parts.has("m")) Object.assign(changes, this.arrangement(parts));
    const map = (parts.get("k") ?? "").split("_").map(Number);
    const inside = map.every((n) => Number.isInteger(n) && n >= 0 && n <= model.meta.size);
    if (map.length === 4 && inside && map[0] < map[1] && map[2] < map[3]) {
      changes.map = { s0: map[0], s1: map[1], r0: map[2], r1: map[3] };
    }
    this.set(changes);
    return Object.keys(changes).length > 0;
  }

  /** Arrangement of panels and rows from the parts of a link; defaults for missing parts. */
  arrangement(parts) {
    const text = (key) => parts.get(key) ?? "";
    const layout = { drawn: drawnOf(USUAL), rowHeight: null, rowTop: 0, instance: null, splits: SPLITS };
    layout.large = text("b") === "1";
    if (/^([smwdao]{1,6}|-)$/.test(text("l"))) layout.drawn = drawnOf(text("l"));
    const height = /^\d{1,2}(\.\d)?$/.test(text("e")) ? Number(text("e")) : 0;
    if (height >= ROW_HEIGHTS[0] && height <= ROW_HEIGHTS[1]) layout.rowHeight = height;
    if (/^\d{1,7}(\.\d{1,2})?$/.test(text("y"))) layout.rowTop = Number(text("y"));
    const [place, begin, end] = timesOf(text("i"));
    if (Number.isInteger(place) && place >= 0 && place < this.model.meta.places.length && begin <= end) {
      layout.instance = { place, begin, end };
    }
    const splits = /^\d{3}_\d{3}_\d{3}$/.test(text("x")) ? text("x").split("_").map(Number) : SPLITS;
    const apart = [splits[0], splits[1] - splits[0], 1000 - splits[1]].every((width) => width >= LEAST_PANE);
    if (apart && splits[2] >= DOCK[0] && splits[2] <= DOCK[1]) layout.splits = splits;
    return layout;
  }
}

function drawnOf(letters) {
  return Object.fromEntries(Object.entries(DRAWN).map(([letter, name]) => [name, letters.includes(letter)]));
}

/** Seconds as a link has them. */
function timeText(seconds) {
  const text = seconds.toPrecision(15);
  return text.includes(".") ? text.replace(/\.?0+(e|$)/, "$1") : text;
}

/** Numbers of a link; none where one of them is none. */
function timesOf(text) {
  if (!/^[-+.0-9e]{1,24}(_[-+.0-9e]{1,24}){1,2}$/.test(text ?? "")) return [];
  const numbers = text.split("_").map(Number);
  return numbers.every(Number.isFinite) ? numbers : [];
}

/** A set of open nodes with all that lie above one. */
function opened(open, parents, node) {
  const more = new Set(open);
  for (let n = parents[node]; n >= 0; n = parents[n]) more.add(n);
  return more;
}

function siblingsOf(model, node) {
  const parent = model.parents[node];
  return parent < 0 ? model.nodeBelow.roots : model.nodeBelow[parent];
}

/** A call path as text: names, and ~2 for the second of that name in its place. */
function pathText(model, node) {
  return model
    .pathOf(node)
    .map((n) => {
      const alike = siblingsOf(model, n).filter((other) => model.nodeName(other) === model.nodeName(n));
      const order = alike.indexOf(n);
      const name = encodeURIComponent(model.nodeName(n)).replace(/~/g, "%7E");
      return order > 0 ? `${name}~${order + 1}` : name;
    })
    .join("/");
}

function findPath(model, text) {
  let here = model.nodeBelow.roots;
  let node = -1;
  for (const part of text.split("/")) {
    const [name, order] = part.split("~");
    let plain;
    try {
      plain = decodeURIComponent(name);
    } catch {
      return node;
    }
    const alike = here.filter((n) => model.nodeName(n) === plain);
    const next = alike[order ? Number(order) - 1 : 0];
    if (next === undefined) return node;
    node = next;
    here = model.nodeBelow[next];
  }
  return node;
}

/** A number that differs where call trees do, so that open nodes are not restored on another. */
function treeMark(model) {
  if (model.mark === undefined) {
    let hash = 17;
    const add = (n) => {
      hash = (Math.imul(hash, 31) + n) | 0;
    };
    for (let n = 0; n < model.nodeCount; n += 1) {
      add(model.parents[n]);
      const name = model.nodeName(n);
      for (let place = 0; place < name.length; place += 1) add(name.charCodeAt(place));
    }
    model.mark = (hash >>> 0).toString(36);
  }
  return model.mark;
}

function runText(numbers) {
  return runs(numbers).map(([a, b]) => (a === b ? a.toString(36) : `${a.toString(36)}-${b.toString(36)}`)).join(".");
}

function runsOf(text, limit) {
  const numbers = [];
  for (const part of (text ?? "").split(".")) {
    if (!/^[0-9a-z]{1,6}(-[0-9a-z]{1,6})?$/.test(part)) continue;
    const [a, b] = part.split("-").map((n) => parseInt(n, 36));
    for (let n = a; n <= Math.min(b ?? a, limit - 1); n += 1) numbers.push(n);
  }
  return numbers.filter((n) => n < limit);
}
