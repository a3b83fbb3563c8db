// How the numbers of a pane are shown: as they are or as percent of what, in which colours.

import { column, percent, single } from "./format.js";
import { DIFFERENCE } from "./model.js";

export const MODES = [
  ["absolute", "absolute"],
  ["root", "% of root"],
  ["selection", "% of selection"],
];

export const MODE_NOTES = {
  absolute: "values in their unit",
  root: "percent of the total of the root metric over the whole program (in a comparison: of the first measurement)",
  selection:
    "percent of the selection to the left: the selected metric at the selected call path (in a comparison: of the first measurement)",
};

/** Shows numbers of one pane alike. `most` is the greatest magnitude that a row has. */
export class Shown {
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

/** What 100 % is in each pane, for a mode. */
export function references(model, state) {
  const base = state.view === DIFFERENCE ? "0" : state.view;
  const metric = state.metric;
  const exclusive = state.isExclusiveMetric();
  const selected = model.total(base, metric, exclusive);
  const node = state.isOwnNode()
    ? model.nodeOwn(base, metric, exclusive)[state.node]
    : model.nodeWhole(base, metric, exclusive)[state.node];
  return {
    root: (number) => model.total(base, model.rootMetric(number), false),
    metrics: selected,
    paths: selected,
    system: node,
  };
}

/** What 100 % is for a pane in its mode. */
export function referenceOf(model, state, pane, metric) {
  const known = references(model, state);
  if (state.modes[pane] === "root") return known.root(metric);
  return known[pane];
}
