// Starts the page: gets the report, makes the panes and the panels, keeps the link up to date.

import { aboutPanel } from "./about.js";
import { Palette } from "./colours.js";
import { button, element, fill, menu, say, shown, splitter, tabs } from "./dom.js";
import { Findings } from "./findings.js";
import { single } from "./format.js";
import { GpuBreakdown } from "./gpu_breakdown.js";
import { Messages } from "./messages.js";
import { Model } from "./model.js";
import { MODES, Panes } from "./panes.js";
import { Search } from "./search.js";
import { FileSource, ServerSource, isAlone } from "./sources.js";
import { Spread } from "./spread.js";
import { State } from "./state.js";
import { Timeline } from "./timeline.js";

const KEPT = "haloscope-explorer-theme"; // name under which the browser keeps the choice
const LINK_AFTER = 150; // milliseconds without a change

/** Light or dark, as the system says until someone chooses. */
class Theme {
  constructor() {
    this.system = matchMedia("(prefers-color-scheme: dark)");
    this.chosen = "system";
    try {
      this.chosen = localStorage.getItem(KEPT) || "system";
    } catch {
      // A browser that keeps nothing shows what the system wants.
    }
    this.scale = "viridis";
  }

  get dark() {
    return this.chosen === "system" ? this.system.matches : this.chosen === "dark";
  }

  apply() {
    document.documentElement.dataset.theme = this.dark ? "dark" : "light";
    this.palette = new Palette(this.dark, this.scale);
  }

  choose(chosen) {
    this.chosen = chosen;
    try {
      localStorage.setItem(KEPT, chosen);
    } catch {
      // As above.
    }
    this.apply();
  }
}

function titleOf(model) {
  return model.sides.map((side) => side.folder).join(" → ");
}

function headline(side, model, number) {
  const { about } = side;
  const command = Array.isArray(about.command) ? about.command.join(" ") : about.command || about.program || "";
  const time = model.total(String(number), model.metricByName.get("time"), false);
  return [
    command,
    `${side.size} rank${side.size === 1 ? "" : "s"}`,
    about.span ? single(about.span, "s") : about.seconds ? single(about.seconds, "s") : "",
    time ? `${single(time, "s")} in total` : "",
    about.partial ? "partial" : "",
  ].filter(Boolean);
}

/** How long the two runs took. */
function spansOf(model) {
  return model.sides.map(({ about }) => (about.span ? single(about.span, "s") : "?")).join(" → ");
}

