// Where numbers come from: the server of `haloscope explore`, or the page itself where a single file brings all of them along, some less exact.

import { runs } from "./format.js";
import { QUANTITIES, insideOf, kept } from "./model.js";
import { FACTOR } from "./tile_store.js";

const ARRAYS = {
  f8: Float64Array,
  f4: Float32Array,
  i4: Int32Array,
  u4: Uint32Array,
  u2: Uint16Array,
  u1: Uint8Array,
};

/** {meta, arrays} of a pack's bytes. */
function unpack(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  const { meta, arrays: table } = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
  const arrays = {};
  for (const [name, [type, offset, count]] of Object.entries(table)) {
    arrays[name] = new ARRAYS[type](buffer, 8 + length + offset, count);
  }
  return { meta, arrays };
}

/** Bytes of a pack that lies in the page, compressed and in base64. */
async function embedded(name) {
  const node = document.querySelector(`script[data-pack="${name}"]`);
  if (!node) return null;
  const text = atob(node.textContent);
  node.remove();
  const bytes = new Uint8Array(text.length);
  for (let place = 0; place < text.length; place += 1) bytes[place] = text.charCodeAt(place);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
}

/** Whether the page brings its data along. */
export function isAlone() {
  return document.querySelector("script[data-pack]") !== null;
}

/** Asks the server that the page came from. */
export class ServerSource {
  async ask(question, options = {}) {
    const query = new URLSearchParams(options).toString();
    const response = await fetch(`${question}${query ? `?${query}` : ""}`);
    if (!response.ok) throw new Error(`${question}: ${await response.text()}`);
    return unpack(await response.arrayBuffer());
  }

  head() {
    return this.ask("head");
  }

  /** Values by location of a metric and a call path, of each side; nothing is spread here. */
  async row(metric, exclusive, node, own) {
    const { arrays } = await this.ask("row", { metric, exclusive: Number(exclusive), node, own: Number(own) });
    return { rows: Object.values(arrays), spread: 0 };
  }

  async cells(side, node, own, window, most) {
    const { arrays } = await this.ask("map", {
      side,
      node,
      own: Number(own),
      senders_first: window.s0,
      senders_more: window.s1 - window.s0 - 1,
      receivers_first: window.r0,
      receivers_more: window.r1 - window.r0 - 1,
      most: most - 1,
    });
    return arrays;
  }

  async receivers(side, node, own) {
    return (await this.ask("receivers", { side, node, own: Number(own) })).arrays;
  }

  waits(side) {
    return this.ask("waits", { side });
  }

  async timeline(side) {
    return (await this.ask("timeline", { side })).meta;
  }

  tiles(side, level, first, last, rows) {
    return this.ask("tiles", { side, level, first, last, rows: rowText(rows) });
  }

  lines(side, begin, end, rows, most) {
    return this.ask("lines", { side, begin, end, rows: rowText(rows), most });
  }
}

/** Rows as the server reads them: 0-3,7. */
function rowText(rows) {
  return runs(rows).map(([a, b]) => (a === b ? `${a}` : `${a}-${b}`)).join(",");
}

const [CONSTANT, BYTE, WORD, SPREAD] = [0, 1, 2, 3]; // how a row of values is kept (see page.py)
const SUMS = Object.keys(QUANTITIES);

/** Answers as the server does, from the page's own data. */
export class FileSource {
  constructor() {
    this.opened = new Map();
  }

  open(name) {
    return kept(this.opened, name, () => embedded(name).then((buffer) => (buffer ? unpack(buffer) : null)));
  }

  async head() {
    const head = await this.open("head");
    this.parents = head.arrays.parents;
    this.metricParents = head.meta.metrics.map((metric) => metric.parent);
    this.places = head.meta.places.length;
    this.size = head.meta.size;
    this.sides = head.meta.sides.length;
    // Values are most of the file: unpacked while the first view is looked at.
    setTimeout(() => {
      for (let side = 0; side < this.sides; side += 1) this.values(side);
    }, 50);
    return head;
  }

  async values(side) {
    const { arrays } = await this.open(`values${side}`);
    if (!arrays.at) {
      // Where each row's bytes lie: high bytes of all rows, then low bytes of those of two.
      arrays.at = new Int32Array(arrays.kind.length);
      arrays.low_at = new Int32Array(arrays.kind.length);
      let high = 0;
      let low = 0;
      arrays.kind.forEach((kind, row) => {
        arrays.at[row] = high;
        arrays.low_at[row] = low;
        if (kind === BYTE || kind === WORD) high += this.places;
        if (kind === WORD) low += this.places;
      });
    }
    return arrays;
  }

  async row(metric, exclusive, node, own) {
    const inside = insideOf(this.parents, node, own);
    const wanted = insideOf(this.metricParents, metric, exclusive);
    const rows = [];
    let all = 0;
    let spread = 0;
    for (let side = 0; side < this.sides; side += 1) {
      const values = await this.values(side);
      const total = new Float64Array(this.places);
      const count = this.places;
      for (let row = 0; row < values.kind.length; row += 1) {
        if (!wanted[values.metric[row]] || !inside[values.node[row]]) continue;
        const kind = values.kind[row];
        const low = values.low[row];
        const step = values.step[row];
        const at = values.at[row];
        all += Math.abs(values.sum[row]);
        if (kind === SPREAD) spread += Math.abs(values.sum[row]);
        if (kind === CONSTANT || kind === SPREAD) {
          for (let n = 0; n < count; n += 1) total[n] += low;
        } else if (kind === BYTE) {
          for (let n = 0; n < count; n += 1) total[n] += low + step * values.high_bytes[at + n];
        } else {
          const second = values.low_at[row];
          for (let n = 0; n < count; n += 1) {
            total[n] += low + step * (256 * values.high_bytes[at + n] + values.low_bytes[second + n]);
          }
        }
      }
      rows.push(total);
    }
    return { rows, spread: all ? spread / all : 0 };
  }

