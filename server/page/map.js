// SPDX-License-Identifier: MIT
// The picture of layers by experts: a row a layer, a column an expert. An expert that memory holds
// is the warmer the more it was asked for of late.
const ABSENT = 0, QUEUED = 1, READING = 2, HELD = 3, BELOW = 4;
const COOLING = 0.8; // of the heat stays from one look to the next

const map = {data: null, uses: null, heat: null, columns: 0, rows: 0, perRow: 0, lines: 1};

function showExperts(data) {
  const n = data.n_layers * data.n_experts;
  const uses = new Float64Array(n);
  data.uses.forEach((layer, l) => layer.forEach((value, e) => { uses[l * data.n_experts + e] = value; }));
  if (!map.heat || map.heat.length !== n) { map.heat = new Float64Array(n); map.uses = null; }
  for (let i = 0; i < n; i++) {
    const more = map.uses ? Math.max(0, uses[i] - map.uses[i]) : 0;
    map.heat[i] = map.heat[i] * COOLING + more;
  }
  map.data = data;
  map.uses = uses;
  drawMap();
  describeMap();
  if ($('map-table').open) showMapTable();
}

/* ---- colours ---- */

function rgbOf(name) {
  const hex = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  return [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
}

function mapColours() {
  const stops = ['--cold', '--warm', '--hot'].map(rgbOf);
  const ramp = Array.from({length: 17}, (_, i) => {
    const [from, to] = i < 8 ? [stops[0], stops[1]] : [stops[1], stops[2]];
    return `rgb(${from.map((c, j) => Math.round(c + (to[j] - c) * (i === 16 ? 8 : i % 8) / 8)).join(' ')})`;
  });
  const plain = (name) => `rgb(${rgbOf(name).join(' ')})`;
  return {ramp, reading: plain('--reading'), absent: plain('--absent'), below: plain('--below')};
}

/* ---- drawing ---- */

// Rows of many experts are folded where their cells would be too small to see.
function layMap(width) {
  const {n_layers: layers, n_experts: experts} = map.data;
  let lines = 1;
  while (width / Math.ceil(experts / lines) < 5 && lines < 8 && layers * lines < 160) lines++;
  map.perRow = Math.ceil(experts / lines);
  map.lines = lines;
  map.rows = layers * lines;
  const cell = Math.min(22, width / map.perRow);
  return {cell, height: Math.max(2.2, Math.min(cell, Math.max(3, 620 / map.rows)))};
}

function drawMap() {
  const canvas = $('map');
  const width = canvas.clientWidth;
  if (!map.data || !width) return;
  const {cell, height} = layMap(width);
  const ratio = window.devicePixelRatio || 1;
  const layerGap = map.lines > 1 ? 2 : 0;
  const total = map.rows * height + (map.data.n_layers - 1) * layerGap;
  canvas.style.height = total + 'px';
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(total * ratio);
  Object.assign(map, {cell, height, layerGap});
  const pen = canvas.getContext('2d');
  pen.scale(ratio, ratio);
  const colours = mapColours();
  const most = map.heat.reduce((a, b) => Math.max(a, b), 1);
  const gap = cell > 6 && height > 6 ? 1 : cell > 3 && height > 3 ? 0.5 : 0;
  for (let l = 0; l < map.data.n_layers; l++) {
    for (let e = 0; e < map.data.n_experts; e++) {
      const line = Math.floor(e / map.perRow);
      pen.fillStyle = colourOf(l, e, most, colours);
      pen.fillRect((e - line * map.perRow) * cell, (l * map.lines + line) * height + l * layerGap, cell - gap, height - gap);
    }
  }
}

function colourOf(l, e, most, colours) {
  const state = Number(map.data.states[l][e]);
  if (state === READING || state === QUEUED) return colours.reading;
  if (state === BELOW) return colours.below;
  if (state !== HELD) return colours.absent;
  const heat = map.heat[l * map.data.n_experts + e];
  return colours.ramp[Math.round(16 * (heat / most) ** 0.7)];
}

/* ---- in words ---- */

function layerSums(l) {
  const sums = {held: 0, reading: 0, uses: 0, top: 0};
  const n = map.data.n_experts;
  for (let e = 0; e < n; e++) {
    const state = Number(map.data.states[l][e]);
    sums.held += state === HELD || state === BELOW;
    sums.reading += state === READING || state === QUEUED;
    sums.uses += map.uses[l * n + e];
    if (map.uses[l * n + e] > map.uses[l * n + sums.top]) sums.top = e;
  }
  return sums;
}

function describeMap() {
  const {n_layers: layers, n_experts: experts} = map.data;
  const all = layers * experts;
  let held = 0;
  let reading = 0;
  let hottest = 0;
  for (let l = 0; l < layers; l++) {
    const sums = layerSums(l);
    held += sums.held;
    reading += sums.reading;
  }
  for (let i = 1; i < all; i++) if (map.heat[i] > map.heat[hottest]) hottest = i;
  const name = (i) => `expert ${i % experts} of layer ${Math.floor(i / experts)}`;
  $('picture-sum').textContent = `${held.toLocaleString('en')} of ${all.toLocaleString('en')} held`;
  $('map-text').textContent = `${countOf(layers, 'layer')} by ${countOf(experts, 'expert')}. Memory holds ` +
    (held === all ? 'all of them' : `${held.toLocaleString('en')} of ${all.toLocaleString('en')}`) +
    (reading > 0 ? `, and ${reading.toLocaleString('en')} ${reading === 1 ? 'is' : 'are'} being read` : '') +
    (map.heat[hottest] >= 1 ? `. Asked for most of late: ${name(hottest)}.` : '.');
}

function showMapTable() {
  const rows = [];
  for (let l = 0; l < map.data.n_layers; l++) {
    const sums = layerSums(l);
    rows.push(make('tr', null, ...[l, sums.held, sums.reading, sums.uses.toLocaleString('en'), sums.uses > 0 ? 'expert ' + sums.top : '–']
      .map((value) => make('td', null, String(value)))));
  }
  $('map-rows').replaceChildren(...rows);
}

function showMapTip(event) {
  const tip = $('map-tip');
  const x = event.offsetX;
  const perLayer = map.lines * map.height + map.layerGap;
  const l = Math.floor(event.offsetY / perLayer);
  const line = Math.floor((event.offsetY - l * perLayer) / map.height);
  const e = line * map.perRow + Math.floor(x / map.cell);
  const isThere = map.data && l >= 0 && l < map.data.n_layers && line < map.lines && x < map.perRow * map.cell && e < map.data.n_experts;
  tip.hidden = !isThere;
  if (!isThere) return;
  const words = ['on the drive', 'waits for the drive', 'is being read', 'held', 'held below the GPU'];
  const uses = map.uses[l * map.data.n_experts + e];
  tip.textContent = `Layer ${l}, expert ${e}: ${words[Number(map.data.states[l][e])]}, asked for ${countOf(uses, 'time')}`;
  const frame = tip.parentElement.clientWidth;
  tip.style.left = Math.max(4, Math.min(x - tip.offsetWidth / 2, frame - tip.offsetWidth - 4)) + 'px';
  tip.style.top = event.offsetY + 26 + 'px';
}

function initMap() {
  $('map').addEventListener('pointermove', showMapTip);
  $('map').addEventListener('pointerleave', () => { $('map-tip').hidden = true; });
  $('map-table').addEventListener('toggle', () => { if (map.data) showMapTable(); });
  new ResizeObserver(() => drawMap()).observe($('map').parentElement);
}
