// Writes numbers for people: one unit a column, so that a column can be compared at a glance.

const THIN = "\u202f";
const STEPS = {
  s: [
    [1e-9, "ns"],
    [1e-6, "us"],
    [1e-3, "ms"],
    [1, "s"],
  ],
  B: [
    [1, "B"],
    [1e3, "kB"],
    [1e6, "MB"],
    [1e9, "GB"],
    [1e12, "TB"],
  ],
  "#": [
    [1, ""],
    [1e6, "M"],
    [1e9, "G"],
    [1e12, "T"],
  ],
  "%": [[1, "%"]],
};
const FROM = { s: 1, B: 10, "#": 1e3, "%": 0 }; // a step is taken from this many of it

/** A number with separated thousands. */
export function fixed(value, digits) {
  const text = Math.abs(value).toFixed(digits);
  const [whole, part] = text.split(".");
  const grouped = whole.replace(/\B(?=(\d{3})+$)/g, THIN);
  const zero = !/[1-9]/.test(text);
  return (value < 0 && !zero ? "\u2212" : "") + grouped + (part ? `.${part}` : "");
}

/** How a column of a unit is written whose greatest magnitude is known. */
export function column(unit, most) {
  const steps = STEPS[unit] || [[1, unit]];
  let [factor, label] = steps[0];
  for (const [size, name] of steps) {
    if ((most || 1) >= size * (FROM[unit] ?? 1)) [factor, label] = [size, name];
  }
  const top = most / factor;
  let digits = top > 0 ? Math.min(3, Math.max(0, 3 - Math.floor(Math.log10(top)))) : 0;
  if (unit === "#" && factor === 1) digits = 0;
  if (unit === "%") digits = 2;
  return { factor, label, digits, text: (value) => fixed(value / factor, digits) };
}

/** One number with its unit, three or four digits. */
export function single(value, unit) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const how = column(unit, value === 0 ? 1 : Math.abs(value));
  if (value === 0) return how.label ? `0${THIN}${how.label}` : "0";
  const digits = unit === "#" ? (how.factor === 1 && Number.isInteger(value) ? 0 : 2) : how.digits;
  return `${fixed(value / how.factor, digits)}${how.label ? THIN + how.label : ""}`;
}

/** A share as percent. */
export function percent(share, digits = 1) {
  return Number.isFinite(share) ? `${fixed(100 * share, digits)}${THIN}%` : "–";
}

/** Runs of numbers that follow each other, the first and the last of each. */
export function runs(numbers) {
  const stretches = [];
  for (const number of [...numbers].sort((a, b) => a - b)) {
    if (stretches.length && number === stretches.at(-1)[1] + 1) stretches.at(-1)[1] = number;
    else stretches.push([number, number]);
  }
  return stretches;
}

/** Numbers in words: 0-3, 7, 9 ... */
export function listed(numbers, most = 8) {
  const all = runs(numbers);
  const text = all.slice(0, most).map(([a, b]) => (a === b ? `${a}` : b === a + 1 ? `${a}, ${b}` : `${a}–${b}`));
  return text.join(", ") + (all.length > most ? ", …" : "");
}

/** Round positions for about `count` marks between two numbers. */
export function marks(low, high, count) {
  const rough = (high - low) / Math.max(1, count);
  if (!(rough > 0)) return [];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough) || rough;
  const positions = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + step * 1e-9; n += 1) positions.push(n * step);
  return positions;
}
