// The ranked diagnosis: what costs most, where and why; a click goes there.

import { element, fill } from "./dom.js";
import { listed, percent, single } from "./format.js";

/** The panel of findings. `jump` shows an instance of what is selected in the timeline. */
export class Findings {
  constructor(model, state, panes, jump) {
    Object.assign(this, { model, state, panes, jump });
    this.node = element("div", { class: "findings" });
    state.listen(["view", "metric", "node", "ranks"], () => this.show());
    this.show();
  }

  /** Findings of the side that is shown; of the second one where both are compared. */
  side() {
    const { view } = this.state;
    if (view !== "d") return Number(view);
    return this.model.sides[1].findings.length ? 1 : 0;
  }

  show() {
    const { model, state } = this;
    const side = this.side();
    const about = model.sides[side];
    const total = model.total(String(side), model.metricByName.get("time"), false);
    if (!about.findings.length) {
      fill(
        this.node,
        element(
          "p",
          { class: "quietly" },
          "There is no diagnosis beside this result (findings.json, which haloscope analyze writes). ",
          "The greatest losses by metric:",
        ),
        this.greatest(side, total),
      );
      return;
    }
    fill(
      this.node,
      model.comparing
        ? element("p", { class: "quietly" }, `Findings of ${about.folder}${side ? " (second)" : " (first)"}`)
        : null,
      about.answer.length ? element("p", {}, ...coded(about.answer.join(" "))) : null,
      element(
        "ol",
        { "aria-label": "Findings" },
        ...about.findings.map((finding, number) => this.item(finding, number, total, side)),
      ),
    );
  }

  item(finding, number, total, side) {
    const { model, state } = this;
    const metric = finding.metric >= 0 ? model.metrics[finding.metric] : null;
    const node = this.nodeFor(finding);
    const here =
      state.metric === finding.metric && state.node === node && sameRanks(state.ranks, finding.ranks);
    const said = [finding.title, finding.figure, finding.cause].filter(Boolean);
    const text = finding.title ? said.slice(1) : [finding.text || finding.cause];
    if (!finding.title && finding.cause && finding.text && !finding.text.includes(finding.cause)) text.push(finding.cause);
    return element(
      "li",
      {},
      element(
        "button",
        {
          type: "button",
          class: `finding${here ? " selected" : ""}`,
          title: finding.path.join(" › "),
          on: { click: () => this.choose(finding, side) },
        },
        element(
          "span",
          { class: "line" },
          element("span", { class: "number" }, `${number + 1}`),
          finding.seconds !== null
            ? element("strong", { class: "cost" }, `${single(finding.seconds, "s")}${total ? ` · ${percent(finding.seconds / total)}` : ""}`)
            : null,
          element("strong", { class: "what" }, ...coded(finding.title || (metric ? metric.title : ""))),
          element(
            "span",
            { class: "path quietly" },
            [
              finding.title && metric ? metric.title : "",
              finding.path.slice(-3).join(" › "),
              finding.ranks.length ? `ranks ${listed(finding.ranks, 6)}` : "",
            ].filter(Boolean).join(" · "),
          ),
        ),
        element("span", { class: "text" }, ...coded(text.map(sentence).join(" "))),
        finding.remedy ? element("span", { class: "text remedy" }, ...coded(finding.remedy)) : null,
      ),
    );
  }

  nodeFor(finding) {
    return finding.node >= 0 ? finding.node : this.state.node;
  }

  choose(finding, side) {
    const { model, state } = this;
    if (finding.metric >= 0) state.chooseMetric(finding.metric);
    if (finding.node >= 0) state.chooseNode(finding.node);
    state.set({ ranks: new Set(finding.ranks), trace: side });
    if (model.comparing && state.view !== "d" && Number(state.view) !== side) state.set({ view: String(side) });
    this.panes.reveal();
    this.jump(side, finding.instance);
  }

  /** Without a diagnosis: leaves of the tree of time by their share. */
  greatest(side, total) {
    const { model, state } = this;
    const found = model.metrics
      .map((metric, id) => ({ id, metric, value: model.total(String(side), id, false) }))
      .filter(({ id, metric, value }) => metric.remedy && metric.unit === "s" && value > 0 && model.rootMetric(id) === 0)
      .sort((a, b) => b.value - a.value)
      .slice(0, 8);
    return element(
      "ol",
      { "aria-label": "Findings" },
      ...found.map(({ id, metric, value }, number) =>
        element(
          "li",
          {},
          element(
            "button",
            {
              type: "button",
              class: `finding${state.metric === id ? " selected" : ""}`,
              on: {
                click: () => {
                  state.chooseMetric(id);
                  this.panes.reveal();
                  this.panes.openHottest();
                },
              },
            },
            element(
              "span",
              { class: "line" },
              element("span", { class: "number" }, `${number + 1}`),
              element("strong", {}, `${single(value, "s")}${total ? ` · ${percent(value / total)}` : ""}`),
              element("strong", {}, metric.title),
            ),
            element("span", { class: "text remedy" }, metric.remedy),
          ),
        ),
      ),
    );
  }
}

/** Text in which what stands between backticks is code. */
function coded(text) {
  return text.split("`").map((part, place) => (place % 2 ? element("code", {}, part) : part));
}

function sentence(text) {
  const first = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(first) ? first : `${first}.`;
}

function sameRanks(chosen, ranks) {
  return chosen.size === ranks.length && ranks.every((rank) => chosen.has(rank));
}
