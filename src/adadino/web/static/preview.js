// Small pictures in the form, so that a wrong file is seen before it is sent.

const SIDE = 256;
const MOST = 40e6;  // pixels: a browser has to unpack all of them

// A chosen file on a canvas; what the browser cannot draw (a TIFF) has no picture.
export async function drawFile(canvas, file, pixels) {
  canvas.hidden = true;
  if (!file || !pixels || pixels > MOST || /\.tiff?$/i.test(file.name)) return;
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
