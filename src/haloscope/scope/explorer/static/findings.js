// The ranked diagnosis: what costs most, where and why, or what two measurements differ in; a click goes there.

import { element, fill } from "./dom.js";
import { listed, percent, single } from "./format.js";
import { DIFFERENCE } from "./model.js";

const LEAST = 1e-3; // of the time of the first, below which a change is not told

/**
 * Changes of the time, second less first, the greatest first: {metric, node, first, second}.
 * A metric stands for itself without those below it, so that nothing is told twice.
 */
function changes(model, most) {
  const root = model.metricByName.get("time");
  const whole = Math.abs(model.total("0", root, false));
  return model.metrics
    .map((_, metric) => metric)
    .filter((metric) => model.rootMetric(metric) === root)
    .map((metric) => ({ metric, first: model.total("0", metric, true), second: model.total("1", metric, true) }))
    .filter(({ first, second }) => Math.abs(second - first) > LEAST * whole)
    .sort((a, b) => Math.abs(b.second - b.first) - Math.abs(a.second - a.first))
    .slice(0, most)
    .map((change) => ({ ...change, node: whereMost(model, change) }));
}

/** The call path in which a metric changed most in the direction in which it changed altogether. */
function whereMost(model, { metric, first, second }) {
  const sign = Math.sign(second - first);
  const own = model.nodeOwn(DIFFERENCE, metric, true);
  let best = 0;
  own.forEach((value, node) => {
    if (sign * value > sign * own[best]) best = node;
  });
  return best;
}

const MOST_CHANGES = 6;
const MOST_LOSSES = 8;

/** The panel of findings. `jump` shows an instance of what is selected in the timeline. */
export class Findings {
  constructor(model, state, panes, jump) {
    Object.assign(this, { model, state, panes, jump });
    this.node = element("div", { class: "findings" });
    state.listen(["view", "metric", "node", "ranks"], () => this.show());
    this.show();
  }

  show() {
    const place = [...this.node.querySelectorAll("button")].indexOf(document.activeElement);
    fill(this.node, ...this.contents());
    // The button that was pressed is made anew: it keeps the focus.
    if (place >= 0) this.node.querySelectorAll("button")[place]?.focus({ preventScroll: true });
  }

  contents() {
    const { view } = this.state;
    if (view !== DIFFERENCE) return this.ofSide(Number(view), "Findings", "h3");
    const heading = (side) => element("h3", {}, `${side ? "Second" : "First"}: ${this.model.sides[side].folder}`);
    return [
      element("p", {}, this.compared()),
      this.changed(),
      heading(1),
      ...this.ofSide(1, "Findings", "h4"),
      heading(0),
      ...this.ofSide(0, "Findings of the first", "h4"),
    ];
  }

  /** The diagnosis of one measurement; `level` is the element of the headings within it. */
  ofSide(side, label, level) {
    const { answer, findings } = this.model.sides[side];
    const known = this.toKnow(side);
    if (!answer.length && !findings.length) {
      return [
        ...known,
        element(
          "p",
          { class: "quietly" },
          "There is no diagnosis of this measurement (findings.json of haloscope analyze). ",
          "The largest losses by metric:",
        ),
        this.greatest(side, this.total(side), label),
      ];
    }
    return [
      answer.length ? element("p", {}, ...coded(answer.join(" "))) : null,
      ...known,
      ...this.lists(findings, side, label, level),
    ];
  }

  /** What measuring took, and the notes that the terminal prints. */
  toKnow(side) {
    const { measuring, notes } = this.model.sides[side];
    return [
      measuring ? element("p", { class: measuring.is_large ? "warn" : "quietly" }, ...coded(measuring.text)) : null,
      ...notes.map((note) => element("p", { class: "warn" }, ...coded(sentence(`note: ${note}`)))),
    ];
  }

  /** The findings, in one list up to the next heading; their numbers go on. */
  lists(findings, side, label, level) {
    const total = this.total(side);
    const parts = [];
    findings.forEach((finding, number) => {
      const { heading } = finding;
      if (heading) parts.push(element(level, {}, heading));
      if (heading || !number) parts.push(element("ol", { "aria-label": heading ? `${label}: ${heading}` : label }));
      parts.at(-1).append(this.item(finding, number, total, side));
    });
    return parts;
  }

  total(side) {
    return this.model.total(String(side), this.model.metricByName.get("time"), false);
  }

  /** How long both runs took. */
  compared() {
    const [first, second] = this.model.sides.map((side) => side.about.span);
    if (!first || !second) return "The largest changes, second minus first:";
    const share = (second - first) / first;
    return `The second run takes ${single(second, "s")}, the first ${single(first, "s")}: ${percent(Math.abs(share))} ${share > 0 ? "more" : "less"}. The largest changes in the time of all ranks, second minus first:`;
  }