  async pairs(side, node, own) {
    const { meta, arrays } = await this.open(`pairs${side}`);
    const all = this.parents.length > 0 && node === 0 && !own;
    if (all || !meta.by_node) return { meta, arrays, chosen: all ? null : "left out" };
    const inside = insideOf(this.parents, node, own);
    const chosen = [];
    for (let row = 0; row < arrays.node.length; row += 1) if (inside[arrays.node[row]]) chosen.push(row);
    return { meta, arrays, chosen };
  }

  async cells(side, node, own, window, most) {
    const { arrays, chosen } = await this.pairs(side, node, own);
    if (chosen === "left out") return null;
    const width = window.s1 - window.s0;
    const height = window.r1 - window.r0;
    const columns = Math.min(most, width);
    const rows = Math.min(most, height);
    const sums = new Map();
    const seen = new Set();
    const count = chosen ? chosen.length : arrays.sender.length;
    for (let number = 0; number < count; number += 1) {
      const row = chosen ? chosen[number] : number;
      const s = arrays.sender[row] - window.s0;
      const r = arrays.receiver[row] - window.r0;
      if (s < 0 || r < 0 || s >= width || r >= height) continue;
      const cell = Math.floor((r * rows) / height) * columns + Math.floor((s * columns) / width);
      const sum = kept(sums, cell, () => [0, 0, 0, 0, 0, 0]);
      const pair = r * width + s;
      if (!seen.has(pair)) {
        seen.add(pair);
        sum[5] += arrays.pairs ? arrays.pairs[row] : 1;
      }
      SUMS.forEach((name, place) => {
        sum[place] += arrays[name][row];
      });
    }
    const cells = [...sums.keys()].sort((a, b) => a - b);
    const answer = { cell: Int32Array.from(cells), pairs: Float64Array.from(cells, (c) => sums.get(c)[5]) };
    SUMS.forEach((name, place) => {
      answer[name] = Float64Array.from(cells, (c) => sums.get(c)[place]);
    });
    return answer;
  }

  async receivers(side, node, own) {
    const { meta, arrays, chosen } = await this.pairs(side, node, own);
    if (chosen === "left out") return null;
    if (!chosen) {
      const whole = {};
      for (const name of ["senders", "empty_senders", ...SUMS]) whole[name] = arrays[`of_${name}`];
      return whole;
    }
    const answer = { senders: new Float64Array(this.size), empty_senders: new Float64Array(this.size) };
    for (const name of SUMS) answer[name] = new Float64Array(this.size);
    const full = new Map();
    for (const row of chosen) {
      const receiver = arrays.receiver[row];
      for (const name of SUMS) answer[name][receiver] += arrays[name][row];
      const link = receiver * this.size + arrays.sender[row];
      full.set(link, (full.get(link) || 0) + arrays.messages[row] - arrays.empty[row]);
    }
    for (const [link, messages] of full) {
      answer[messages > 0 ? "senders" : "empty_senders"][Math.floor(link / this.size)] += 1;
    }
    return meta.by_node ? answer : null;
  }

  waits(side) {
    return this.open(`waits${side}`);
  }

  async timeline(side) {
    const timeline = await this.open(`timeline${side}`);
    return timeline ? timeline.meta : { state: "none" };
  }

  /** All tiles and segments that the file holds come with the first question. */
  async tiles(side) {
    const { meta, arrays } = await this.open(`timeline${side}`);
    const listing = [];
    if (arrays.delivered) return { meta: listing, arrays: {} };
    arrays.delivered = true;
    for (let tile = 0; tile < arrays.tile_row.length; tile += 1) {
      listing.push([arrays.tile_row[tile], arrays.tile_level[tile], arrays.tile_number[tile], arrays.tile_count[tile]]);
    }
    // Times of segments are kept as shares of their tile.
    const times = new Float64Array(arrays.place.length);
    let next = 0;
    for (const [, level, number, count] of listing) {
      const width = meta.span / FACTOR ** level;
      for (let n = 0; n < count; n += 1, next += 1) times[next] = (number + arrays.place[next]) * width;
    }
    return { meta: listing, arrays: { ...arrays, times } };
  }

  async lines(side, begin, end, rows, most) {
    const { meta, arrays } = await this.open(`timeline${side}`);
    const visible = new Set(rows);
    let chosen = [];
    for (let row = 0; row < arrays.sent.length; row += 1) {
      if (arrays.sent[row] > end) break;
      if (Math.max(arrays.received[row], arrays.sent[row]) < begin) continue;
      if (visible.has(arrays.from[row]) || visible.has(arrays.to[row])) chosen.push(row);
    }
    const total = chosen.length;
    if (total > most) {
      const length = (row) => arrays.received[row] - arrays.sent[row];
      chosen = chosen.sort((a, b) => length(b) - length(a)).slice(0, most);
    }
    const answer = {};
    for (const name of ["from", "to", "sent", "received", "bytes", "tag"]) {
      answer[name] = chosen.map((row) => arrays[name][row]);
    }
    return { meta: { total, left_out: meta.lines - arrays.sent.length }, arrays: answer };
  }
}
