// The panel of GPUs: where the time of the ranks goes, each moment counted once, and what the
// devices did; of one measurement, or of two side by side.

import { KINDS } from "./colours.js";
import { element, fill } from "./dom.js";
import { fixed, listed, percent, single } from "./format.js";
import { DIFFERENCE } from "./model.js";

const MOST_BARS = 32; // ranks
const MOST_NAMED = 6; // runs of ranks in a heading
// Of each part: the metric that a click selects, and the kind of work whose colour it has.
const PARTS = {
  kernels: ["gpu_kernels", "kernel"],
  nccl: ["gpu_nccl", "collective"],
  transfers: ["gpu_transfers", "copy"],
  copies: ["gpu_copies", "omp"],
  mpi: ["mpi", "p2p"],
  gpu_calls: ["gpu", "host"],
  host: ["computation", "compute"],
};
const DEVICES = [
  ["gpu_busy", "Devices busy"],
  ["gpu_idle", "Devices idle"],
  ["gpu_idle_computation", "… while the host computes"],
  ["gpu_idle_mpi", "… while the host is in MPI"],
  ["gpu_wait_kernels", "Host waits while kernels run"],
  ["late_sender_device", "Late senders, device was late"],
  ["late_sender_host", "Late senders, host was late"],
  ["late_sender_transfer", "Late senders, transfer"],
  ["gpu_overlap", "Copies beside kernels"],
  ["gpu_bytes_to_host", "Bytes to host"],
  ["gpu_bytes_to_device", "Bytes to device"],
  ["gpu_launches", "Launches"],
];
const COLOURS = new Map(KINDS.map(([kind, , colour]) => [kind, colour]));

/** A table of the ranks' time, with a bar for each rank. */
export class GpuBreakdown {
  constructor(model, state, panes) {
    Object.assign(this, { model, state, panes });
    this.node = element("div", { class: "gpus" });
    state.listen(["view", "metric", "ranks"], () => this.show());
    this.show();
  }

  show() {
    const { model, state } = this;
    this.shown = state.view === DIFFERENCE ? [0, 1] : [Number(state.view)];
    this.perRank = this.shown.length > 1 && new Set(model.sides.map((side) => side.size)).size > 1;
    fill(this.node, element("div", { class: "gpu-table" }, this.table()), this.bars());
  }

  ranks(side) {
    const all = Array.from({ length: this.model.sides[side].size }, (_, rank) => rank);
    return this.state.ranks.size ? all.filter((rank) => this.state.ranks.has(rank)) : all;
  }

  /** Sum over the chosen ranks, or the mean of one where the numbers of ranks differ. */
  together(side, values) {
    const ranks = this.ranks(side);
    const sum = ranks.reduce((total, rank) => total + (values[rank] || 0), 0);
    return this.perRank && ranks.length ? sum / ranks.length : sum;
  }

  ofPart(side, part) {
    const gpus = this.model.sides[side].gpus;
    const column = gpus ? gpus.parts.indexOf(part) : -1;
    return gpus && column >= 0 ? gpus.seconds.map((row) => row[column]) : [];
  }

  ofMetric(side, name) {
    const { model } = this;
    return model.byRank(model.viewed("places", String(side), model.metricByName.get(name), false));
  }

  table() {
    const { model, shown } = this;
    const titles = new Map(model.sides.flatMap((side) => (side.gpus ? side.gpus.parts.map((part, n) => [part, side.gpus.titles[n]]) : [])));
    const parts = Object.keys(PARTS).filter((part) => titles.has(part));
    const whole = shown.map((side) => parts.reduce((sum, part) => sum + this.together(side, this.ofPart(side, part)), 0));
    const metrics = DEVICES.filter(([name]) => model.hasMetric(model.metricByName.get(name)));
    const chosen = this.state.ranks.size ? `ranks ${listed(this.state.ranks, MOST_NAMED)}` : "all ranks";
    const heads = shown.length > 1 ? ["first", "share", "second", "share", "difference"] : [chosen, "share", "least (rank)", "most (rank)"];
    const head = (text) => element("th", { scope: "col" }, text);
    return element(
      "table",
      { class: "statistics", "aria-label": "Time of the ranks by activity" },
      element("caption", {}, `${this.perRank ? "Mean of a rank" : "Sum"}, ${chosen}: each moment counts once, to the GPU while it works`),
      element("thead", {}, element("tr", {}, element("th", {}), ...heads.map(head))),
      element(
        "tbody",
        {},
        ...parts.map((part) =>
          this.row(titles.get(part), PARTS[part][0], "s", (side) => this.ofPart(side, part), whole, COLOURS.get(PARTS[part][1])),
        ),
        shown.length > 1 ? this.row("Together", "time", "s", (side) => this.sums(side), whole) : null,
      ),
      element(
        "tbody",
        { class: "apart" },
        ...metrics.map(([name, title]) => {
          const { unit } = model.metrics[model.metricByName.get(name)];
          return this.row(title, name, unit, (side) => this.ofMetric(side, name), unit === "s" ? whole : null);
        }),
      ),
    );
  }

