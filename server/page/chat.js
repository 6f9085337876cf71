// SPDX-License-Identifier: MIT
// The conversation that is open: sending, streaming, stopping, going back.
const SAVE_EVERY_MS = 1000;

const chat = {
  current: null,
  views: new Map(), // of the messages shown, by id
  runs: new Map(), // of conversations, by id: {controller, message}
  isAtEnd: true,
};

const actions = {
  edit(message, text) {
    const c = chat.current;
    if (chat.runs.has(c.id)) stopAnswer();
    const again = addMessage(c, message.parent, 'user', text);
    showConversation();
    answer(c, again);
    $('input').focus();
  },
  again(message) {
    const c = chat.current;
    if (chat.runs.has(c.id)) return;
    answer(c, messageOf(c, message.parent));
  },
  results(message, texts) {
    const c = chat.current;
    if (chat.runs.has(c.id)) return;
    let last = message;
    message.calls.forEach((call, i) => {
      last = addMessage(c, last.id, 'tool', texts[i]);
      Object.assign(last, {call: call.id, name: call.name});
    });
    answer(c, last);
    $('input').focus();
  },
  version(message) {
    const c = chat.current;
    if (chat.runs.has(c.id)) return;
    showVersion(c, message);
    conversations.save(c);
    showConversation();
    const view = chat.views.get(message.id);
    const button = view && view.node.querySelector('.versions button:not(:disabled)');
    if (button) button.focus();
  },
};

/* ---- showing ---- */

function openConversation(c) {
  chat.current = c;
  chat.isAtEnd = true;
  showConversation();
  showList();
}

function showConversation() {
  const c = chat.current;
  const path = pathOf(c);
  const run = chat.runs.get(c.id);
  chat.views.clear();
  $('log').replaceChildren(...path.map((message) => {
    const view = new MessageView(c, message, actions);
    chat.views.set(message.id, view);
    if (run && run.message === message) setRunning(view, true);
    return view.node;
  }));
  $('welcome').hidden = path.length > 0;
  $('log').hidden = path.length === 0;
  $('title').textContent = c.title || 'New conversation';
  document.title = (c.title ? c.title + ' – ' : '') + 'moeflux';
  for (const button of document.querySelectorAll('[data-export]')) button.disabled = path.length === 0;
  showButtons();
  keepAtEnd();
}

function setRunning(view, isRunning) {
  view.isRunning = isRunning;
  view.update();
  view.showTools();
}

function keepAtEnd() {
  const box = $('scroll');
  if (chat.isAtEnd) box.scrollTop = box.scrollHeight;
  showScroll();
}

function showScroll() {
  const box = $('scroll');
  $('latest').hidden = chat.isAtEnd || box.scrollHeight - box.scrollTop - box.clientHeight < 80;
  document.querySelector('.bar').classList.toggle('is-over', box.scrollTop > 4);
}

function showButtons() {
  const isRunning = chat.runs.has(chat.current.id);
  const send = $('send');
  const label = isRunning ? 'Stop' : 'Send';
  if (send.getAttribute('aria-label') !== label) {
    send.setAttribute('aria-label', label);
    send.replaceChildren(icon(isRunning ? 'stop' : 'send'));
  }
  send.disabled = !isRunning && !$('input').value.trim();
}

function fitInput() {
  const input = $('input');
  input.style.height = 'auto';
  input.style.height = input.scrollHeight + 'px';
  showButtons();
}

/* ---- the list ---- */

function showList() {
  const focused = document.activeElement && document.activeElement.closest('.item');
  const rows = conversations.sorted().map((c) => {
    const isOpen = c === chat.current;
    const name = make('button', {class: 'item-name', type: 'button', 'aria-current': isOpen ? 'true' : null, title: c.title,
      on: {click: () => { openConversation(c); closeSide(); }}}, c.title || 'Untitled');
    const li = make('li', {class: 'item' + (isOpen ? ' is-open' : '') + (chat.runs.has(c.id) ? ' is-busy' : ''), 'data-id': c.id}, name);
    if (isOpen) {
      li.append(iconButton('edit', 'Rename ' + (c.title || 'Untitled'), () => renameConversation(c)),
        iconButton('bin', 'Delete ' + (c.title || 'Untitled'), () => deleteConversation(c)));
    }
    return li;
  });
  $('list').replaceChildren(...rows);
  $('export-all').disabled = rows.length === 0;
  const again = focused && [...$('list').children].find((li) => li.dataset.id === focused.dataset.id);
  if (again) again.querySelector('.item-name').focus();
}

