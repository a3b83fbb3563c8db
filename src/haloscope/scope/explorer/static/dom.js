// Makes the elements of the page; names from a measurement become text, never markup.

// Control characters and those that turn the direction of writing: a name must not disguise itself.
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;

/** Text as it may be shown. */
export function shown(text) {
  return String(text).replace(HIDDEN, "\ufffd");
}

/** An element with attributes (`on` holds listeners) and children (text or elements). */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) made.addEventListener(event, listener);
    } else if (name === "class") {
      made.className = value;
    } else if (value === true) {
      made.setAttribute(name, "");
    } else if (value !== undefined && value !== null && value !== false) {
      made.setAttribute(name, shown(value));
    }
  }
  for (const child of children) {
    if (child === null || child === undefined) continue;
    made.append(child instanceof Node ? child : shown(child));
  }
  return made;
}

/** Replaces all children. */
export function fill(parent, ...children) {
  const there = children.filter((child) => child !== null && child !== undefined);
  parent.replaceChildren(...there.map((child) => (child instanceof Node ? child : shown(child))));
}

/** Sets text, only where it differs: what did not change is not announced again. */
export function setText(node, text) {
  const wanted = shown(text);
  if (node.textContent !== wanted) node.textContent = wanted;
}

/** A menu of choices: [[value, label], ...]. */
export function menu(label, choices, value, changed, title = "") {
  const select = element("select", { "aria-label": label, title: title || label });
  for (const [key, text] of choices) select.append(element("option", { value: key }, text));
  select.value = value;
  select.addEventListener("change", () => changed(select.value));
  return select;
}

/** A small button. */
export function button(text, label, pressed, attributes = {}) {
  return element("button", { type: "button", "aria-label": label, title: label, ...attributes, on: { click: pressed } }, text);
}

/** Tabs: [[key, label, panel], ...]; returns the list of tabs and a function that chooses one. */
export function tabs(label, entries, chosen) {
  const list = element("div", { role: "tablist", "aria-label": label, class: "tabs" });
  const made = new Map();
  for (const [key, text, panel] of entries) {
    const tab = element("button", { type: "button", role: "tab", id: `tab-${key}`, "aria-controls": `panel-${key}` }, text);
    tab.addEventListener("click", () => chosen(key));
    panel.id = `panel-${key}`;
    panel.setAttribute("role", "tabpanel");
    panel.setAttribute("aria-labelledby", tab.id);
    made.set(key, { tab, panel });
    list.append(tab);
  }
  list.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const keys = [...made.keys()];
    const now = keys.findIndex((key) => made.get(key).tab === document.activeElement);
    const next = keys[(now + step + keys.length) % keys.length];
    chosen(next);
    made.get(next).tab.focus();
    event.preventDefault();
    event.stopPropagation();
  });
  const choose = (wanted) => {
    for (const [key, { tab, panel }] of made) {
      tab.setAttribute("aria-selected", String(key === wanted));
      tab.tabIndex = key === wanted ? 0 : -1;
      panel.hidden = key !== wanted;
    }
  };
  return { list, choose };
}

/** Lets a splitter move: `moved(position in CSS pixels)`, with the arrow keys too. */
export function splitter(bar, label, upright, place, moved) {
  bar.setAttribute("role", "separator");
  bar.setAttribute("aria-label", label);
  bar.setAttribute("aria-orientation", upright ? "vertical" : "horizontal");
  bar.tabIndex = 0;
  bar.addEventListener("pointerdown", (event) => {
    bar.setPointerCapture(event.pointerId);
    const move = (e) => moved(upright ? e.clientX : e.clientY);
    bar.addEventListener("pointermove", move);
    bar.addEventListener("pointerup", () => bar.removeEventListener("pointermove", move), { once: true });
    event.preventDefault();
  });
  bar.addEventListener("keydown", (event) => {
    const steps = upright ? { ArrowLeft: -20, ArrowRight: 20 } : { ArrowUp: -20, ArrowDown: 20 };
    if (!(event.key in steps)) return;
    moved(place() + steps[event.key]);
    event.preventDefault();
    event.stopPropagation();
  });
}

/** Follows the size of a canvas in device pixels; `draw` is asked for at most once a frame. */
export class Canvas {
  constructor(attributes, draw) {
    this.node = element("canvas", attributes);
    this.context = this.node.getContext("2d");
    this.draw = draw;
    this.asked = false;
    this.width = 0;
    this.height = 0;
    this.ratio = 1;
    new ResizeObserver(() => this.resize()).observe(this.node);
  }

  resize() {
    const box = this.node.getBoundingClientRect();
    this.ratio = window.devicePixelRatio || 1;
    this.width = Math.round(box.width);
    this.height = Math.round(box.height);
    this.node.width = Math.max(1, Math.round(this.width * this.ratio));
    this.node.height = Math.max(1, Math.round(this.height * this.ratio));
    this.ask();
  }

  ask() {
    if (this.asked) return;
    this.asked = true;
    requestAnimationFrame(() => {
      this.asked = false;
      if (this.width < 2 || this.height < 2) return;
      this.context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
      this.context.clearRect(0, 0, this.width, this.height);
      this.draw(this.context, this.width, this.height);
    });
  }
}

/** Draws a line. */
export function line(context, x0, y0, x1, y1) {
  context.beginPath();
  context.moveTo(x0, y0);
  context.lineTo(x1, y1);
  context.stroke();
}

/** Draws within a rectangle only. */
export function clipped(context, x, y, width, height, draw) {
  context.save();
  context.beginPath();
  context.rect(x, y, width, height);
  context.clip();
  draw();
  context.restore();
}

/** Shows a tip beside the pointer: lines of text, the first one strong. */
export function tip(event, lines) {
  const node = document.getElementById("tip");
  if (!lines || !lines.length) {
    node.hidden = true;
    return;
  }
  fill(node, ...lines.map((text, number) => element("div", { class: number ? "" : "strong" }, text)));
  node.hidden = false;
  const box = node.getBoundingClientRect();
  const x = event.clientX + 14 + box.width > innerWidth ? event.clientX - box.width - 10 : event.clientX + 14;
  const y = event.clientY + 16 + box.height > innerHeight ? event.clientY - box.height - 10 : event.clientY + 16;
  node.style.left = `${Math.max(2, x)}px`;
  node.style.top = `${Math.max(2, y)}px`;
}

/** Shows the lines of a tip for what is under the pointer. */
export function tips(node, lines) {
  node.addEventListener("pointermove", (event) => tip(event, lines(event)));
  node.addEventListener("pointerleave", (event) => tip(event, null));
}

/** Tells something in passing. */
export function say(text) {
  const node = document.getElementById("status");
  setText(node, text);
  node.classList.add("on");
  clearTimeout(node.timer);
  node.timer = setTimeout(() => node.classList.remove("on"), 4000);
}

/** A colour of the style sheet. */
export function styleColour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}