  changed() {
    const { model } = this;
    const total = this.total(0);
    const largest = changes(model, MOST_CHANGES);
    if (!largest.length) return element("p", { class: "quietly" }, "No large losses.");
    return element(
      "ol",
      { "aria-label": "Changes" },
      ...largest.map(({ metric, node, first, second }, number) =>
        entry({
          number,
          cost: `${signed(second - first)}${total ? ` · ${second > first ? "+" : ""}${percent((second - first) / total)}` : ""}`,
          headline: model.metrics[metric].title,
          where: `${single(first, "s")} → ${single(second, "s")} · mainly in ${model.pathNames(node).slice(-3).join(" › ")}`,
          selected: this.state.metric === metric && this.state.node === node,
          click: () => {
            this.state.chooseMetric(metric, true);
            this.state.chooseNode(node);
            this.panes.reveal();
          },
        }),
      ),
    );
  }

  item(finding, number, total, side) {
    const { model, state } = this;
    const metric = finding.metric >= 0 ? model.metrics[finding.metric] : null;
    const said = [finding.title, finding.figure, finding.cause].filter(Boolean);
    const text = finding.title ? said.slice(1) : [finding.text || finding.cause];
    if (!finding.title && finding.cause && finding.text && !finding.text.includes(finding.cause)) text.push(finding.cause);
    return entry({
      number,
      cost: finding.seconds === null ? "" : cost(finding.seconds, total),
      headline: finding.title || (metric ? metric.title : ""),
      where: [
        finding.title && metric ? metric.title : "",
        finding.path.slice(-3).join(" › "),
        finding.ranks.length ? `rank${finding.ranks.length > 1 ? "s" : ""} ${listed(finding.ranks, 6)}` : "",
      ].filter(Boolean).join(" · "),
      texts: [text.map(sentence).join(" ")],
      remedy: finding.remedy,
      title: finding.path.join(" › "),
      selected:
        state.metric === finding.metric && state.node === this.nodeFor(finding) && sameRanks(state.ranks, finding.ranks),
      click: () => this.choose(finding, side),
    });
  }

  nodeFor(finding) {
    return finding.node >= 0 ? finding.node : this.state.node;
  }

  choose(finding, side) {
    const { model, state } = this;
    if (finding.metric >= 0) state.chooseMetric(finding.metric);
    if (finding.node >= 0) state.chooseNode(finding.node);
    const instance = side === state.trace ? state.instance : null;
    state.set({ ranks: new Set(finding.ranks), trace: side, instance });
    if (model.comparing && state.view !== "d" && Number(state.view) !== side) state.set({ view: String(side) });
    this.panes.reveal();
    this.jump(side, finding.instance);
  }

  /** Without a diagnosis: leaves of the tree of time by their share. */
  greatest(side, total, label) {
    const { model, state } = this;
    const losses = model.metrics
      .map((metric, id) => ({ id, metric, value: model.total(String(side), id, false) }))
      .filter(({ id, metric, value }) => metric.remedy && metric.unit === "s" && value > 0 && model.rootMetric(id) === 0)
      .sort((a, b) => b.value - a.value)
      .slice(0, MOST_LOSSES);
    return element(
      "ol",
      { "aria-label": label },
      ...losses.map(({ id, metric, value }, number) =>
        entry({
          number,
          cost: cost(value, total),
          headline: metric.title,
          remedy: metric.remedy,
          selected: state.metric === id,
          click: () => {
            state.chooseMetric(id);
            this.panes.paths.openHottest();
          },
        }),
      ),
    );
  }
}

/** One entry of a list, as a button. */
function entry({ number, cost: costs, headline, where = "", texts = [], remedy = "", title = "", selected, click }) {
  return element(
    "li",
    {},
    element(
      "button",
      { type: "button", class: `finding${selected ? " selected" : ""}`, "aria-pressed": String(selected), title, on: { click } },
      element(
        "span",
        { class: "line" },
        element("span", { class: "number" }, `${number + 1}`),
        costs ? element("strong", { class: "cost" }, costs) : null,
        element("strong", { class: "what" }, ...coded(headline)),
        where ? element("span", { class: "path quietly" }, where) : null,
      ),
      ...texts.filter(Boolean).map((text) => element("span", { class: "text" }, ...coded(text))),
      remedy ? element("span", { class: "text remedy" }, ...coded(remedy)) : null,
    ),
  );
}

function cost(seconds, total) {
  return `${single(seconds, "s")}${total ? ` · ${percent(seconds / total)}` : ""}`;
}

function signed(seconds) {
  return `${seconds > 0 ? "+" : ""}${single(seconds, "s")}`;
}

/** Text in which what stands between backticks is code. */
function coded(text) {
  return text.split("`").flatMap((part, place) => (place % 2 ? [element("code", {}, part)] : unbroken(part)));
}

/** Text in which no line ends within an option of a command, such as --filter. */
function unbroken(text) {
  return text.split(/(--[\w-]+)/).map((part, place) => (place % 2 ? element("span", { class: "option" }, part) : part));
}

function sentence(text) {
  const first = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(first) ? first : `${first}.`;
}

function sameRanks(chosen, ranks) {
  return chosen.size === ranks.length && ranks.every((rank) => chosen.has(rank));
}
