// SPDX-License-Identifier: MIT
// The page as a whole: its drawer, its keys, its start.
const narrow = matchMedia('(max-width: 859.98px)');
let veil = null;

function openSide() {
  $('side').classList.add('is-open');
  $('menu').setAttribute('aria-expanded', 'true');
  veil = make('div', {class: 'veil', on: {click: closeSide}});
  $('app').append(veil);
  $('chat').inert = true;
  $('side-close').focus();
}

function closeSide() {
  if (!veil) return;
  $('side').classList.remove('is-open');
  $('menu').setAttribute('aria-expanded', 'false');
  $('chat').inert = false;
  veil.remove();
  veil = null;
  $('menu').focus();
}

const SHORTCUTS = [
  ['Send the message', ['Enter']],
  ['A new line', ['Shift', 'Enter']],
  ['Stop the answer; close what is open', ['Esc']],
  ['Edit the last message', ['↑ in the empty field']],
  ['New conversation', ['Ctrl', 'Shift', 'O']],
  ['The conversation above, below', ['Alt', '↑ ↓']],
  ['To the message field', ['Ctrl', 'Shift', 'F']],
  ['View of the engine', ['Ctrl', 'Shift', 'L']],
  ['Settings', ['Ctrl', ',']],
  ['This list', ['Ctrl', '/']],
];

function onKey(event) {
  const isMain = event.ctrlKey || event.metaKey;
  const isOpen = document.querySelector('dialog[open]') !== null;
  if (event.key === 'Escape' && !isOpen) {
    if (veil) closeSide();
    else if ($('engine').contains(document.activeElement)) $('engine-close').click();
    else if (chat.runs.has(chat.current.id)) stopAnswer();
    else return;
  } else if (isOpen) {
    return;
  } else if (isMain && event.shiftKey && event.code === 'KeyO') newConversation();
  else if (isMain && event.shiftKey && event.code === 'KeyL') showEngine($('engine').hidden);
  else if (isMain && event.shiftKey && event.code === 'KeyF') $('input').focus();
  else if (isMain && event.key === ',') openSettings();
  else if (isMain && event.key === '/') $('keys').showModal();
  else if (event.altKey && (event.key === 'ArrowUp' || event.key === 'ArrowDown')) stepConversation(event.key === 'ArrowUp' ? -1 : 1);
  else return;
  event.preventDefault();
}

function showModel(stats) {
  const i = stats.model_info;
  $('model').textContent = `${stats.model} · ${parametersOf(i.n_parameters)} parameters · context ${i.n_context_tokens.toLocaleString('en')}`;
  $('welcome-text').textContent = `Say something to ${stats.model}.`;
  $('welcome-note').textContent = i.has_chat ? 'It runs on your own machine; conversations stay in this browser.'
    : 'This model has no chat template: it goes on with the text that you write. Conversations stay in this browser.';
  showDefaults(i.sampling);
}

// What is asked of the server at first, and again with another key.
async function start() {
  try {
    showModel(await getJson('/v1/moeflux/stats'));
  } catch (error) {
    $('model').textContent = error instanceof Refused ? error.message : 'the server cannot be reached';
    if (error instanceof Refused && error.status === 401) askForKey(error.message, start);
  }
  poll();
}

function init() {
  loadSettings();
  initSettings(start);
  conversations.load();
  initChat();
  initTransfer();
  initEngine();
  initMap();
  $('menu').addEventListener('click', openSide);
  $('side-close').addEventListener('click', closeSide);
  narrow.addEventListener('change', closeSide);
  $('open-keys').addEventListener('click', () => $('keys').showModal());
  $('key-list').append(...SHORTCUTS.flatMap(([what, keys]) =>
    [make('dt', null, what), make('dd', null, ...keys.map((name) => make('kbd', null, name)))]));
  for (const button of document.querySelectorAll('[data-close]'))
    button.addEventListener('click', () => button.closest('dialog').close());
  for (const dialog of document.querySelectorAll('dialog'))
    dialog.addEventListener('click', (event) => { if (event.target === dialog) dialog.close(); });
  document.addEventListener('keydown', onKey);
  const newest = conversations.sorted()[0];
  openConversation(newest || conversations.create());
  showEngine(settings.values.engine === true && !matchMedia('(max-width: 1179.98px)').matches);
  if (!narrow.matches) $('input').focus();
  fitInput();
  start();
}

init();
