// A tree of thousands of rows that only makes the elements that can be seen, for eyes, keys and
// screen readers alike.

import { element, setText, shown, tips } from "./dom.js";

const ALL_UP_TO = 300; // rows; more are made as they come into sight
const BEYOND = 12; // rows made above and below what is seen
const INDENT = 13; // CSS pixels
const DEEP = 14; // levels, beyond which rows are moved in less

/**
 * A tree. `source` says what is in it:
 * roots(), below(id), name(id), isOpen(id), setOpen(ids, open), isSelected(id), select(id, event),
 * value(id) -> {text, number, colour, note}, describe(id) -> lines of a tip, mark(id) -> class.
 */
export class Tree {
  constructor(label, source) {
    this.source = source;
    this.rows = [];
    this.active = null;
    this.made = new Map();
    this.height = 20;
    // What is in sight, noted when it changes: to ask in between would lay out the page anew.
    this.top = 0;
    this.room = 0;
    this.space = element("div", { class: "rows", role: "none" });
    this.node = element("div", { class: "tree", role: "tree", "aria-label": label, tabindex: "0" }, this.space);
    this.prefix = `item-${label.toLowerCase().replace(/\W+/g, "-")}-`;
    this.node.addEventListener("scroll", () => this.look());
    this.node.addEventListener("keydown", (event) => this.key(event));
    this.node.addEventListener("click", (event) => this.click(event));
    this.node.addEventListener("dblclick", (event) => this.click(event, true));
    tips(this.node, (event) => {
      const id = this.idOf(event);
      return id === null ? null : this.source.describe(id);
    });
    new ResizeObserver(() => this.look()).observe(this.node);
  }

  /** Sees which rows are in sight, and draws them. */
  look() {
    this.top = this.node.scrollTop;
    this.room = this.node.clientHeight;
    this.draw();
  }

  /** Reads the source again. */
  update() {
    const rows = [];
    const walk = (ids, depth) => {
      ids.forEach((id, place) => {
        const below = this.source.below(id);
        const open = below.length > 0 && this.source.isOpen(id);
        rows.push({ id, depth, place, of: ids.length, has: below.length > 0, open });
        if (open) walk(below, depth + 1);
      });
    };
    walk(this.source.roots(), 0);
    this.rows = rows;
    this.placeOf = new Map(rows.map((row, place) => [row.id, place]));
    if (this.active === null || !this.placeOf.has(this.active)) {
      const selected = rows.find((row) => this.source.isSelected(row.id));
      this.active = selected ? selected.id : rows.length ? rows[0].id : null;
    }
    const height = `${rows.length * this.height}px`;
    if (this.space.style.height !== height) this.space.style.height = height;
    this.draw();
  }

  draw() {
    const count = this.rows.length;
    let first = 0;
    let last = count;
    if (count > ALL_UP_TO) {
      // Where rows went away, the page has not scrolled back yet.
      const top = Math.min(this.top, Math.max(0, count * this.height - this.room));
      first = Math.max(0, Math.floor(top / this.height) - BEYOND);
      last = Math.min(count, Math.ceil((top + this.room) / this.height) + BEYOND);
    }
    const wanted = new Set();
    for (let place = first; place < last; place += 1) wanted.add(this.rows[place].id);
    const active = this.placeOf?.get(this.active);
    if (active !== undefined) wanted.add(this.active);
    for (const [id, parts] of this.made) {
      if (!wanted.has(id)) {
        parts.row.remove();
        this.made.delete(id);
      }
    }
    let before = null;
    for (const id of [...wanted].sort((a, b) => this.placeOf.get(a) - this.placeOf.get(b))) {
      const parts = this.made.get(id) || this.make(id);
      this.show(parts, this.rows[this.placeOf.get(id)], this.placeOf.get(id));
      const next = before ? before.nextSibling : this.space.firstChild;
      if (parts.row !== next) this.space.insertBefore(parts.row, next);
      before = parts.row;
    }
    if (this.active !== null) this.node.setAttribute("aria-activedescendant", this.prefix + this.active);
  }

  make(id) {
    const parts = {
      box: element("span", { class: "box" }),
      value: element("span", { class: "value" }),
      twisty: element("span", { class: "twisty" }),
      name: element("span", { class: "name" }),
    };
    parts.row = element(
      "div",
      { class: "row", role: "treeitem", id: this.prefix + id },
      parts.box,
      parts.value,
      parts.twisty,
      parts.name,
    );
    parts.row.dataset.id = id;
    this.made.set(id, parts);
    return parts;
  }