async function renameConversation(c) {
  const title = await ask({title: 'Rename the conversation', yes: 'Rename', value: c.title});
  if (title) {
    c.title = title.slice(0, 200);
    conversations.save(c);
    if (c === chat.current) $('title').textContent = c.title;
  }
  showList();
  const button = document.querySelector('.item.is-open .item-name');
  if (button) button.focus();
}

async function deleteConversation(c) {
  if (!await ask({title: 'Delete the conversation?', text: `“${c.title || 'Untitled'}” will be gone from this browser.`, yes: 'Delete'})) return;
  const run = chat.runs.get(c.id);
  if (run) { run.isDropped = true; run.controller.abort(); }
  conversations.remove(c.id);
  if (c === chat.current) openConversation(conversations.create());
  else showList();
  say('Deleted');
  $('input').focus();
}

function newConversation() {
  openConversation(conversations.create());
  closeSide();
  $('input').focus();
}

function stepConversation(by) {
  const all = conversations.sorted();
  const at = all.indexOf(chat.current);
  const next = all[at === -1 ? 0 : Math.min(all.length - 1, Math.max(0, at + by))];
  if (next && next !== chat.current) openConversation(next);
}

/* ---- sending ---- */

function sendInput() {
  const c = chat.current;
  const text = $('input').value.trim();
  if (!text || chat.runs.has(c.id)) return;
  $('input').value = '';
  fitInput();
  const message = addMessage(c, c.leaf, 'user', text);
  chat.isAtEnd = true;
  showConversation();
  answer(c, message);
}

// The messages up to one, as the server wants them. Calls go with their results alone.
function historyTo(c, message) {
  const path = [];
  for (let m = message; m; m = m.parent === null ? null : messageOf(c, m.parent)) path.unshift(m);
  const out = settings.values.system ? [{role: 'system', content: settings.values.system}] : [];
  path.forEach((m, i) => {
    const entry = {role: m.role, content: m.content};
    const hasResults = m.calls && path[i + 1] && path[i + 1].role === 'tool';
    if (m.role === 'assistant' && m.thoughts) entry.reasoning_content = m.thoughts;
    if (m.role === 'tool') entry.tool_call_id = m.call;
    if (hasResults)
      entry.tool_calls = m.calls.map((call) => ({id: call.id, type: 'function', function: {name: call.name, arguments: call.arguments}}));
    if (m.role !== 'assistant' || m.content || hasResults) out.push(entry);
  });
  return out;
}

function takeDelta(m, delta) {
  const thoughts = delta.reasoning_content || delta.reasoning;
  if (isText(thoughts)) m.thoughts = (m.thoughts || '') + thoughts;
  if (isText(delta.content)) m.content += delta.content;
  for (const part of Array.isArray(delta.tool_calls) ? delta.tool_calls : []) {
    const index = Number.isInteger(part.index) && part.index >= 0 && part.index < 128 ? part.index : 0;
    m.calls = m.calls || [];
    while (m.calls.length <= index) m.calls.push({id: '', name: '', arguments: ''});
    const call = m.calls[index];
    const f = part.function || {};
    call.id = textOr(part.id, call.id);
    call.name += textOr(f.name, '');
    call.arguments += textOr(f.arguments, '');
  }
}

function takeChunk(m, chunk, clock) {
  if (isText(chunk.model)) m.meta.model = chunk.model;
  const choice = chunk.choices && chunk.choices[0];
  if (choice && choice.delta) {
    const {content, reasoning_content: thoughts, tool_calls: calls} = choice.delta;
    if (content || thoughts || calls) {
      clock.last = performance.now();
      if (!clock.first) {
        clock.first = clock.last;
        m.meta.first = (clock.first - clock.start) / 1000;
      }
    }
    takeDelta(m, choice.delta);
  }
  if (choice && isText(choice.finish_reason)) m.meta.finish = choice.finish_reason;
  if (chunk.usage) {
    m.meta.tokens = numberOr(chunk.usage.completion_tokens, 0);
    m.meta.prompt = numberOr(chunk.usage.prompt_tokens, 0);
    m.meta.cached = numberOr((chunk.usage.prompt_tokens_details || {}).cached_tokens, 0);
  }
}

