// How the timeline shows a call path or a wait: its colour, its name, whether it stands out.

import { regionColours } from "./colours.js";
import { shown, styleColour } from "./dom.js";

const HATCH = 6; // CSS pixels from line to line

/** Looks of what a timeline draws; `waits` are those of the side that is shown. */
export class Looks {
  constructor(model, state, waits) {
    Object.assign(this, { model, state, waits });
    this.regions = regionColours(model.meta.regions);
    this.kinds = new Set(this.regions.map((look) => look.kind));
    this.paths = new Map();
    this.hatches = new Map();
  }

  of(node) {
    return this.regions[this.model.regions[node]];
  }

  /** Colour of a call path as a pixel of an image, dimmed where it is to be. */
  pixelOf(node) {
    const [r, g, b] = this.of(node).parts;
    const alpha = this.isDimmed(node) ? 56 : 255;
    return ((alpha << 24) | (b << 16) | (g << 8) | r) >>> 0;
  }

  nameOf(node) {
    return shown(this.model.nodeName(node));
  }

  pathOf(node) {
    if (!this.paths.has(node)) this.paths.set(node, this.model.pathOf(node));
    return this.paths.get(node);
  }

  isDimmed(node) {
    return this.state.drawn.dim && !this.pathOf(node).includes(this.state.node);
  }

  /** Whether waits of a metric stand out: of all time none does. */
  isChosenMetric(metric) {
    return this.state.metric !== 0 && this.waits.isSelected(metric);
  }

  /** Pattern of a wait, in the colour of the theme. */
  hatching(context, strong) {
    const colour = styleColour(strong ? "--alert" : "--hatch");
    const key = `${strong} ${colour}`;
    if (!this.hatches.has(key)) {
      const made = document.createElement("canvas");
      made.width = HATCH;
      made.height = HATCH;
      const drawn = made.getContext("2d");
      drawn.strokeStyle = colour;
      drawn.lineWidth = strong ? 1.8 : 1.3;
      drawn.beginPath();
      for (const shift of [-HATCH, 0, HATCH]) {
        drawn.moveTo(shift - 1, HATCH + 1);
        drawn.lineTo(shift + HATCH + 1, -1);
      }
      drawn.stroke();
      this.hatches.set(key, context.createPattern(made, "repeat"));
    }
    return this.hatches.get(key);
  }
}
