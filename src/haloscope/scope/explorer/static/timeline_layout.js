// How the timeline's canvas is divided, in CSS pixels.

export const LABELS = 104; // of the row names
export const RULER = 18; // of the times above the rows
export const SLIDER = 12; // of the bar that shows which part of the run is seen
export const SCROLLBAR = 9; // of the bar at the right that shows which rows are seen
export const STACK_BAR = 12; // of one level of the call stack

/** Text cut to a width, empty where hardly anything fits. */
export function fitting(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let [low, high] = [0, text.length];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (context.measureText(`${text.slice(0, middle)}…`).width <= width) low = middle;
    else high = middle - 1;
  }
  return low >= 3 ? `${text.slice(0, low)}…` : "";
}
