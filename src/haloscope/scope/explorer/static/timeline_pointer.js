// Actions of the pointer, the wheel and the keys on the timeline, and the tip under the pointer.

import { tip } from "./dom.js";
import { single } from "./format.js";
import { LABELS, RULER, SCROLLBAR, SLIDER } from "./timeline_looks.js";

const NEAR = 5; // CSS pixels from a message
const CLICK = 4; // CSS pixels that a pointer may move in a click

/** Listens on the canvas of a timeline. */
export class Pointer {
  constructor(timeline) {
    this.timeline = timeline;
    this.canvas = timeline.canvas;
    this.drag = null;
    const { node } = this.canvas;
    node.addEventListener("pointerdown", (event) => this.press(event));
    node.addEventListener("pointermove", (event) => this.move(event));
    node.addEventListener("pointerup", (event) => this.release(event));
    node.addEventListener("pointerleave", (event) => tip(event, null));
    node.addEventListener("dblclick", (event) => this.part(event) === "bars" && timeline.showAll());
    node.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    node.addEventListener("keydown", (event) => this.key(event));
  }

  /** Where on the canvas something happens. */
  part(event) {
    if (event.offsetY > this.canvas.height - SLIDER) return "slider";
    const { rows } = this.timeline;
    if (rows.overflows && event.offsetX > this.canvas.width - SCROLLBAR) return "scrollbar";
    return event.offsetX < LABELS ? "names" : "bars";
  }

  press(event) {
    const { timeline } = this;
    if (!timeline.meta || event.button > 1) return;
    this.canvas.node.setPointerCapture(event.pointerId);
    this.drag = {
      x: event.offsetX,
      y: event.offsetY,
      to: event.offsetX,
      window: timeline.window,
      top: timeline.rows.top,
      part: this.part(event),
      moving: event.shiftKey || event.button === 1,
    };
    this.follow(event);
  }

  /** The slider and the scrollbar come to the pointer. */
  follow(event) {
    const { timeline, drag } = this;
    if (drag.part === "slider") {
      const [begin, end] = timeline.window;
      const middle = ((event.offsetX - LABELS) / (this.canvas.width - LABELS)) * timeline.meta.span;
      timeline.setWindow(middle - (end - begin) / 2, middle + (end - begin) / 2);
    } else if (drag.part === "scrollbar") {
      const { rows } = timeline;
      timeline.scroll(((event.offsetY - RULER) / rows.room) * rows.total - rows.room / 2 - rows.top);
    }
  }

  move(event) {
    const { timeline, drag } = this;
    if (!timeline.meta) return;
    if (!drag) {
      tip(event, this.describe(event.offsetX, event.offsetY));
      return;
    }
    tip(event, null);
    if (drag.part === "slider" || drag.part === "scrollbar") this.follow(event);
    else if (drag.moving) {
      const [begin, end] = drag.window;
      const moved = ((drag.x - event.offsetX) / (this.canvas.width - LABELS)) * (end - begin);
      timeline.setWindow(begin + moved, end + moved);
      timeline.rows.top = drag.top;
      timeline.scroll(drag.y - event.offsetY);
    } else {
      drag.to = event.offsetX;
      drag.zoom = Math.abs(drag.to - drag.x) > CLICK;
      this.canvas.ask();
    }
  }

  release(event) {
    const { timeline, drag } = this;
    this.drag = null;
    if (!drag || !timeline.meta || drag.moving || drag.part === "slider" || drag.part === "scrollbar") return;
    if (drag.zoom) {
      const from = timeline.timeAt(Math.max(LABELS, Math.min(drag.x, drag.to)));
      timeline.setWindow(from, timeline.timeAt(Math.max(drag.x, drag.to)));
      return;
    }
    const row = timeline.rows.at(event.offsetY);
    if (row === null) return;
    if (drag.part === "names") {
      timeline.state.set({ ranks: new Set([timeline.rows.rankOf(row)]) });
      return;
    }
    const segment = timeline.store.at(row, timeline.timeAt(event.offsetX));
    if (segment && segment.node >= 0) {
      timeline.state.chooseNode(segment.node);
      timeline.panes.reveal();
    }
  }