function buildBar(model, state, theme, search) {
  const label = element("div", { class: "title", title: model.sides.map((side, n) => headline(side, model, n).join(" · ")).join("\n") });
  fill(
    label,
    element("strong", {}, titleOf(model)),
    element("span", { class: "quietly" }, model.comparing ? spansOf(model) : headline(model.sides[0], model, 0).join(" · ")),
  );
  const modes = menu("Values of all panes", [...MODES, ["own", "per pane"]], "absolute", (mode) => {
    if (mode !== "own") state.set({ modes: { metrics: mode, paths: mode, system: mode } });
  });
  const zero = button("hide zeros", "Hide rows that are zero everywhere", () => state.set({ hideZero: !state.hideZero }));
  const scale = menu("Colour scale", [["viridis", "viridis"], ["cividis", "cividis"]], "viridis", (name) => state.set({ scale: name }));
  const look = menu("Light or dark", [["system", "system"], ["light", "light"], ["dark", "dark"]], theme.chosen, (chosen) => {
    theme.choose(chosen);
    state.set({ theme: chosen });
  });
  const copy = button("copy link", "Copy a link to this view", async () => {
    const link = `${location.href.split("#")[0]}#${state.link()}`;
    try {
      await navigator.clipboard.writeText(link);
      say("The link to this view was copied");
    } catch {
      say("The link to this view is in the address bar");
    }
  });
  const view = model.comparing
    ? menu(
        "Measurement",
        [["d", "difference: second − first"], ["0", `first: ${model.sides[0].folder}`], ["1", `second: ${model.sides[1].folder}`]],
        state.view,
        (chosen) => state.set({ view: chosen }),
      )
    : null;
  const help = element("dialog", { "aria-label": "Help" });
  const keys = [
    ["1, 2, 3", "go to Metrics, Call paths, System"],
    ["arrows, Home, End", "move in a tree; right opens, left closes, * opens all siblings"],
    ["/", "search"],
    ["f, t, c, g, i", "findings, timeline, communication, GPUs, about"],
    ["n, p", "next, previous instance of the selection in the timeline"],
    ["w, s, a, d or + − ← →", "zoom and move in the timeline with focus"],
    ["m", "make the lower panel larger or smaller"],
    ["?", "this help"],
  ];
  const pointer = [
    ["click, double click", "in a tree: select, open or close; Ctrl-click selects several ranks"],
    ["drag", "in the timeline and the map: zoom to the marked range; double click shows everything"],
    ["Shift-drag", "in the timeline and the map: move"],
    ["wheel", "in the timeline: scroll the ranks; with Ctrl zoom, with Shift move, with Alt change the row height"],
  ];
  const listed = (entries) => element("dl", {}, ...entries.flatMap(([key, text]) => [element("dt", {}, key), element("dd", {}, text)]));
  help.append(
    element("h2", {}, "How to read the trees"),
    element(
      "p",
      {},
      "Choose a metric on the left, then a call path: each tree divides the selection to its left. A closed node shows its inclusive value, an open node its exclusive value. Colours of the boxes show values; the scale is at the bottom of each pane.",
    ),
    element("h2", {}, "Keys"),
    listed(keys),
    element("h2", {}, "Pointer"),
    listed(pointer),
    element("p", {}, "Colours: ", scale),
    button("close", "Close", () => help.close()),
  );
  document.body.append(help);
  fill(
    document.getElementById("bar"),
    element("span", { class: "brand" }, "Haloscope"),
    label,
    view,
    element("span", { class: "gap" }),
    search.node,
    modes,
    zero,
    look,
    copy,
    button("?", "Help (?)", () => help.showModal(), { class: "round" }),
  );
  const show = () => {
    const { metrics, paths, system } = state.modes;
    modes.value = metrics === paths && paths === system ? metrics : "own";
    zero.setAttribute("aria-pressed", String(state.hideZero));
    scale.value = state.scale;
    if (view) view.value = state.view;
  };
  state.listen(["modes", "hideZero", "scale", "view"], show);
  show();
  return help;
}

function buildDock(model, state, parts) {
  const dock = document.getElementById("dock");
  const entries = [
    ["findings", "Findings", parts.findings.node],
    ["timeline", "Timeline", parts.timeline.node],
    ["messages", "Communication", parts.messages.node],
    ...(parts.gpus ? [["gpus", "GPUs", parts.gpus.node]] : []),
    ["about", "About", aboutPanel(model)],
  ];
  const panels = entries.map(([key, text, node]) => [key, text, element("div", { class: "panel" }, node)]);
  const made = tabs("Panels", panels, (key) => state.set({ dock: key }));
  const arrange = () => {
    const { large, splits } = state;
    const height = splits[2] / 1000;
    document.body.style.gridTemplateRows = large
      ? "40px 0 0 minmax(0, 1fr)"
      : `40px minmax(0, ${1 - height}fr) 5px minmax(0, ${height}fr)`;
    document.getElementById("panes").style.visibility = large ? "hidden" : "";
  };
  const grow = button("⤢", "Larger or smaller (m)", () => state.set({ large: !state.large }), { class: "quiet" });
  splitter(
    document.getElementById("split-dock"),
    "Height of the lower panel",
    false,
    () => 40 + (1 - state.splits[2] / 1000) * (innerHeight - 45),
    (y) => state.split(2, 1 - (y - 40) / (innerHeight - 45)),
  );
  fill(dock, element("div", { class: "head" }, made.list, element("span", { class: "gap" }), grow), ...panels.map((p) => p[2]));
  state.listen(["dock"], () => made.choose(state.dock));
  state.listen(["large", "splits"], arrange);
  made.choose(state.dock);
  arrange();
  return grow;
}

