// The colours of values and of kinds of work; scales are perceptually uniform and safe for the
// colour-blind: viridis and cividis, and for differences blue to orange of even lightness.

// Every 8th of the 256 colours of each scale.
const SCALES = {
  viridis:
    "440154470d6048186a482374472d7b4537814240863e49893b528b375b8d33638d2f6b8e2c728e297a8e26828e" +
    "23898e21918c1f988b1fa08822a78528ae8032b67a3fbc734ec36b5ec96270cf5784d44b98d83eaddc30c2df23" +
    "d8e219ece51bfde725",
  cividis:
    "00224e00285b002e6a0533711a386f273e6e32436d3b496c434e6c4b546c535a6d5a5f6e61656f686a716f7073" +
    "7676767d7c788482798c8878938e789b9476a39a74aba072b4a76fbcae6cc4b468cdbb63d5c25edec958e7d150" +
    "f0d846f9e03afee838",
};

// What a location does, by the kind of its region.
export const KINDS = [
  ["compute", "computing", "#56b4e9"],
  ["p2p", "point-to-point", "#e69f00"],
  ["collective", "collective", "#d55e00"],
  ["sync", "barrier, fence", "#b46a9b"],
  ["mpi", "MPI, other", "#8c8c8c"],
  ["io", "file I/O", "#c9b800"],
  ["kernel", "GPU kernel", "#009e73"],
  ["copy", "GPU copy", "#0072b2"],
  ["host", "GPU call", "#6fc3a8"],
  ["omp", "threads", "#86a7c9"],
  ["overhead", "measurement", "#4d4d4d"],
];
const COLOUR_OF = new Map(KINDS.map(([kind, , colour]) => [kind, colour]));
const P2P = new Set(["send", "isend", "recv", "irecv", "sendrecv", "wait", "test", "probe", "start"]);
const SYNC = new Set(["barrier", "rma_sync"]);
const OTHER = new Set(["init", "finalize", "comm", "request", "other"]);

/** Kind of work of a region. */
function kindOf(paradigm, role) {
  if (paradigm === "mpi") {
    if (P2P.has(role)) return "p2p";
    if (SYNC.has(role)) return "sync";
    if (role === "io") return "io";
    return OTHER.has(role) ? "mpi" : "collective";
  }
  if (paradigm === "cuda" || paradigm === "nccl") {
    if (role === "kernel") return "kernel";
    if (role === "copy") return "copy";
    return paradigm === "nccl" ? "collective" : "host";
  }
  if (paradigm === "openmp") return role === "work" ? "compute" : "omp";
  return paradigm === "measurement" ? "overhead" : "compute";
}

function channels(hex) {
  return [1, 3, 5].map((place) => parseInt(hex.slice(place, place + 2), 16));
}

/** Colours of call paths in the timeline: by kind, and regions of a kind a little apart. */
export function regionColours(regions) {
  return regions.map(([name, paradigm, role]) => {
    const kind = kindOf(paradigm, role);
    let hash = 7;
    for (let place = 0; place < name.length; place += 1) hash = (hash * 31 + name.charCodeAt(place)) | 0;
    const shade = paradigm === "program" ? 0.35 : [0, 0.13, -0.14, 0.24, -0.07][Math.abs(hash) % 5];
    const parts = channels(COLOUR_OF.get(kind)).map((c) =>
      Math.round(shade >= 0 ? c + (255 - c) * shade : c * (1 + shade)),
    );
    return { kind, css: `rgb(${parts.join(",")})`, parts };
  });
}

/** How light a colour is to the eye, 0 to 1 (relative luminance of WCAG 2). */
function luminance(parts) {
  const [r, g, b] = parts.map((c) => (c <= 10.3 ? c / 3294.6 : ((c / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

/** Black or white, whichever is read better on a colour given as rgb(). */
export function contrast(colour) {
  return luminance(colour.match(/\d+/g).map(Number)) > 0.2 ? "#111" : "#fff";
}

function fromOklch(lightness, chroma, hue) {
  const a = chroma * Math.cos((hue * Math.PI) / 180);
  const b = chroma * Math.sin((hue * Math.PI) / 180);
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  return [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ].map((c) => {
    const bound = Math.min(1, Math.max(0, c));
    return Math.round(255 * (bound <= 0.0031308 ? 12.92 * bound : 1.055 * bound ** (1 / 2.4) - 0.055));
  });
}

/** Tables of 257 colours for a theme: `values` from none to most, `differences` from less to more. */
export class Palette {
  constructor(dark, name = "viridis") {
    const text = SCALES[name] || SCALES.viridis;
    const anchors = [];
    for (let place = 0; place < text.length; place += 6) anchors.push(channels(`#${text.slice(place, place + 6)}`));
    this.values = [];
    this.differences = [];
    const centre = dark ? 0.3 : 0.97;
    const ends = dark ? 0.8 : 0.5;
    for (let number = 0; number <= 256; number += 1) {
      // Much is far from the page's own colour: dark on light, light on dark.
      const place = ((dark ? number : 256 - number) / 256) * (anchors.length - 1);
      const below = Math.min(anchors.length - 2, Math.floor(place));
      this.values.push(
        anchors[below].map((c, n) => Math.round(c + (anchors[below + 1][n] - c) * (place - below))),
      );
      const away = Math.abs(number - 128) / 128;
      this.differences.push(
        fromOklch(centre + (ends - centre) * away, 0.14 * away, number < 128 ? 250 : 55),
      );
    }
  }

  /** Channels for a share of the greatest value. */
  value(share) {
    return this.values[Math.round(256 * Math.min(1, Math.max(0, share || 0)))];
  }

  /** Channels for a difference as a share of the greatest magnitude, -1 to 1. */
  difference(share) {
    return this.differences[Math.round(128 + 128 * Math.min(1, Math.max(-1, share || 0)))];
  }

  css(share, signed) {
    return `rgb(${(signed ? this.difference(share) : this.value(share)).join(",")})`;
  }

  /** A CSS gradient over the whole scale. */
  gradient(signed) {
    const table = signed ? this.differences : this.values;
    const stops = [];
    for (let number = 0; number <= 256; number += 16) stops.push(`rgb(${table[number].join(",")})`);
    return `linear-gradient(to right, ${stops.join(",")})`;
  }
}
