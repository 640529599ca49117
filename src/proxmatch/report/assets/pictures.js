const PICTURES = DATA.pictures;
const loaded = new Map();

/** The picture file at a place, decoded once. */
function picture(place) {
  if (!loaded.has(place)) {
    const image = new Image();
    image.src = PICTURES.files[place];
    loaded.set(place, image.decode().then(() => image));
  }
  return loaded.get(place);
}

/** Pixels of one frame of a strip; row 0 is z_k, row 1 is x_k. */
async function pixels(place, column = 0, row = 0) {
  const image = await picture(place);
  const size = PICTURES.size;
  const canvas = node("canvas", { width: size, height: size });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.drawImage(image, column * size, row * size, size, size, 0, 0, size, size);
  return context.getImageData(0, 0, size, size);
}

function show(canvas, data, label) {
  canvas.width = data.width;
  canvas.height = data.height;
  canvas.getContext("2d").putImageData(data, 0, 0);
  if (label) canvas.setAttribute("aria-label", label);
}

/** In dB, of 8-bit pictures. */
function psnr(data, truth) {
  let sum = 0;
  for (let i = 0; i < data.data.length; i += 4)
    for (let c = 0; c < 3; c++) sum += (data.data[i + c] - truth.data[i + c]) ** 2;
  const mse = sum / (0.75 * data.data.length);
  return mse === 0 ? Infinity : 10 * Math.log10(255 ** 2 / mse);
}

const CIVIDIS = ["00224e", "123570", "3b496c", "575d6d", "707173", "8a8678", "a59c74", "c3b369", "e1cc55", "fee838"]
  .map((hex) => [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16)));

/** Mean absolute difference of the channels, 0 to 0.25 of full scale. */
function errorMap(data, truth) {
  const map = new ImageData(data.width, data.height);
  for (let i = 0; i < data.data.length; i += 4) {
    let sum = 0;
    for (let c = 0; c < 3; c++) sum += Math.abs(data.data[i + c] - truth.data[i + c]);
    const level = Math.min(1, sum / 3 / 255 / 0.25) * (CIVIDIS.length - 1);
    const low = Math.min(CIVIDIS.length - 2, Math.floor(level));
    for (let c = 0; c < 3; c++)
      map.data[i + c] = CIVIDIS[low][c] + (level - low) * (CIVIDIS[low + 1][c] - CIVIDIS[low][c]);
    map.data[i + 3] = 255;
  }
  return map;
}

const decibels = (value) => (value === Infinity ? "exact" : `${write(value, 1)} dB`);
const imageOptions = (items) => distinct(items.map((item) => item.image)).map((value) => ({ value, label: value }));
