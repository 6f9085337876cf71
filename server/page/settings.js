// SPDX-License-Identifier: MIT
// What the user wants of answers and of the page, kept by the browser.
const SETTINGS_NAME = 'moeflux/settings';
const NUMBERS = ['temperature', 'top_p', 'top_k', 'min_p', 'max_tokens', 'seed']; // fields of requests
const FIELDS = [...NUMBERS, 'thought_tokens'];
const TEXTS = ['system', 'thinking', 'scheme', 'tools'];

const settings = {values: {}};

function loadSettings() {
  let stored = {};
  try { stored = JSON.parse(localStorage.getItem(SETTINGS_NAME)) || {}; } catch { /* as new */ }
  settings.values = {engine: stored.engine === true};
  for (const name of FIELDS) if (Number.isFinite(stored[name])) settings.values[name] = stored[name];
  for (const name of TEXTS) if (isText(stored[name])) settings.values[name] = stored[name];
}

function saveSettings() {
  try { localStorage.setItem(SETTINGS_NAME, JSON.stringify(settings.values)); } catch { /* not kept */ }
}

// The fields of a request, besides its messages. What is not set is left to the server.
function requestFields() {
  const fields = {};
  for (const name of NUMBERS) if (settings.values[name] !== undefined) fields[name] = settings.values[name];
  const {thinking, thought_tokens: most} = settings.values;
  if (thinking) fields.chat_template_kwargs = {enable_thinking: thinking === 'on'};
  if (most !== undefined && thinking !== 'off') fields.thinking = {type: 'enabled', budget_tokens: most};
  const tools = toolsOf(settings.values.tools);
  if (tools && tools.length > 0) fields.tools = tools;
  return fields;
}

// The list that the text is; null: it is none.
function toolsOf(text) {
  if (!text || !text.trim()) return [];
  try {
    const tools = JSON.parse(text);
    return Array.isArray(tools) ? tools : null;
  } catch {
    return null;
  }
}

function showTools() {
  const isGood = toolsOf($('s-tools').value) !== null;
  $('s-tools').setAttribute('aria-invalid', String(!isGood));
  $('s-tools-note').textContent = isGood ? 'What the model calls is shown, and you give the results.' : 'This is no JSON list yet, and is not sent.';
}

/* ---- colours ---- */

const systemDark = matchMedia('(prefers-color-scheme: dark)');
const isDark = () => (settings.values.scheme ? settings.values.scheme === 'dark' : systemDark.matches);

function applyScheme() {
  const dark = isDark();
  document.documentElement.dataset.scheme = dark ? 'dark' : 'light';
  $('scheme').setAttribute('aria-pressed', String(dark));
  document.dispatchEvent(new Event('scheme'));
}

function switchScheme() {
  settings.values.scheme = isDark() ? 'light' : 'dark';
  saveSettings();
  applyScheme();
}

/* ---- the dialog ---- */

function fillSettings() {
  for (const name of FIELDS) $('s-' + name).value = settings.values[name] === undefined ? '' : settings.values[name];
  for (const name of TEXTS) $('s-' + name).value = settings.values[name] || '';
  $('s-key').value = key.value;
  $('s-keep').checked = key.isKept;
}

function readNumber(name) {
  const field = $('s-' + name);
  const value = field.value === '' ? NaN : Number(field.value);
  if (Number.isFinite(value) && field.validity.valid) settings.values[name] = value;
  else if (field.value === '' && !field.validity.badInput) delete settings.values[name];
}

function readSettings() {
  FIELDS.forEach(readNumber);
  for (const name of TEXTS) settings.values[name] = $('s-' + name).value;
  saveSettings();
  applyScheme();
  showTools();
}

function showDefaults(sampling) {
  for (const name of ['temperature', 'top_p', 'top_k', 'min_p'])
    if (Number.isFinite(sampling[name])) $('s-' + name).placeholder = String(Number(sampling[name].toFixed(4)));
}

function openSettings() {
  fillSettings();
  showTools();
  $('settings').showModal();
}

function initSettings(onKey) {
  $('settings').addEventListener('input', (event) => {
    if (event.target !== $('s-key') && event.target !== $('s-keep')) readSettings();
  });
  $('settings').addEventListener('close', () => {
    const hasChanged = $('s-key').value.trim() !== key.value || $('s-keep').checked !== key.isKept;
    if (hasChanged) { key.set($('s-key').value.trim(), $('s-keep').checked); onKey(); }
    fillSettings();
  });
  $('settings-reset').addEventListener('click', () => {
    settings.values = {engine: settings.values.engine};
    saveSettings();
    fillSettings();
    showTools();
    applyScheme();
  });
  $('open-settings').addEventListener('click', openSettings);
  $('scheme').addEventListener('click', switchScheme);
  systemDark.addEventListener('change', applyScheme);
  applyScheme();
}

// Asks for the key once at a time; onKey goes on with it.
function askForKey(why, onKey) {
  const dialog = $('key');
  if (dialog.open) return;
  $('key-why').textContent = why;
  $('k-key').value = '';
  $('k-keep').checked = key.isKept;
  const use = () => {
    key.set($('k-key').value.trim(), $('k-keep').checked);
    dialog.close();
    onKey();
  };
  $('key-use').onclick = use;
  $('k-key').onkeydown = (event) => {
    if (event.key !== 'Enter') return;
    event.preventDefault();
    use();
  };
  dialog.showModal();
}
