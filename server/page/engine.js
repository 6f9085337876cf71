// SPDX-License-Identifier: MIT
// The view of the engine: figures as differences between two looks at its counters, about a second
// apart, and only while somebody looks.
const POLL_MS = 1000;
const POLL_FIRST_MS = 300; // figures are differences: the second look comes soon
const POLL_FAILED_MS = 4000;
const N_POINTS = 60;

const engine = {
  before: null, // the last stats
  decode: [], prompt: [], // tokens/s, the newest last
  timer: 0, isPolling: false, best: 0,
};

const isLooking = () => !$('engine').hidden && document.visibilityState === 'visible';

/* ---- figures ---- */

// Per second, of counters that may have begun anew.
function rates(before, now) {
  const seconds = now.uptime_seconds - before.uptime_seconds;
  const of = (part, name) => Math.max(0, now[part][name] - before[part][name]);
  const answers = of('server', 'answer_tokens_total');
  const hits = of('engine', 'expert_hits_total');
  const misses = of('engine', 'expert_misses_total');
  const hints = of('engine', 'hints_useful_total') + of('engine', 'hints_late_total');
  return {
    decode: answers / seconds,
    prompt: Math.max(0, of('server', 'evaluated_tokens_total') - answers) / seconds,
    waiting: of('engine', 'wait_microseconds_total') / 1e6 / seconds,
    drive: of('engine', 'read_bytes_total') / seconds,
    reading: of('engine', 'reading_microseconds_total') / 1e6 / seconds,
    asked: hits + misses, hits, misses,
    hints, hinted: of('engine', 'hints_total'), wasted: of('engine', 'hints_wasted_total'),
  };
}

const percent = (part, whole) => (whole > 0 ? (100 * part / whole).toFixed(part / whole > 0.995 || part === 0 ? 0 : 1) + ' %' : '–');
const perSecond = (n) => (n >= 1e9 ? (n / 1e9).toFixed(2) + ' GB/s' : (n / 1e6).toFixed(n >= 1e8 || n === 0 ? 0 : 1) + ' MB/s');
const speed = (n) => (n >= 100 ? n.toFixed(0) : n.toFixed(1));

function meter(name, label) {
  let node = document.querySelector(`[data-meter="${name}"]`);
  if (!node) {
    node = make('div', {class: 'meter', 'data-meter': name, role: 'meter', 'aria-label': label, 'aria-valuemin': '0', 'aria-valuemax': '100'},
      make('div', {class: 'meter-head'}, make('span', null, label), make('b')), make('div', {class: 'meter-bar'}, make('i')));
    $('meters').append(node);
  }
  return node;
}

// part of 1; text says what it is.
function showMeter(name, label, part, text) {
  const node = meter(name, label);
  const value = Math.max(0, Math.min(100, 100 * part)) || 0;
  node.setAttribute('aria-label', label);
  node.querySelector('span').textContent = label;
  node.setAttribute('aria-valuenow', value.toFixed(0));
  node.setAttribute('aria-valuetext', text);
  node.querySelector('b').textContent = text;
  node.querySelector('i').style.width = value.toFixed(1) + '%';
}

function showMeters(stats, r) {
  // What was tried at the start, or what was seen since, if that is more.
  engine.best = Math.max(engine.best, r.drive);
  const measured = stats.drive.measured_bytes_per_second;
  const limit = measured && Math.max(measured, engine.best);
  const memory = stats.memory;
  const all = stats.engine;
  const asked = r.asked || all.expert_hits_total + all.expert_misses_total;
  const hits = r.asked ? r.hits : all.expert_hits_total;
  showMeter('hits', r.asked ? 'Experts found in memory' : 'Found in memory so far', hits / asked, percent(hits, asked));
  showMeter('waiting', 'Time waiting for the drive', r.waiting, percent(Math.min(1, r.waiting), 1));
  showMeter('drive', 'Drive', limit ? r.drive / limit : r.reading,
    perSecond(r.drive) + (limit ? ' of ' + perSecond(limit) : ''));
  showMeter('memory', 'Memory', memory.process_bytes / memory.budget_bytes,
    bytesOf(memory.process_bytes) + ' of ' + bytesOf(memory.budget_bytes));
  const state = all.state_bytes_used + all.state_bytes_free;
  showMeter('state', 'Memory of conversations', all.state_bytes_used / state, bytesOf(all.state_bytes_used) + ' of ' + bytesOf(state));
  if (memory.device_budget_bytes > 0)
    showMeter('device', 'GPU memory', all.device_bytes_taken / memory.device_budget_bytes,
      bytesOf(all.device_bytes_taken) + ' of ' + bytesOf(memory.device_budget_bytes));
  if (all.hints_total > 0) {
    const taken = all.hints_useful_total + all.hints_late_total;
    showMeter('hints', 'Foreseen experts that were wanted', taken / all.hints_total,
      `${percent(taken, all.hints_total)} of ${all.hints_total.toLocaleString('en')}`);
  }
}