  show(parts, row, place) {
    const { id, depth } = row;
    const value = this.source.value(id);
    const name = this.source.name(id);
    const selected = this.source.isSelected(id);
    const node = parts.row;
    const mark = this.source.mark(id);
    const active = id === this.active;
    // Most rows stay as they are when another one is chosen.
    const looks = JSON.stringify([row, place, value, name, selected, active, mark]);
    if (parts.looks === looks) return;
    parts.looks = looks;
    node.style.top = `${place * this.height}px`;
    node.className = `row${selected ? " selected" : ""}${active ? " active" : ""} ${mark}`;
    node.setAttribute("aria-level", depth + 1);
    node.setAttribute("aria-posinset", row.place + 1);
    node.setAttribute("aria-setsize", row.of);
    node.setAttribute("aria-selected", String(selected));
    if (row.has) node.setAttribute("aria-expanded", String(row.open));
    else node.removeAttribute("aria-expanded");
    node.setAttribute("aria-label", shown(`${name}, ${value.spoken ?? value.text}`));
    node.dataset.value = value.number;
    parts.box.style.background = value.colour || "";
    parts.box.classList.toggle("none", !value.colour);
    setText(parts.value, value.text);
    parts.value.classList.toggle("zero", !value.number);
    parts.twisty.style.marginLeft = `${INDENT * Math.min(depth, DEEP) + 3 * Math.max(0, depth - DEEP)}px`;
    setText(parts.twisty, row.has ? (row.open ? "▾" : "▸") : "");
    setText(parts.name, name);
  }

  idOf(event) {
    const row = event.target.closest?.(".row");
    return row ? Number(row.dataset.id) : null;
  }

  click(event, twice = false) {
    const id = this.idOf(event);
    if (id === null) return;
    this.active = id;
    if (twice || event.target.classList.contains("twisty")) {
      const row = this.rows[this.placeOf.get(id)];
      // The second of two clicks on a triangle has done its work already.
      if (twice && event.target.classList.contains("twisty")) return;
      if (row?.has) {
        this.source.setOpen([id], !row.open);
        return;
      }
    }
    this.source.select(id, event);
  }

  key(event) {
    if (event.altKey || event.ctrlKey || event.metaKey || !this.rows.length) return;
    const place = this.placeOf.get(this.active) ?? 0;
    const row = this.rows[place];
    const page = Math.max(1, Math.floor(this.node.clientHeight / this.height) - 1);
    const moves = {
      ArrowDown: place + 1,
      ArrowUp: place - 1,
      Home: 0,
      End: this.rows.length - 1,
      PageDown: place + page,
      PageUp: place - page,
    };
    if (event.key in moves) {
      this.go(Math.min(this.rows.length - 1, Math.max(0, moves[event.key])), event);
    } else if (event.key === "ArrowRight") {
      if (row.has && !row.open) this.source.setOpen([row.id], true);
      else if (row.open) this.go(place + 1, event);
    } else if (event.key === "ArrowLeft") {
      if (row.open) this.source.setOpen([row.id], false);
      else {
        let above = place;
        while (above > 0 && this.rows[above].depth >= row.depth) above -= 1;
        if (this.rows[above].depth < row.depth) this.go(above, event);
      }
    } else if (event.key === "Enter" || event.key === " ") {
      this.source.select(row.id, event);
    } else if (event.key === "*") {
      const alike = this.rows.filter((other) => other.depth === row.depth && other.has && !other.open);
      this.source.setOpen(alike.map((other) => other.id), true);
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }

  go(place, event) {
    this.active = this.rows[place].id;
    this.source.select(this.active, event);
    this.scrollTo(this.active);
  }

  /** Brings a row into sight. */
  scrollTo(id) {
    const place = this.placeOf?.get(id);
    if (place === undefined) return;
    this.active = id;
    const top = place * this.height;
    const { scrollTop, clientHeight } = this.node;
    if (top < scrollTop) this.node.scrollTop = top - this.height;
    else if (top + this.height > scrollTop + clientHeight) {
      this.node.scrollTop = top + 2 * this.height - clientHeight;
    }
    this.look();
  }
}
