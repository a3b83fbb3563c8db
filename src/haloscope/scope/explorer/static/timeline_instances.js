// Wait states of a timeline, and the way through the instances of the selection: its waits, or its longest stretches.

import { element, say, setText, shown } from "./dom.js";
import { single } from "./format.js";
import { insideOf, kept } from "./model.js";
import { BINS, FACTOR, LAST_LEVEL, firstPlace } from "./tile_store.js";

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
      kept(this.byPlace, place, () => []).push(wait);
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
    return firstPlace(list.length, (n) => begin[list[n]] >= time - this.longest);
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
    const inside = insideOf(model.parents, state.node);
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

  /** The wait in the middle of an instance, null where there is none. */
  among({ place, begin, end }) {
    return this.columns ? this.at(place, (begin + end) / 2) : null;
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

const AROUND = 0.8; // of an instance that is shown before and after it
const SHORTEST = 2e-9; // seconds
const MOST_ROWS_LOOKED_AT = 64;
const READABLE = 13; // CSS pixels of a row that is pointed out
const EXACT = 2; // how sure a stretch is: see longestRun
const MANY_BINS = 8;

/** Points out instances on a timeline, one after the other. */
export class Instances {
  constructor(timeline) {
    this.timeline = timeline;
    this.shown = null; // {begin, end, row, causeRow}
    this.followed = null; // what of the state this follows
    this.node = element("span", { class: "quietly which", "aria-live": "polite" });
  }

  /** Looks for those of the selection. */
  find() {
    const { meta, waits } = this.timeline;
    waits.findInstances();
    this.announce(meta ? waits.status : "");
  }

  announce(text) {
    setText(this.node, text);
    this.node.title = this.node.textContent;
  }

  /** Points out the next wait of the selection, or the one before. */
  async step(by) {
    const { meta, waits } = this.timeline;
    const wait = meta ? waits.step(by) : null;
    if (wait === null) {
      if (!meta || !(await this.showBusiest())) {
        say("No instance of this metric, call path and ranks is recorded");
      }
      return;
    }
    const { place, begin, end } = waits.columns;
    this.pointOut(place[wait], begin[wait], end[wait]);
    this.announce(waits.status);
  }

  /** Shows a wait of a location, with its cause. */
  pointOut(place, begin, end) {
    const { rows, waits } = this.timeline;
    const row = rows.rowOf(place);
    const wait = row < 0 ? null : waits.among({ place, begin, end });
    this.announce(wait === null ? "" : waits.words(wait));
    this.show({ begin, end, row, causeRow: this.causeRow(wait) });
  }

  /** Row of the location for which a wait waits, -1 where there is none. */
  causeRow(wait) {
    const { rows, waits } = this.timeline;
    return wait === null ? -1 : rows.rowOf(waits.columns.cause[wait]);
  }

  show(instance) {
    const { timeline } = this;
    const { rows } = timeline;
    this.shown = instance;
    const { begin, end, row, causeRow } = instance;
    const place = row >= 0 ? timeline.meta.rows[row][2] : -1;
    this.followed = place >= 0 ? { place, begin, end } : null;
    timeline.state.set({ instance: this.followed });
    const long = Math.max(SHORTEST, end - begin);
    timeline.setWindow(begin - AROUND * long, end + AROUND * long);
    if (row < 0) return;
    // All rows where both can be read together, else those of their ranks.
    const apart = (causeRow >= 0 ? Math.abs(row - causeRow) : 0) + 1;
    const alone = apart * READABLE > rows.room;
    timeline.state.draw("only", alone);
    if (!alone) rows.atLeast(READABLE);
    rows.unfold([row, causeRow]);
    timeline.arrangeRows();
    rows.centre([row, causeRow]);
    timeline.refreshRows();
  }

  /** Points out the instance of a link, where the window and the rows are set already. */
  restore() {
    const { meta, rows, state, waits } = this.timeline;
    if (!meta || state.instance === this.followed) return;
    this.followed = state.instance;
    const row = rows.rowOf(this.followed?.place);
    const wait = row < 0 ? null : waits.among(this.followed);
    this.shown = row < 0 ? null : { ...this.followed, row, causeRow: this.causeRow(wait) };
    waits.number = wait === null ? -1 : waits.instances.indexOf(wait);
    this.announce(waits.number < 0 && wait !== null ? waits.words(wait) : waits.status);
    this.timeline.arrangeRows();
  }

  /** Goes to a wait, or to the longest of the selection, on the timeline of a side. */
  async jump(side, instance) {
    const { timeline } = this;
    timeline.state.set({ trace: side, dock: "timeline" });
    await new Promise((resume) => {
      setTimeout(resume, 0);
    });
    if (!(await timeline.open())) return;
    this.find();
    const { waits, meta } = timeline;
    const wanted = instance && { ...instance, begin: instance.begin - meta.begin, end: instance.end - meta.begin };
    // An instance outside the selection would not show it.
    const number = wanted ? waits.instances.indexOf(waits.among(wanted)) : -1;
    const pointsThere = wanted && number < 0 && (waits.areOfCauses || this.isCause(wanted));
    if (waits.instances.length && !pointsThere) {
      waits.number = Math.max(0, number);
      this.step(0);
    } else if (pointsThere || (!(await this.showBusiest()) && wanted)) {
      this.pointOut(wanted.place, wanted.begin, wanted.end);
    }
  }

  /** Whether the selected call path causes a wait. */
  isCause(instance) {
    const { waits, looks, state } = this.timeline;
    const wait = waits.among(instance);
    if (wait === null) return false;
    const { cause_node: does, delay_node: charged } = waits.columns;
    return [does[wait], charged[wait]].some((by) => by >= 0 && looks.pathOf(by).includes(state.node));
  }

  /** Goes to a long stretch of the selected call path; resolves to whether there is one. */
  async showBusiest() {
    const { rows, store, state, model, meta } = this.timeline;
    const inside = insideOf(model.parents, state.node);
    const chosen = meta.rows
      .map((_, row) => row)
      .filter((row) => !state.ranks.size || state.ranks.has(rows.rankOf(row)))
      .slice(0, MOST_ROWS_LOOKED_AT);
    await store.request({ level: 0, rows: chosen, first: 0, last: 0 });
    let best = null;
    for (const row of chosen) {
      const stretch = longestRun(store.find(row, 0, 0).tile, inside, meta.span);
      if (stretch && isBetter(stretch, best)) best = { ...stretch, row };
    }
    // Where the call path fills only a part of a bin, finer tiles locate it.
    for (let level = 1; best && level <= LAST_LEVEL && best.sure < EXACT; level += 1) {
      const number = Math.floor(((best.begin + best.end) / 2 / meta.span) * FACTOR ** level);
      await store.request({ level, rows: [best.row], first: number, last: number });
      const { tile } = store.find(best.row, level, number);
      const stretch = tile && tile.level === level ? longestRun(tile, inside, meta.span) : null;
      if (!stretch) break;
      best = { ...stretch, row: best.row };
    }
    if (!best || this.timeline.store !== store) return false;
    this.show({ ...best, causeRow: -1 });
    this.announce(`no wait state; ${model.nodeName(state.node)} for ${single(long(best), "s")} on ${rows.name(best.row)}`);
    return true;
  }
}

function long({ begin, end }) {
  return end - begin;
}

/** Whether a stretch is surer than the best one so far, or as sure and longer. */
function isBetter(stretch, best) {
  return !best || stretch.sure > best.sure || (stretch.sure === best.sure && long(stretch) > long(best));
}

/**
 * The longest stretch of a tile in which call paths of a set are active; null where there is none.
 * `sure` is 0 where they are a part of its bins only, 1 where they are most of them.
 */
function longestRun(tile, inside, span) {
  if (!tile) return null;
  const start = (tile.number * span) / FACTOR ** tile.level;
  const stop = start + span / FACTOR ** tile.level;
  const { times, active, nodes, seconds } = tile;
  const count = times ? times.length : BINS;
  const begin = (n) => (n >= count ? stop : times ? Math.max(start, times[n]) : start + (n * (stop - start)) / BINS);
  const isIn = (node) => node >= 0 && inside[node] === 1;
  const sureness = (n) => (times ? (isIn(active[n]) ? EXACT : -1) : isIn(nodes[n]) ? 1 : isIn(seconds[n]) ? 0 : -1);
  let best = null;
  for (let first = 0; first < count; first += 1) {
    const sure = sureness(first);
    if (sure < 0) continue;
    let last = first;
    while (last + 1 < count && sureness(last + 1) === sure) last += 1;
    const stretch = { begin: begin(first), end: begin(last + 1), sure };
    // A stretch of many bins is as good as known.
    if (sure === 1 && last - first >= MANY_BINS) stretch.sure = EXACT;
    if (isBetter(stretch, best)) best = stretch;
    first = last;
  }
  return best;
}