function showPairs(list, pairs) {
  const nodes = pairs.flatMap(([name, value]) => [make('dt', null, name), make('dd', null, value)]);
  const old = list.children;
  if (old.length !== nodes.length) return list.replaceChildren(...nodes);
  nodes.forEach((node, i) => { if (old[i].textContent !== node.textContent) old[i].textContent = node.textContent; });
}

function showCounts(stats) {
  const s = stats.server;
  const e = stats.engine;
  const n = (value) => value.toLocaleString('en');
  const pairs = [
    ['Answers in the making', n(s.answers_running)],
    ['Waiting', n(s.answers_waiting)],
    ['Sessions kept for prompts to come', n(s.sessions_idle)],
    ['Prompt tokens found evaluated', `${n(s.cached_tokens_total)} of ${n(s.prompt_tokens_total)}`],
    ['Tokens answered', n(s.answer_tokens_total)],
    ['Read from the drive', bytesOf(e.read_bytes_total)],
    ['Experts waiting for the drive', n(e.experts_queued)],
  ];
  if (e.hints_total > 0)
    pairs.push(['Foreseen: in time, late, for nothing', [e.hints_useful_total, e.hints_late_total, e.hints_wasted_total].map(n).join(', ')]);
  showPairs($('counts'), pairs);
}

function parametersOf(n) {
  return n >= 1e9 ? (n / 1e9).toFixed(n >= 1e10 ? 0 : 1) + ' billion' : (n / 1e6).toFixed(n >= 1e7 ? 0 : 1) + ' million';
}

function showFacts(stats) {
  const i = stats.model_info;
  const hours = Math.floor(stats.uptime_seconds / 3600);
  const minutes = Math.floor(stats.uptime_seconds / 60) % 60;
  showPairs($('facts'), [
    ['Model', stats.model],
    ['Family', i.family],
    ['Parameters', parametersOf(i.n_parameters)],
    ['Experts', `${i.n_experts} in ${countOf(i.n_moe_layers, 'layer')}, ${i.n_experts_per_token} at a time`],
    ['Held at most', (stats.engine.expert_slots + stats.engine.expert_host_slots).toLocaleString('en')],
    ['Context', i.n_context_tokens.toLocaleString('en') + ' tokens'],
    ['Computes on', i.device === i.expert_device ? i.device : `${i.device}, experts on ${i.expert_device}`],
    ['Reads by', stats.drive.io],
    ['moeflux', `${stats.version}, up ${hours} h ${minutes} min`],
  ]);
}

function drawLine(canvas, values) {
  const ratio = window.devicePixelRatio || 1;
  const width = Math.round(canvas.clientWidth * ratio);
  const height = Math.round(canvas.clientHeight * ratio);
  if (!width || !height) return;
  if (canvas.width !== width || canvas.height !== height) { canvas.width = width; canvas.height = height; }
  const pen = canvas.getContext('2d');
  const colour = getComputedStyle(document.documentElement).getPropertyValue('--accent');
  const most = Math.max(1, ...values);
  const x = (i) => width - (values.length - 1 - i) * width / (N_POINTS - 1);
  const y = (v) => height - ratio - (height - 3 * ratio) * v / most;
  pen.clearRect(0, 0, width, height);
  if (values.length < 2) return;
  pen.beginPath();
  values.forEach((v, i) => (i ? pen.lineTo(x(i), y(v)) : pen.moveTo(x(i), y(v))));
  pen.strokeStyle = colour;
  pen.lineWidth = 1.5 * ratio;
  pen.lineJoin = 'round';
  pen.stroke();
  pen.lineTo(x(values.length - 1), height);
  pen.lineTo(x(0), height);
  pen.globalAlpha = 0.12;
  pen.fillStyle = colour;
  pen.fill();
  pen.globalAlpha = 1;
}

