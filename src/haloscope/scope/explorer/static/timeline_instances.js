// Goes through the instances of the selection: its wait states, or its longest stretches.

import { element, say, setText } from "./dom.js";
import { single } from "./format.js";
import { BINS, FACTOR, LAST_LEVEL } from "./tile_store.js";

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
    const row = rows.rowOfPlace.get(place) ?? -1;
    const wait = row >= 0 && waits.columns ? waits.at(place, (begin + end) / 2) : null;
    const causeRow = wait === null ? -1 : (rows.rowOfPlace.get(waits.columns.cause[wait]) ?? -1);
    this.announce(wait === null ? "" : waits.words(wait));
    this.show({ begin, end, row, causeRow });
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
    const row = this.followed ? (rows.rowOfPlace.get(this.followed.place) ?? -1) : -1;
    if (row < 0) {
      this.shown = null;
      waits.number = -1;
      this.announce(waits.status);
    } else {
      const wait = waits.columns ? waits.at(this.followed.place, (this.followed.begin + this.followed.end) / 2) : null;
      const cause = wait === null ? -1 : waits.columns.cause[wait];
      this.shown = { begin: this.followed.begin, end: this.followed.end, row, causeRow: rows.rowOfPlace.get(cause) ?? -1 };
      waits.number = waits.numberOf(this.followed);
      this.announce(waits.number < 0 && wait !== null ? waits.words(wait) : waits.status);
    }
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
    const wanted = instance && {
      place: instance.place,
      begin: instance.begin - meta.begin,
      end: instance.end - meta.begin,
    };
    // An instance outside the selection would not show it.
    const number = wanted ? waits.numberOf(wanted) : -1;
    const pointsThere = wanted && number < 0 && (waits.areOfCauses || this.isCause(wanted));
    if (waits.instances.length && !pointsThere) {
      waits.number = Math.max(0, number);
      this.step(0);
    } else if (pointsThere || (!(await this.showBusiest()) && wanted)) {
      this.pointOut(wanted.place, wanted.begin, wanted.end);
    }
  }

  /** Whether the selected call path causes a wait. */
  isCause({ place, begin, end }) {
    const { waits, looks, state } = this.timeline;
    const wait = waits.columns ? waits.at(place, (begin + end) / 2) : null;
    if (wait === null) return false;
    const { cause_node: does, delay_node: charged } = waits.columns;
    return [does[wait], charged[wait]].some((by) => by >= 0 && looks.pathOf(by).includes(state.node));
  }

  /** Goes to a long stretch of the selected call path; resolves to whether there is one. */
  async showBusiest() {
    const { rows, store, state, model, meta } = this.timeline;
    const inside = model.insideOf(state.node);
    const chosen = meta.rows
      .map((_, row) => row)
      .filter((row) => !state.ranks.size || state.ranks.has(rows.rankOf(row)))
      .slice(0, MOST_ROWS_LOOKED_AT);
    await store.request({ level: 0, rows: chosen, first: 0, last: 0 });
    let best = null;
    for (const row of chosen) {
      const stretch = longestRun(store.find(row, 0, 0).tile, inside, meta.span);
      if (stretch && (!best || stretch.sure > best.sure || (stretch.sure === best.sure && long(stretch) > long(best)))) {
        best = { ...stretch, row };
      }
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
    if (!best || stretch.sure > best.sure || (stretch.sure === best.sure && long(stretch) > long(best))) best = stretch;
    first = last;
  }
  return best;
}