  wheel(event) {
    const { timeline } = this;
    if (!timeline.meta) return;
    event.preventDefault();
    if (event.altKey) timeline.resizeRows(event.deltaY > 0 ? 1 / 1.2 : 1.2);
    else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      timeline.pan((event.deltaX || event.deltaY) / 1000);
    } else if (event.ctrlKey || event.metaKey || event.offsetY < RULER || !timeline.rows.overflows) {
      timeline.zoom(1.0015 ** event.deltaY, timeline.timeAt(Math.max(LABELS, event.offsetX)));
    } else timeline.scroll(event.deltaY);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { timeline } = this;
    const keys = {
      ArrowLeft: () => timeline.pan(-0.2),
      ArrowRight: () => timeline.pan(0.2),
      a: () => timeline.pan(-0.2),
      d: () => timeline.pan(0.2),
      "+": () => timeline.zoom(0.6),
      "=": () => timeline.zoom(0.6),
      w: () => timeline.zoom(0.6),
      "-": () => timeline.zoom(1 / 0.6),
      s: () => timeline.zoom(1 / 0.6),
      ArrowUp: () => timeline.scroll(-40),
      ArrowDown: () => timeline.scroll(40),
      PageUp: () => timeline.scroll(-0.9 * timeline.rows.room),
      PageDown: () => timeline.scroll(0.9 * timeline.rows.room),
      Home: () => timeline.showAll(),
      n: () => timeline.instances.step(1),
      p: () => timeline.instances.step(-1),
    };
    if (!(event.key in keys)) return;
    keys[event.key]();
    event.preventDefault();
    event.stopPropagation();
  }

  // -- tips ---------------------------------------------------------------------------------------

  /** Lines of the tip under the pointer: a message, or a segment with its wait. */
  describe(x, y) {
    const { timeline } = this;
    const { rows, store, looks, waits } = timeline;
    const row = rows.at(y);
    if (row === null || !store) return null;
    if (x < LABELS) return [rows.name(row)];
    const line = timeline.state.drawn.messages && timeline.drawn ? this.lineAt(x, y) : null;
    if (line !== null) return this.describeLine(line);
    const time = timeline.timeAt(x);
    const segment = store.at(row, time);
    if (!segment || segment.node < 0) return [rows.name(row), `at ${time.toFixed(6)} s`];
    const callers = looks.pathOf(segment.node).map((n) => looks.nameOf(n)).slice(0, -1);
    const lines = [looks.nameOf(segment.node), `${rows.name(row)} · ${callers.join(" › ")}`];
    const long = segment.end === null ? "" : single(segment.end - segment.begin, "s");
    if (segment.exact) lines.push(`from ${segment.begin.toFixed(9)} s${long ? `, for ${long}` : ""}`);
    else lines.push(`${Math.round(100 * segment.share)} % of ${long} here: zoom in for details`);
    const wait = waits.at(timeline.meta.rows[row][2], time);
    if (wait !== null) lines.push(waits.words(wait));
    return lines;
  }

  /** The message that was drawn nearest to a point, or null. */
  lineAt(x, y) {
    let best = null;
    let nearest = NEAR;
    for (const [x0, y0, x1, y1, n] of this.timeline.drawn.places) {
      const [dx, dy] = [x1 - x0, y1 - y0];
      const long = dx * dx + dy * dy || 1;
      const along = Math.min(1, Math.max(0, ((x - x0) * dx + (y - y0) * dy) / long));
      const away = Math.hypot(x - x0 - along * dx, y - y0 - along * dy);
      if (away < nearest) [nearest, best] = [away, n];
    }
    return best;
  }

  describeLine(n) {
    const { rows, drawn } = this.timeline;
    const { lines } = drawn;
    return [
      `message ${rows.name(lines.from[n])} → ${rows.name(lines.to[n])}`,
      `${single(lines.bytes[n], "B")}, tag ${lines.tag[n]}`,
      `sent at ${lines.sent[n].toFixed(9)} s, received at ${lines.received[n].toFixed(9)} s`,
      `under way for ${single(lines.received[n] - lines.sent[n], "s")}`,
    ];
  }
}
