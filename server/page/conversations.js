// SPDX-License-Identifier: MIT
// Conversations, kept by the browser under keys of their own. A conversation is a tree of messages
// of which one path is shown: a message that was edited and an answer that was made again stand
// beside what was there before.
const STORED = 'moeflux/c/';
const MAX_CONVERSATIONS = 200;
const MAX_STORED_CHARS = 4 << 20; // browsers give some five million
const ROLES = ['user', 'assistant', 'tool'];

const isText = (value) => typeof value === 'string';
const textOr = (value, other) => (isText(value) ? value : other);
const numberOr = (value, other) => (Number.isFinite(value) ? value : other);

function checkedCall(call) {
  const f = call && typeof call === 'object' ? call : {};
  return {id: textOr(f.id, ''), name: textOr(f.name, ''), arguments: textOr(f.arguments, '')};
}

function checkedMessage(m) {
  if (!m || typeof m !== 'object' || !ROLES.includes(m.role)) return null;
  const out = {id: textOr(m.id, newId()).slice(0, 40), parent: isText(m.parent) ? m.parent : null, role: m.role, content: textOr(m.content, '')};
  if (isText(m.thoughts) && m.thoughts) out.thoughts = m.thoughts;
  if (Array.isArray(m.calls)) out.calls = m.calls.slice(0, 128).map(checkedCall);
  if (isText(m.failure)) out.failure = m.failure;
  if (m.role === 'tool') Object.assign(out, {call: textOr(m.call, ''), name: textOr(m.name, '')});
  const meta = m.meta && typeof m.meta === 'object' ? m.meta : {};
  out.meta = {};
  for (const name of ['model', 'finish']) if (isText(meta[name])) out.meta[name] = meta[name];
  for (const name of ['tokens', 'prompt', 'cached', 'first', 'seconds', 'at'])
    if (Number.isFinite(meta[name])) out.meta[name] = meta[name];
  return out;
}

// A conversation from anywhere: what is not as it should be is left out. null: it is none.
function checkedConversation(c) {
  if (!c || typeof c !== 'object' || !Array.isArray(c.messages)) return null;
  const messages = [];
  const known = new Set();
  for (const m of c.messages.slice(0, 20000)) {
    const message = checkedMessage(m);
    if (!message || known.has(message.id)) continue;
    if (message.parent !== null && !known.has(message.parent)) message.parent = null;
    known.add(message.id); // parents come first: so there are no rings
    messages.push(message);
  }
  const last = messages.length > 0 ? messages[messages.length - 1].id : null;
  return {
    id: /^[\w-]{1,40}$/.test(textOr(c.id, '')) ? c.id : newId(),
    title: textOr(c.title, '').slice(0, 200),
    created: numberOr(c.created, Date.now()),
    updated: numberOr(c.updated, Date.now()),
    leaf: known.has(c.leaf) ? c.leaf : last,
    messages,
  };
}

const conversations = {
  all: new Map(),

  load() {
    this.all.clear();
    for (let i = 0; i < localStorage.length; i++) {
      const name = localStorage.key(i);
      if (!name.startsWith(STORED)) continue;
      let c = null;
      try { c = checkedConversation(JSON.parse(localStorage.getItem(name))); } catch { /* broken: not shown */ }
      if (c) this.all.set(c.id, c);
    }
  },

  sorted() {
    return [...this.all.values()].sort((a, b) => b.updated - a.updated);
  },

  create() {
    return {id: newId(), title: '', created: Date.now(), updated: Date.now(), leaf: null, messages: []};
  },

  // Keeps c; where there is no more room, the ones that were not touched for longest go.
  save(c) {
    this.all.set(c.id, c);
    const text = JSON.stringify(c);
    if (text.length > MAX_STORED_CHARS)
      return toast('This conversation has grown too long to be kept by the browser. Export it to keep it.');
    for (;;) {
      try {
        if (this.all.size <= MAX_CONVERSATIONS && storedChars(STORED + c.id) + text.length <= MAX_STORED_CHARS) {
          localStorage.setItem(STORED + c.id, text);
          return;
        }
      } catch {
        // full: as if it were too many
      }
      const oldest = this.sorted().filter((other) => other.id !== c.id).pop();
      if (!oldest) return toast('The browser has no room to keep this conversation. Export it to keep it.');
      this.remove(oldest.id);
      toast(`“${oldest.title || 'Untitled'}” was the oldest conversation, and made room.`);
    }
  },

  remove(id) {
    this.all.delete(id);
    localStorage.removeItem(STORED + id);
  },
};

function storedChars(except) {
  let n = 0;
  for (let i = 0; i < localStorage.length; i++) {
    const name = localStorage.key(i);
    if (name.startsWith(STORED) && name !== except) n += localStorage.getItem(name).length;
  }
  return n;
}

/* ---- the tree ---- */

const messageOf = (c, id) => c.messages.find((m) => m.id === id) || null;

function pathOf(c) {
  const path = [];
  for (let m = messageOf(c, c.leaf); m; m = m.parent === null ? null : messageOf(c, m.parent)) path.unshift(m);
  return path;
}

const siblingsOf = (c, m) => c.messages.filter((other) => other.parent === m.parent && other.role === m.role);

// Shows m, and what was last said below it.
function showVersion(c, m) {
  let leaf = m;
  for (;;) {
    const children = c.messages.filter((other) => other.parent === leaf.id);
    if (children.length === 0) break;
    leaf = children[children.length - 1];
  }
  c.leaf = leaf.id;
}

function addMessage(c, parent, role, content) {
  const m = {id: newId(), parent, role, content, meta: {at: Date.now()}};
  c.messages.push(m);
  c.leaf = m.id;
  c.updated = Date.now();
  if (!c.title && role === 'user') c.title = content.trim().replace(/\s+/g, ' ').slice(0, 80);
  return m;
}