// Answers a message of the user; what was answered before stays, as another version.
async function answer(c, parent) {
  const m = addMessage(c, parent.id, 'assistant', '');
  const run = {controller: new AbortController(), message: m};
  const clock = {start: performance.now(), first: 0, last: 0, saved: performance.now()};
  let isDue = false;
  const draw = () => {
    isDue = false;
    const view = chat.views.get(m.id);
    if (view && chat.current === c) { view.update(); keepAtEnd(); }
  };
  chat.runs.set(c.id, run);
  conversations.save(c);
  if (chat.current === c) showConversation();
  showList();
  try {
    const body = {messages: historyTo(c, parent), stream: true, stream_options: {include_usage: true}, ...requestFields()};
    await streamChat(body, run.controller.signal, (chunk) => {
      takeChunk(m, chunk, clock);
      if (!isDue) { isDue = true; setTimeout(() => requestAnimationFrame(draw), 30); }
      if (performance.now() - clock.saved > SAVE_EVERY_MS && !run.isDropped) { clock.saved = performance.now(); conversations.save(c); }
    });
  } catch (error) {
    endBadly(c, m, run, error);
  }
  if (clock.last > clock.first) m.meta.seconds = (clock.last - clock.first) / 1000;
  chat.runs.delete(c.id);
  if (!run.isDropped) conversations.save(c);
  endRun(c, m);
}

function endBadly(c, m, run, error) {
  if (run.controller.signal.aborted) { m.meta.finish = 'stopped'; return; }
  const isUnknown = error instanceof Refused && error.status === 401;
  m.failure = error instanceof Refused ? error.message : 'The server cannot be reached.';
  if (isUnknown) askForKey(error.message, () => { askAgain(c, m); start(); });
}

// Instead of an answer that failed.
function askAgain(c, failed) {
  if (chat.current !== c || chat.runs.has(c.id) || !c.messages.includes(failed)) return;
  c.messages = c.messages.filter((m) => m !== failed);
  c.leaf = failed.parent;
  answer(c, messageOf(c, failed.parent));
}

function endRun(c, m) {
  const view = chat.views.get(m.id);
  if (view && chat.current === c) {
    setRunning(view, false);
    showButtons();
    keepAtEnd();
    say(m.failure ? 'Failed: ' + m.failure : m.meta.finish === 'stopped' ? 'Stopped' : 'Answer: ' + m.content.slice(0, 800));
  }
  showList();
}

function stopAnswer() {
  const run = chat.runs.get(chat.current.id);
  if (run) run.controller.abort();
}

/* ---- events ---- */

function initChat() {
  const input = $('input');
  input.addEventListener('input', fitInput);
  input.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      sendInput();
    } else if (event.key === 'ArrowUp' && !input.value && !event.shiftKey && !event.altKey) {
      const own = pathOf(chat.current).filter((m) => m.role === 'user').pop();
      if (own && !chat.runs.has(chat.current.id)) { event.preventDefault(); chat.views.get(own.id).edit(); }
    }
  });
  $('send').addEventListener('click', () => {
    if (chat.runs.has(chat.current.id)) stopAnswer();
    else sendInput();
    input.focus();
  });
  $('new').addEventListener('click', newConversation);
  $('scroll').addEventListener('scroll', () => {
    const box = $('scroll');
    chat.isAtEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
    showScroll();
  }, {passive: true});
  $('latest').addEventListener('click', () => { chat.isAtEnd = true; keepAtEnd(); input.focus(); });
  addEventListener('pagehide', () => {
    for (const [id, run] of chat.runs) {
      run.message.meta.finish = 'stopped';
      if (!run.isDropped) conversations.save(conversations.all.get(id));
    }
  });
  addEventListener('storage', (event) => {
    if (!event.key || !event.key.startsWith(STORED) || chat.runs.size > 0) return;
    conversations.load();
    chat.current = conversations.all.get(chat.current.id) || chat.current;
    showConversation();
    showList();
  });
}
