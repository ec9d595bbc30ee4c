// A file that was chosen, before it is sent: its size from its first bytes, and a small picture.

const SIDE = 256;
const MOST_PIXELS = 40e6;  // a browser has to unpack all of them

// A chosen file on a canvas; what the browser cannot draw (a TIFF) has no picture.
export async function drawFile(canvas, file, pixels) {
  canvas.hidden = true;
  if (!file || !pixels || pixels > MOST_PIXELS || /\.tiff?$/i.test(file.name)) return;
  try {
    const picture = await createImageBitmap(file);
    const scale = Math.min(1, SIDE / Math.max(picture.width, picture.height));
    canvas.width = Math.max(1, Math.round(scale * picture.width));
    canvas.height = Math.max(1, Math.round(scale * picture.height));
    canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
    picture.close();
    canvas.hidden = false;
  } catch { /* the server will say what is wrong with it */ }
}

// Width and height; an empty object where only the server can tell; null for no image.
export async function sniff(file) {
  const head = new DataView(await file.slice(0, 65536).arrayBuffer());
  if (head.byteLength < 8) return null;
  const start = head.getUint32(0);
  if (start === 0x89504e47 && head.byteLength >= 24) return { width: head.getUint32(16), height: head.getUint32(20) };
  if (start >>> 8 === 0xffd8ff) return jpeg(head) ?? {};
  const order = head.getUint16(0);
  const little = order === 0x4949;
  if (!little && order !== 0x4d4d) return null;
  const version = head.getUint16(2, little);
  if (version === 43) return {};  // BigTIFF: the server looks
  return version === 42 ? tiff(file, head.getUint32(4, little), little) : null;
}

function jpeg(head) {
  let at = 2;
  while (at + 9 < head.byteLength) {
    const marker = head.getUint16(at);
    const frame = marker >= 0xffc0 && marker <= 0xffcf && ![0xffc4, 0xffc8, 0xffcc].includes(marker);
    if (frame) return { height: head.getUint16(at + 5), width: head.getUint16(at + 7) };
    at += 2 + head.getUint16(at + 2);
  }
  return null;
}

async function tiff(file, offset, little) {
  const entries = new DataView(await file.slice(offset, offset + 2 + 12 * 64).arrayBuffer());
  if (entries.byteLength < 2) return null;
  const found = {};
  const count = Math.min(entries.getUint16(0, little), Math.floor((entries.byteLength - 2) / 12));
  for (let i = 0; i < count; i += 1) {
    const at = 2 + 12 * i;
    const tag = entries.getUint16(at, little);
    const short = entries.getUint16(at + 2, little) === 3;
    const value = short ? entries.getUint16(at + 8, little) : entries.getUint32(at + 8, little);
    if (tag === 256) found.width = value;
    if (tag === 257) found.height = value;
  }
  return found;
}
