// Wait states of a timeline: which there are in a row, and those of the selection, longest first.

import { shown } from "./dom.js";
import { single } from "./format.js";

const OF_CAUSES = ["delay", "critical_path", "imbalance"]; // metrics that are charged to who causes waits

/** Wait states of one side, in seconds since the begin of its timeline. */
export class Waits {
  constructor(model, state) {
    Object.assign(this, { model, state });
    this.columns = null;
    this.byPlace = new Map();
    this.instances = [];
    this.number = -1;
  }

  /** Takes the columns of an answer; `shift` is when the timeline begins. */
  take(arrays, shift) {
    this.columns = null;
    this.byPlace = new Map();
    if (!arrays || !arrays.begin.length) return;
    this.columns = {
      ...arrays,
      begin: arrays.begin.map((time) => time - shift),
      end: arrays.end.map((time) => time - shift),
    };
    arrays.place.forEach((place, wait) => {
      if (!this.byPlace.has(place)) this.byPlace.set(place, []);
      this.byPlace.get(place).push(wait);
    });
    this.longest = this.columns.end.reduce((most, end, n) => Math.max(most, end - this.columns.begin[n]), 0);
  }

  /** Waits of a location by begin, undefined where it has none. */
  of(place) {
    return this.byPlace.get(place);
  }

  /** Place in a list of waits from which on one may reach into a window. */
  first(list, time) {
    const { begin } = this.columns;
    let [low, high] = [0, list.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (begin[list[middle]] < time - this.longest) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** The wait of a location at a moment, or null. */
  at(place, time) {
    const list = this.of(place);
    if (!list) return null;
    const { begin, end } = this.columns;
    for (let n = this.first(list, time); n < list.length; n += 1) {
      if (begin[list[n]] > time) break;
      if (end[list[n]] >= time) return list[n];
    }
    return null;
  }

  /** A wait in words. */
  words(wait) {
    const { metric, begin, end, cause, cause_node: causeNode, delay_node: delayNode } = this.columns;
    const who = cause[wait] >= 0 ? `, waits for ${this.model.placeName(cause[wait])}` : "";
    const where = causeNode[wait] >= 0 ? ` in ${this.model.nodeName(causeNode[wait])}` : "";
    const why = delayNode[wait] >= 0 ? `, because of ${this.model.nodeName(delayNode[wait])}` : "";
    return shown(`${this.model.metrics[metric[wait]].title}: ${single(end[wait] - begin[wait], "s")}${who}${where}${why}`);
  }

  /** Whether a metric is the selected one or lies below it. */
  isSelected(metric) {
    for (let m = metric; m >= 0; m = this.model.metrics[m].parent) if (m === this.state.metric) return true;
    return false;
  }

  /**
   * Finds the waits of the selected metric, call path and ranks, the longest first; of delay costs
   * those for which the call path is charged most. Where a metric has none of its own, those of the one above.
   */
  findInstances() {
    this.number = -1;
    this.instances = [];
    if (!this.columns) return;
    const { model, state } = this;
    if (this.areOfCauses) this.instances = this.chosen(() => true, this.columns.delay_node);
    else {
      this.instances = this.chosen((metric) => this.isSelected(metric), this.columns.node);
      const above = model.metrics[state.metric].parent;
      if (!this.instances.length && above >= 0 && state.metric !== 0 && this.columns.metric.includes(above)) {
        this.instances = this.chosen((metric) => metric === above, this.columns.node);
      }
    }
    const { begin, end } = this.columns;
    this.instances.sort((a, b) => end[b] - begin[b] - (end[a] - begin[a]));
  }

  chosen(isMetric, nodes) {
    const { model, state } = this;
    const { metric, place, cause } = this.columns;
    const inside = model.insideOf(state.node);
    const waits = [];
    // Selected ranks may be those that wait or those that keep others waiting.
    const isChosen = (p) => p >= 0 && state.ranks.has(model.meta.places[p][0]);
    for (let wait = 0; wait < metric.length; wait += 1) {
      if (nodes[wait] < 0 || !inside[nodes[wait]] || !isMetric(metric[wait])) continue;
      if (state.ranks.size && !isChosen(place[wait]) && !isChosen(cause[wait])) continue;
      waits.push(wait);
    }
    return waits;
  }

  /** Place of a wait among the instances, -1 where it is none of them. */
  numberOf({ place, begin, end }) {
    const wait = this.columns ? this.at(place, (begin + end) / 2) : null;
    return wait === null ? -1 : this.instances.indexOf(wait);
  }

  /** Whether the selected metric is charged to those who cause waits. */
  get areOfCauses() {
    const { model, state } = this;
    return OF_CAUSES.includes(model.metrics[model.rootMetric(state.metric)].name);
  }

  /** The next one, or the one before; null where there is none. */
  step(by) {
    if (!this.instances.length) return null;
    this.number = Math.min(this.instances.length - 1, Math.max(0, this.number + by));
    return this.instances[this.number];
  }

  /** Which instance is shown, in words. */
  get status() {
    const count = this.instances.length;
    if (!this.columns) return "";
    if (!count) return "no wait state of the selection";
    if (this.number >= 0) return `${this.number + 1} of ${count}: ${this.words(this.instances[this.number])}`;
    return `${count} wait state${count > 1 ? "s" : ""} of the selection`;
  }
}
