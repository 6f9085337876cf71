// SPDX-License-Identifier: MIT
// Conversations out to files, and in from them.
const FORMAT = 'moeflux conversations';
const MAX_FILE_BYTES = 32 << 20;

const fileName = (title) => (title.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, '-').replace(/^-+|-+$/g, '').slice(0, 60) || 'conversation');

function exportJson(list, name) {
  download(name + '.json', 'application/json', JSON.stringify({format: FORMAT, version: 1, conversations: list}, null, 1) + '\n');
}

// As many backticks as nothing in the text has.
function fenced(text, language) {
  const longest = Math.max(2, ...(text.match(/`+/g) || []).map((run) => run.length));
  const fence = '`'.repeat(longest + 1);
  return `${fence}${language}\n${text}\n${fence}`;
}

function markdownOf(c) {
  const parts = ['# ' + (c.title || 'Conversation')];
  for (const m of pathOf(c)) {
    parts.push('## ' + (m.role === 'user' ? 'You' : m.role === 'tool' ? `Result of \`${m.name}\`` : m.meta && m.meta.model ? m.meta.model : 'Answer'));
    if (m.thoughts) parts.push('<details><summary>Thoughts</summary>\n\n' + m.thoughts.trim() + '\n\n</details>');
    if (m.content) parts.push(m.role === 'tool' ? fenced(m.content, '') : m.content.trim());
    for (const call of m.calls || []) parts.push(`Calls \`${call.name}\`:`, fenced(prettyJson(call.arguments), 'json'));
    if (m.failure) parts.push('*' + m.failure + '*');
  }
  return parts.join('\n\n') + '\n';
}

// Messages as the API has them, one after another.
function fromApiMessages(messages) {
  const c = conversations.create();
  for (const m of messages) {
    if (!m || !ROLES.includes(m.role)) continue;
    const content = Array.isArray(m.content) ? m.content.map((part) => textOr(part && part.text, '')).join('') : textOr(m.content, '');
    const added = addMessage(c, c.leaf, m.role, content);
    if (m.role === 'tool') Object.assign(added, {call: textOr(m.tool_call_id, ''), name: textOr(m.name, '')});
    if (isText(m.reasoning_content)) added.thoughts = m.reasoning_content;
    if (Array.isArray(m.tool_calls))
      added.calls = m.tool_calls.slice(0, 128).map((call) => checkedCall({id: call && call.id, ...(call && call.function)}));
  }
  return c;
}

// The conversations of a file: ours, or messages of the API.
function conversationsOf(data) {
  const list = data && Array.isArray(data.conversations) ? data.conversations : [data];
  const out = [];
  for (const item of list.slice(0, MAX_CONVERSATIONS)) {
    const messages = Array.isArray(item) ? item : item && item.messages;
    if (!Array.isArray(messages)) continue;
    const isOurs = messages.every((m) => m && isText(m.id));
    const c = isOurs ? checkedConversation(item) : fromApiMessages(messages);
    if (c && c.messages.length > 0) {
      if (!isOurs && item && isText(item.title)) c.title = item.title.slice(0, 200);
      out.push(c);
    }
  }
  return out;
}

async function importFile(file) {
  if (file.size > MAX_FILE_BYTES) return toast('That file is larger than 32 MiB.');
  let found = [];
  try {
    found = conversationsOf(JSON.parse(await file.text()));
  } catch {
    return toast(`${file.name} is not JSON.`);
  }
  if (found.length === 0) return toast(`${file.name} has no conversations.`);
  for (const c of found) {
    if (conversations.all.has(c.id)) c.id = newId(); // beside what is there
    conversations.save(c);
  }
  openConversation(found[0]);
  say(countOf(found.length, 'conversation') + ' imported');
}

function initTransfer() {
  const file = $('file');
  $('import').addEventListener('click', () => file.click());
  file.addEventListener('change', () => {
    if (file.files[0]) importFile(file.files[0]);
    file.value = '';
  });
  $('export-all').addEventListener('click', () => exportJson(conversations.sorted(), 'moeflux-conversations'));
  const exports = {
    json: () => exportJson([chat.current], fileName(chat.current.title)),
    markdown: () => download(fileName(chat.current.title) + '.md', 'text/markdown', markdownOf(chat.current)),
  };
  for (const button of document.querySelectorAll('[data-export]'))
    button.addEventListener('click', exports[button.dataset.export]);
}
