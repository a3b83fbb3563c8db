// Histogram and box plot of the values of the selection over the ranks.

import { Canvas, styleColour } from "./dom.js";
import { listed, marks } from "./format.js";

const MOST_BARS = 48;
const ALIKE = 1e-9; // of the greatest
const ALIKE_BARS = 9; // of which the one in the middle holds values that are all alike
const WHISKER = 1.5; // of the range between the quartiles

/** How many ranks have how much. */
export class Histogram {
  constructor(state) {
    this.state = state;
    this.canvas = new Canvas({ class: "picture", role: "img", tabindex: "0" }, (...a) => this.draw(...a));
  }

  /** Takes values of `ranks`, their `summary`, and `how` they are shown. */
  show(ranks, values, summary, how) {
    Object.assign(this, { ranks, values, summary, how });
    this.canvas.ask();
  }

  bars() {
    const { summary, values } = this;
    const low = values[summary.least];
    const high = values[summary.most];
    // Values that differ by rounding alone are one bar, in the middle.
    const alike = high - low <= ALIKE * Math.max(Math.abs(low), Math.abs(high));
    if (alike) {
      const width = Math.abs(low) / ALIKE_BARS || 1 / (this.how.factor || 1);
      const bars = Array.from({ length: ALIKE_BARS }, (_, n) => (n === (ALIKE_BARS - 1) / 2 ? [...this.ranks] : []));
      return { low: low - (ALIKE_BARS / 2) * width, high: low + (ALIKE_BARS / 2) * width, width, bars, only: low };
    }
    const count = Math.max(1, Math.min(MOST_BARS, Math.ceil(2 * Math.sqrt(values.length))));
    const width = (high - low) / count;
    const bars = Array.from({ length: count }, () => []);
    values.forEach((value, place) => {
      bars[Math.min(count - 1, Math.floor((value - low) / width))].push(this.ranks[place]);
    });
    return { low, high, width, bars };
  }

  draw(context, width, height) {
    if (!this.summary) return;
    const { low, high, width: step, bars, only } = this.bars();
    const [left, right, top] = [38, 14, 20];
    const box = Math.min(64, height * 0.28);
    const bottom = height - box - 22;
    const tallest = Math.max(...bars.map((ranks) => ranks.length));
    const span = high - low || step;
    const x = (value) => left + ((value - low) / span) * (width - left - right);
    this.place = { x, left, right, top, bottom, step, low, span, bars };
    const [ink, faint, accent] = ["--text", "--muted", "--accent"].map(styleColour);
    context.font = styleColour("--small-font");
    bars.forEach((ranks, number) => {
      const from = x(low + number * step);
      const to = x(Math.min(low + (number + 1) * step, low + span));
      const tall = (ranks.length / tallest) * (bottom - top);
      context.fillStyle = this.how.row(low + (number + 0.5) * step).colour || faint;
      context.fillRect(from + 0.5, bottom - tall, Math.max(1, to - from - 1), tall);
      if (ranks.some((rank) => this.state.ranks.has(rank))) {
        context.strokeStyle = accent;
        context.lineWidth = 2;
        context.strokeRect(from + 1, bottom - tall, Math.max(1, to - from - 2), tall);
      }
    });
    context.fillStyle = faint;
    context.strokeStyle = styleColour("--line");
    context.lineWidth = 1;
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (const mark of marks(0, tallest, 4)) {
      if (!Number.isInteger(mark)) continue;
      const y = bottom - (mark / tallest) * (bottom - top);
      context.fillText(String(mark), left - 5, y);
      line(context, left - 3, y, left, y);
    }
    line(context, left, bottom + 0.5, width - right, bottom + 0.5);
    context.textBaseline = "top";
    const factor = this.how.factor || 1;
    const ticks = only === undefined ? marks(low * factor, (low + span) * factor, Math.max(2, width / 110)) : [only * factor];
    for (const mark of ticks) {
      const at = x(mark / factor);
      line(context, at, bottom, at, bottom + 4);
      context.textAlign = at < left + 30 ? "left" : at > width - 40 ? "right" : "center";
      context.fillText(this.how.how.text(mark), at, bottom + 6);
    }
    context.textAlign = "left";
    context.fillText("ranks", 6, 3);
    this.drawBox(context, x, bottom + 26, box - 14, ink, faint);
    this.canvas.node.setAttribute(
      "aria-label",
      `Histogram over ${this.values.length} ranks, from ${this.how.spoken(this.values[this.summary.least])} to ${this.how.spoken(this.values[this.summary.most])}, with box plot`,
    );
  }

  drawBox(context, x, top, tall, ink, faint) {
    const { summary } = this;
    const [first, middle, third] = summary.quartiles;
    const reach = WHISKER * (third - first);
    const inside = summary.sorted.filter((v) => v >= first - reach && v <= third + reach);
    const [low, high] = [inside[0], inside[inside.length - 1]];
    const y = top + tall / 2;
    context.strokeStyle = ink;
    context.fillStyle = styleColour("--select");
    context.lineWidth = 1;
    line(context, x(low), y, x(high), y);
    line(context, x(low), y - tall / 4, x(low), y + tall / 4);
    line(context, x(high), y - tall / 4, x(high), y + tall / 4);
    const wide = Math.max(1, x(third) - x(first));
    context.fillRect(x(first), top, wide, tall);
    context.strokeRect(x(first), top, wide, tall);
    context.lineWidth = 2;
    line(context, x(middle), top, x(middle), top + tall);
    context.lineWidth = 1;
    const mean = x(summary.mean);
    context.fillStyle = ink;
    context.beginPath();
    context.moveTo(mean, y - 5);
    context.lineTo(mean + 5, y);
    context.lineTo(mean, y + 5);
    context.lineTo(mean - 5, y);
    context.fill();
    context.strokeStyle = faint;
    for (const value of summary.sorted) {
      if (value >= low && value <= high) continue;
      context.beginPath();
      context.arc(x(value), y, 2.5, 0, 7);
      context.stroke();
    }
  }

  barAt(px, py) {
    const { place } = this;
    if (!place || py > place.bottom + 2) return null;
    const value = place.low + ((px - place.left) / (this.canvas.width - place.left - place.right)) * place.span;
    const number = Math.min(place.bars.length - 1, Math.floor((value - place.low) / place.step));
    const ranks = place.bars[number];
    if (!ranks) return null;
    return {
      ranks,
      lines: [
        `${ranks.length} rank${ranks.length === 1 ? "" : "s"}`,
        `${this.how.spoken(place.low + number * place.step)} to ${this.how.spoken(place.low + (number + 1) * place.step)}`,
        ranks.length ? `ranks ${listed(ranks)}` : "",
      ].filter(Boolean),
    };
  }
}

function line(context, x0, y0, x1, y1) {
  context.beginPath();
  context.moveTo(x0, y0);
  context.lineTo(x1, y1);
  context.stroke();
}
