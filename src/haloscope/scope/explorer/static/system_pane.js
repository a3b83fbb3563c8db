// The pane of the system: hosts, ranks, threads and streams with the values of the selection.

import { setText, tip } from "./dom.js";
import { DIFFERENCE, difference } from "./model.js";
import { Frame, toggled } from "./pane_frame.js";
import { Tree } from "./tree.js";
import { Shown, referenceOf } from "./values.js";

const MOST_ROWS_KEPT = 200;

/** The tree of locations. */
export class SystemPane {
  constructor(model, state, source, theme) {
    Object.assign(this, { model, state, source, theme });
    this.values = null; // by location
    this.listeners = []; // told values, how they are shown, and what part of them is spread evenly
    this.turn = 0;
    this.rows = new Map();
    this.frame = new Frame(document.getElementById("pane-system"), "System", "system", state, []);
    this.tree = new Tree("System", this.treeSource(), tip);
    state.listen(["systemOpen", "ranks"], () => this.tree.update());
  }

  treeSource() {
    const { model, state } = this;
    return {
      roots: () => model.systemBelow.roots,
      below: (id) => model.systemBelow[id],
      name: (id) => model.system[id].name,
      isOpen: (id) => state.systemOpen.has(id),
      setOpen: (ids, open) => state.set({ systemOpen: toggled(state.systemOpen, ids, open) }),
      isSelected: (id) => model.system[id].rank >= 0 && state.ranks.has(model.system[id].rank),
      select: (id, event) => this.select(id, event),
      value: (id) => {
        if (!this.values) return { text: "", number: 0, colour: "" };
        const open = state.systemOpen.has(id) && model.systemBelow[id].length > 0;
        return open ? { text: "", number: 0, colour: "", spoken: "" } : this.howOf(id).row(this.value(id));
      },
      describe: (id) => [
        model.system[id].name,
        ...(this.values ? this.howOf(id).lines(this.value(id)) : []),
      ],
    };
  }

  select(id, event) {
    const { model, state } = this;
    const { rank } = model.system[id];
    if (rank < 0) state.set({ ranks: new Set() });
    else if (event.ctrlKey || event.metaKey || event.shiftKey) {
      const ranks = new Set(state.ranks);
      if (!ranks.delete(rank)) ranks.add(rank);
      state.set({ ranks });
    } else state.set({ ranks: new Set([rank]) });
  }

  value(item) {
    let sum = 0;
    for (const place of this.model.system[item].all) sum += this.values[place];
    return sum;
  }

  howOf(item) {
    return item === 0 ? this.wholeHow : this.how;
  }

  /** Gets the values by location of the selection. */
  async update() {
    const { model, state } = this;
    this.frame.mode.value = state.modes.system;
    this.turn += 1;
    const { turn } = this;
    const [metric, exclusive] = [state.metric, state.isExclusiveMetric()];
    const [node, own] = [state.node, state.isOwnNode()];
    if (model.isWhole(node) && !own) {
      this.show(model.viewed("places", state.view, metric, exclusive), 0);
      return;
    }
    let loaded;
    try {
      loaded = await this.row(metric, exclusive, node, own);
    } catch (error) {
      if (turn === this.turn) setText(this.frame.unit, String(error.message || error));
      return;
    }
    if (turn !== this.turn) return;
    const { rows, spread } = loaded;
    this.show(state.view === DIFFERENCE ? difference(rows[0], rows[1]) : rows[Number(state.view)], spread);
  }

  row(metric, exclusive, node, own) {
    const key = `${metric} ${exclusive} ${node} ${own}`;
    if (!this.rows.has(key)) {
      if (this.rows.size > MOST_ROWS_KEPT) this.rows.clear();
      const asked = this.source.row(metric, exclusive, node, own);
      asked.catch(() => this.rows.delete(key));
      this.rows.set(key, asked);
    }
    return this.rows.get(key);
  }

  show(values, spread) {
    const { model, state } = this;
    this.values = values;
    const common = {
      mode: state.modes.system,
      unit: model.metrics[state.metric].unit,
      reference: referenceOf(model, state, "system", state.metric),
      palette: this.theme.palette,
      signed: state.view === DIFFERENCE,
    };
    let most = 0;
    for (let item = 1; item < model.system.length; item += 1) {
      if (model.system[item].rank >= 0) most = Math.max(most, Math.abs(this.value(item)));
    }
    this.how = new Shown({ ...common, most });
    this.wholeHow = new Shown({ ...common, most: Math.max(most, Math.abs(this.value(0))) });
    this.tree.update();
    this.frame.scale.show(this.how);
    setText(this.frame.unit, this.how.label);
    for (const listener of this.listeners) listener(values, this.how, spread);
  }
}