function showState(state, text) {
  $('engine-state').dataset.state = state;
  if ($('engine-state').textContent !== text) $('engine-state').textContent = text;
}

function showStats(stats) {
  const before = engine.before && stats.uptime_seconds > engine.before.uptime_seconds ? engine.before : stats;
  const r = before === stats ? {decode: 0, prompt: 0, waiting: 0, drive: 0, reading: 0, asked: 0, hits: 0, misses: 0} : rates(before, stats);
  if (before !== stats) {
    for (const name of ['decode', 'prompt']) {
      engine[name].push(r[name]);
      if (engine[name].length > N_POINTS) engine[name].shift();
      $(name).textContent = speed(r[name]);
    }
  }
  engine.before = stats;
  const isBusy = stats.server.answers_running > 0;
  if (before === stats) for (const name of ['decode', 'prompt']) $(name).textContent = '–';
  showState(isBusy ? 'busy' : '', isBusy ? (r.prompt > r.decode * 4 ? 'reading a prompt' : 'answering') : 'idle');
  $('legend-below').hidden = stats.engine.expert_host_slots === 0;
  showMeters(stats, r);
  showCounts(stats);
  showFacts(stats);
  drawLine($('decode-line'), engine.decode);
  drawLine($('prompt-line'), engine.prompt);
}

/* ---- looking ---- */

async function poll() {
  clearTimeout(engine.timer);
  if (engine.isPolling || !isLooking()) return;
  engine.isPolling = true;
  let wait = engine.before ? POLL_MS : POLL_FIRST_MS;
  try {
    const [stats, experts] = await Promise.all([getJson('/v1/moeflux/stats'), getJson('/v1/moeflux/experts')]);
    showStats(stats);
    showExperts(experts);
  } catch (error) {
    wait = POLL_FAILED_MS;
    showState('gone', error instanceof Refused ? error.message : 'the server cannot be reached');
    if (error instanceof Refused && error.status === 401) askForKey(error.message, start);
  }
  engine.isPolling = false;
  if (isLooking()) engine.timer = setTimeout(poll, wait);
}

function showEngine(isOpen) {
  $('engine').hidden = !isOpen;
  $('engine-toggle').setAttribute('aria-expanded', String(isOpen));
  settings.values.engine = isOpen;
  saveSettings();
  if (!isOpen) setEngineWide(false);
  lookAnew();
}

// What was seen before a pause says nothing of now.
function lookAnew() {
  Object.assign(engine, {before: null, decode: [], prompt: []});
  map.uses = null;
  if (map.heat) map.heat.fill(0);
  poll();
}

function setEngineWide(isWide) {
  $('app').classList.toggle('is-engine', isWide);
  $('engine-wide').setAttribute('aria-pressed', String(isWide));
  drawMap();
}

function initEngine() {
  $('engine-toggle').addEventListener('click', () => {
    showEngine($('engine').hidden);
    if (!$('engine').hidden && narrow.matches) $('engine-close').focus();
  });
  $('engine-close').addEventListener('click', () => { showEngine(false); $('engine-toggle').focus(); });
  $('engine-wide').addEventListener('click', () => setEngineWide(!$('app').classList.contains('is-engine')));
  document.addEventListener('visibilitychange', () => { if (isLooking()) lookAnew(); });
  document.addEventListener('scheme', () => {
    drawLine($('decode-line'), engine.decode);
    drawLine($('prompt-line'), engine.prompt);
    drawMap();
  });
}