function listenToKeys(state, parts, help, grow) {
  const focus = { 1: "metrics", 2: "paths", 3: "system" };
  const docks = { f: "findings", t: "timeline", c: "messages", i: "about" };
  if (parts.gpus) docks.g = "gpus";
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("input, select, textarea, dialog")) return;
    const { key } = event;
    if (key in focus) {
      if (key === "3") state.set({ systemTab: "tree" });
      queueMicrotask(() => parts.panes[focus[key]].tree.node.focus());
    } else if (key in docks) state.set({ dock: docks[key] });
    else if (key === "/") parts.search.box.focus();
    else if (key === "n" || key === "p") parts.timeline.instances.step(key === "n" ? 1 : -1);
    else if (key === "m") grow.click();
    else if (key === "?") help.showModal();
    else return;
    event.preventDefault();
  });
}

function keepLink(state, panes) {
  let timer = null;
  let own = "";
  state.listen(["*"], () => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      own = `#${state.link()}`;
      if (location.hash !== own) history.replaceState(null, "", own);
    }, LINK_AFTER);
  });
  addEventListener("hashchange", () => {
    if (location.hash === own) return;
    state.restore(location.hash);
    panes.reveal();
  });
}

const MOST_OF_IT = 0.5; // of the time, in which a call path is opened at first

/** What is shown at first: where most of the time goes, or what a link says. */
function beginState(model, state) {
  const metric = model.metricByName.get("time");
  const side = model.comparing ? "1" : "0";
  const whole = model.nodeWhole(side, metric, false);
  const all = model.total(side, metric, false);
  const open = new Set();
  let node = 0;
  for (let below = model.nodeBelow[node]; below.length; below = model.nodeBelow[node]) {
    const next = below.reduce((a, b) => (whole[b] > whole[a] ? b : a));
    if (whole[next] < MOST_OF_IT * all) break;
    open.add(node);
    node = next;
    if (open.size > 1) break;
  }
  state.set({ metric, node, nodesOpen: open });
  if (location.hash.length > 1) state.restore(location.hash);
}

async function start() {
  const theme = new Theme();
  theme.apply();
  const source = isAlone() ? new FileSource() : new ServerSource();
  let head;
  try {
    head = await source.head();
  } catch (error) {
    fill(document.getElementById("panes"), element("p", { class: "failure" }, `The report cannot be read: ${error.message}`));
    return;
  }
  const model = new Model(head);
  const state = new State(model);
  beginState(model, state);
  document.title = shown(`${titleOf(model)} · Haloscope explorer`);
  const panes = new Panes(model, state, source, theme);
  const spread = new Spread(model, state, panes);
  const search = new Search(model, state, panes);
  const timeline = new Timeline(model, state, source, panes);
  const findings = new Findings(model, state, panes, (side, instance) => timeline.instances.jump(side, instance));
  const messages = new Messages(model, state, source, theme);
  const gpus = model.hasGpus ? new GpuBreakdown(model, state, panes) : null;
  const parts = { panes, spread, search, timeline, findings, messages, gpus };
  state.listen(["scale"], () => {
    theme.scale = state.scale;
    theme.apply();
    state.set({ theme: theme.chosen });
  });
  const help = buildBar(model, state, theme, search);
  const grow = buildDock(model, state, parts);
  theme.system.addEventListener("change", () => {
    theme.apply();
    state.set({ theme: theme.chosen });
  });
  listenToKeys(state, parts, help, grow);
  keepLink(state, panes);
  state.set({ dock: state.dock, view: state.view, scale: state.scale });
  panes.reveal();
  if ((model.meta.left_out || []).length) say("This file leaves out data: see About");
  document.documentElement.dataset.ready = "true";
}

start();
