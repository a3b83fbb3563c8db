// Reads packs: a few words of JSON and arrays as they lie in memory (see pack.py).

const ARRAYS = {
  f8: Float64Array,
  f4: Float32Array,
  i4: Int32Array,
  u4: Uint32Array,
  u2: Uint16Array,
  u1: Uint8Array,
};

/** {meta, arrays} of a pack's bytes. */
export function unpack(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  const { meta, arrays: table } = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
  const arrays = {};
  for (const [name, [type, offset, count]] of Object.entries(table)) {
    arrays[name] = new ARRAYS[type](buffer, 8 + length + offset, count);
  }
  return { meta, arrays };
}

/** Bytes of a pack that lies in the page, compressed and in base64. */
export async function embedded(name) {
  const node = document.querySelector(`script[data-pack="${name}"]`);
  if (!node) return null;
  const text = atob(node.textContent);
  node.remove();
  const bytes = new Uint8Array(text.length);
  for (let place = 0; place < text.length; place += 1) bytes[place] = text.charCodeAt(place);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
}

/** Whether the page brings its data along. */
export function isAlone() {
  return document.querySelector("script[data-pack]") !== null;
}
