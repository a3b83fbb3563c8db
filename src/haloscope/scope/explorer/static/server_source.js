// Where numbers come from while `haloscope explore` runs: each question goes to its server.

import { unpack } from "./pack.js";

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
    const { arrays } = await this.ask("row", {
      metric,
      exclusive: Number(exclusive),
      node,
      own: Number(own),
    });
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
    return this.ask("tiles", { side, level, first, last, rows: runs(rows) });
  }

  lines(side, begin, end, rows, most) {
    return this.ask("lines", { side, begin, end, rows: runs(rows), most });
  }
}

/** Ascending rows as the server reads them: 0-3,7. */
function runs(rows) {
  const parts = [];
  for (const row of rows) {
    const last = parts[parts.length - 1];
    if (last && row === last[1] + 1) last[1] = row;
    else parts.push([row, row]);
  }
  return parts.map(([a, b]) => (a === b ? `${a}` : `${a}-${b}`)).join(",");
}