  sums(side) {
    const gpus = this.model.sides[side].gpus;
    return gpus ? gpus.seconds.map((row) => row.reduce((sum, value) => sum + value, 0)) : [];
  }

  /** A row; its name selects the metric. */
  row(title, metric, unit, values, whole, colour) {
    const { model, state, shown } = this;
    const id = model.metricByName.get(metric);
    const box = element("span", { class: "box" });
    box.style.background = colour || "transparent";
    const name = element(
      "button",
      { type: "button", class: "link", title: model.metrics[id].meaning, "aria-pressed": String(state.metric === id), on: { click: () => this.choose(id) } },
      title,
    );
    const cell = (text) => element("td", {}, text);
    const sums = shown.map((side) => this.together(side, values(side)));
    const share = (number) => (whole && whole[number] ? percent(sums[number] / whole[number]) : "");
    const cells = shown.flatMap((_, number) => [cell(single(sums[number], unit)), cell(share(number))]);
    if (shown.length > 1) {
      const change = sums[1] - sums[0];
      cells.push(cell(`${change > 0 ? "+" : ""}${single(change, unit)}`));
    } else {
      const own = values(shown[0]);
      const ranks = this.ranks(shown[0]);
      const extreme = (better) => ranks.reduce((a, b) => (better(own[b] || 0, own[a] || 0) ? b : a), ranks[0] ?? 0);
      for (const rank of [extreme((a, b) => a < b), extreme((a, b) => a > b)]) {
        cells.push(cell(`${single(own[rank] || 0, unit)} (${fixed(rank, 0)})`));
      }
    }
    return element("tr", {}, element("th", { scope: "row" }, box, name), ...cells);
  }

  choose(metric) {
    this.state.chooseMetric(metric);
    this.panes.reveal();
  }

  /** A bar for each rank, of equal scale. */
  bars() {
    const { model, shown } = this;
    const rows = shown.flatMap((side) =>
      this.ranks(side).slice(0, Math.floor(MOST_BARS / shown.length)).map((rank) => ({ side, rank, gpus: model.sides[side].gpus })),
    ).filter(({ gpus }) => gpus);
    const sumOf = ({ gpus, rank }) => gpus.seconds[rank].reduce((sum, value) => sum + value, 0);
    const most = Math.max(...rows.map(sumOf), 0);
    const bars = rows.map((one) => {
      const { side, rank, gpus } = one;
      const said = gpus.parts.map((part, n) => `${gpus.titles[n]} ${single(gpus.seconds[rank][n], "s")}`).join(", ");
      const bar = element("div", { class: "bar", role: "img", "aria-label": `rank ${rank}: ${said}`, title: said });
      gpus.parts.forEach((part, n) => {
        const piece = element("span", {});
        piece.style.width = `${most ? (100 * gpus.seconds[rank][n]) / most : 0}%`;
        piece.style.background = COLOURS.get(PARTS[part]?.[1]) || "";
        bar.append(piece);
      });
      const label = `${shown.length > 1 ? (side ? "second " : "first ") : ""}rank ${rank}`;
      return [element("span", { class: "quietly" }, label), bar, element("span", {}, single(sumOf(one), "s"))];
    });
    return element("div", { class: "gpu-bars" }, ...bars.flat());
  }
}
