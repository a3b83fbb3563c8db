// The panel about a measurement: what was run and how, how efficient it was, what is to be known.

import { element } from "./dom.js";
import { percent, single } from "./format.js";

const EFFICIENCIES = [
  ["parallel_efficiency", "parallel efficiency"],
  ["load_balance", "load balance"],
  ["serialisation_efficiency", "serialisation"],
  ["transfer_efficiency", "transfer"],
];
const TIMES = new Set(["seconds", "span", "critical_path"]);
const NAMES = {
  seconds: "time of the command",
  span: "time of the run",
  critical_path: "time on the critical path",
  pop: "efficiencies (POP)",
};
const LEFT_OUT = new Set(["warnings", "begin"]);

/** Text of a value of the measurement's own file. */
function textOf(key, value) {
  if (key === "pop" && value) return efficiencies(value);
  if (key === "command" && Array.isArray(value)) return value.join(" ");
  if (TIMES.has(key) && typeof value === "number") return single(value, "s");
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (Array.isArray(value)) return value.map((one) => textOf("", one)).join(", ");
  if (value !== null && typeof value === "object") {
    const entries = Object.entries(value).filter(([, one]) => one !== null && one !== "" && one?.length !== 0);
    return entries.map(([name, one]) => `${name.replaceAll("_", " ")} ${textOf(name, one)}`).join(" · ");
  }
  return value === null ? "" : String(value);
}

/** The whole as the product of its parts. */
function efficiencies(pop) {
  const known = EFFICIENCIES.filter(([key]) => typeof pop[key] === "number");
  const [whole, ...parts] = known.map(([key, name]) => `${name} ${percent(pop[key])}`);
  return parts.length ? `${whole} = ${parts.join(" × ")}` : whole || "";
}

/** The panel, for one measurement or two. */
export function aboutPanel(model) {
  const panel = element("div", { class: "about" });
  const list = (title, notes) => {
    if (!notes.length) return;
    panel.append(element("h3", {}, title), element("ul", {}, ...notes.map((note) => element("li", {}, String(note)))));
  };
  model.sides.forEach((side, number) => {
    const rows = Object.entries(side.about)
      .filter(([key, value]) => !LEFT_OUT.has(key) && value !== false)
      .map(([key, value]) => [NAMES[key] || key.replaceAll("_", " "), textOf(key, value)])
      .filter(([, text]) => text !== "");
    panel.append(
      element("h3", {}, `${model.comparing ? (number ? "Second: " : "First: ") : ""}${side.folder}`),
      element("dl", {}, ...rows.flatMap(([name, text]) => [element("dt", {}, name), element("dd", {}, text)])),
    );
    list("Warnings", [...(side.about.warnings || []), ...side.left_out]);
  });
  list("Left out of this file", model.meta.left_out || []);
  return panel;
}
