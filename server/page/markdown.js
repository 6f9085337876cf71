// SPDX-License-Identifier: MIT
// Markdown to nodes: headings, lists, tables, quotes, code, emphasis, links. HTML in it is text;
// pictures are links, for nothing is fetched; links lead to http, https and mailto alone. Every
// loop moves forward, and nesting is bounded: whatever a model writes is drawn in bounded time.
const MAX_DEPTH = 12;
const MAX_INLINE = 20000; // characters of a paragraph that are looked at for emphasis and links

/* ---- blocks ---- */

const FENCE = /^ {0,3}(`{3,}(?=[^`]*$)|~{3,})\s*([^\s`]*)/;
const HEADING = /^ {0,3}(#{1,6})(?:\s+(.*?))?(?:\s+#+)?\s*$/;
const RULE = /^ {0,3}(?:(?:\*\s*){3,}|(?:-\s*){3,}|(?:_\s*){3,})$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( *)(?:([-*+])|(\d{1,9})[.)])(?:\s+|$)/;
const DIVIDER = /^ {0,3}\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*$/;
const BLANK = /^\s*$/;

const indentOf = (line) => line.length - line.trimStart().length;
const startsBlock = (line) => FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line);
const isTable = (lines, i) => lines[i].includes('|') && i + 1 < lines.length &&
  lines[i + 1].includes('-') && DIVIDER.test(lines[i + 1]) && cellsOf(lines[i]).length === cellsOf(lines[i + 1]).length;

// Cuts lines into blocks: {kind, lines}. What is in a block is looked at when it is drawn.
function blocksOf(lines) {
  const blocks = [];
  let i = 0;
  while (i < lines.length) {
    if (BLANK.test(lines[i])) { i++; continue; }
    const start = i;
    const kind = kindAt(lines, i);
    i = endOf(kind, lines, i);
    blocks.push({kind, lines: lines.slice(start, i)});
  }
  return blocks;
}

function kindAt(lines, i) {
  const line = lines[i];
  if (FENCE.test(line)) return 'fence';
  if (HEADING.test(line)) return 'heading';
  if (RULE.test(line)) return 'rule';
  if (QUOTE.test(line)) return 'quote';
  if (ITEM.test(line)) return 'list';
  if (isTable(lines, i)) return 'table';
  return 'text';
}

function endOf(kind, lines, i) {
  if (kind === 'heading' || kind === 'rule') return i + 1;
  if (kind === 'fence') return endOfFence(lines, i);
  if (kind === 'list') return endOfList(lines, i);
  if (kind === 'table') {
    i += 2;
    while (i < lines.length && lines[i].includes('|') && !startsBlock(lines[i])) i++;
    return i;
  }
  if (kind === 'quote') {
    while (i < lines.length && (QUOTE.test(lines[i]) || (!BLANK.test(lines[i]) && !startsBlock(lines[i]) && !ITEM.test(lines[i])))) i++;
    return i;
  }
  i++;
  while (i < lines.length && !BLANK.test(lines[i]) && !startsBlock(lines[i]) && !ITEM.test(lines[i]) && !isTable(lines, i)) i++;
  return i;
}

function endOfFence(lines, i) {
  const mark = FENCE.exec(lines[i])[1];
  for (i++; i < lines.length; i++) {
    const text = lines[i].trim();
    if (text.length >= mark.length && indentOf(lines[i]) < 4 && text === mark[0].repeat(text.length)) return i + 1;
  }
  return i;
}

// A list goes on over blank lines as long as items or what is indented below them follow.
function endOfList(lines, i) {
  const first = ITEM.exec(lines[i]);
  const isOrdered = first[3] !== undefined;
  const base = first[1].length;
  let inFence = null;
  for (i++; i < lines.length; i++) {
    const line = lines[i];
    const fence = FENCE.exec(line.trimStart());
    if (inFence) {
      if (fence && line.trim() === fence[1] && fence[1].startsWith(inFence)) inFence = null;
      continue;
    }
    if (BLANK.test(line)) {
      const next = lines[i + 1];
      if (next === undefined || BLANK.test(next)) { if (next === undefined) return i; continue; }
      if (indentOf(next) <= base && !isSameList(next, isOrdered, base)) return i;
      continue;
    }
    if (isSameList(line, isOrdered, base) || indentOf(line) > base) {
      if (fence) inFence = fence[1];
      continue;
    }
    if (startsBlock(line) || ITEM.test(line)) return i;
  }
  return i;
}

function isSameList(line, isOrdered, base) {
  const item = ITEM.exec(line);
  return item !== null && !RULE.test(line) && (item[3] !== undefined) === isOrdered && item[1].length >= base;
}

function cellsOf(line) {
  const cells = [];
  let cell = '';
  let text = line.trim();
  if (text.startsWith('|')) text = text.slice(1);
  if (text.endsWith('|') && !text.endsWith('\\|')) text = text.slice(0, -1);
  for (let i = 0; i < text.length; i++) {
    if (text[i] === '\\' && text[i + 1] === '|') { cell += '|'; i++; }
    else if (text[i] === '|') { cells.push(cell.trim()); cell = ''; }
    else cell += text[i];
  }
  cells.push(cell.trim());
  return cells;
}

/* ---- blocks to nodes ---- */

function drawBlock(block, depth) {
  const {kind, lines} = block;
  if (kind === 'fence') return drawFence(lines);
  if (kind === 'heading') {
    const [, marks, text] = HEADING.exec(lines[0]);
    // The page has headings of its own above: an answer's begin below them.
    const node = make('h' + Math.min(6, marks.length + 2), {class: 'h' + marks.length});
    drawInline(node, text || '', depth);
    return node;
  }
  if (kind === 'rule') return make('hr');
  if (kind === 'quote' && depth < MAX_DEPTH)
    return make('blockquote', null, ...drawBlocks(lines.map((line) => line.replace(QUOTE, '')), depth + 1));
  if (kind === 'list' && depth < MAX_DEPTH) return drawList(lines, depth);
  if (kind === 'table') return drawTable(lines, depth);
  const node = make('p');
  drawInline(node, lines.map((line) => line.trimStart()).join('\n').trimEnd(), depth);
  return node;
}

const drawBlocks = (lines, depth) => blocksOf(lines).map((block) => drawBlock(block, depth));

function drawFence(lines) {
  const [, mark, language] = FENCE.exec(lines[0]);
  const last = lines[lines.length - 1].trim();
  const isClosed = lines.length > 1 && last.length >= mark.length && last === mark[0].repeat(last.length);
  const indent = indentOf(lines[0]);
  const text = lines.slice(1, isClosed ? -1 : undefined)
    .map((line) => line.slice(Math.min(indent, indentOf(line)))).join('\n');
  return codeNode(text, language);
}

function codeNode(text, language) {
  const code = make('code');
  drawCode(code, text, language.toLowerCase());
  const copy = make('button', {class: 'button', type: 'button'}, icon('copy'), 'Copy');
  copy.addEventListener('click', () => copyText(text, copy, 'Copied'));
  return make('div', {class: 'code'},
    make('div', {class: 'code-head'}, make('span', null, language.slice(0, 40) || 'text'), copy),
    make('pre', {tabindex: '0', 'aria-label': language ? 'Code, ' + language.slice(0, 40) : 'Code', role: 'region'}, code));
}

function drawList(lines, depth) {
  const first = ITEM.exec(lines[0]);
  const base = first[1].length;
  const isOrdered = first[3] !== undefined;
  const list = make(isOrdered ? 'ol' : 'ul', isOrdered && first[3] !== '1' ? {start: Number(first[3])} : null);
  let item = null;
  let content = 0;
  const flush = () => { if (item) list.append(drawItem(item, depth)); };
  for (const line of lines) {
    const match = ITEM.exec(line);
    if (match && match[1].length <= base + (item ? Math.max(0, content - base - 1) : 0) && !RULE.test(line)) {
      flush();
      content = match[0].trimEnd().length + 1;
      item = [line.slice(match[0].length)];
    } else {
      item.push(line.slice(Math.min(content, indentOf(line))));
    }
  }
  flush();
  return list;
}

function drawItem(lines, depth) {
  const task = /^\[([ xX])\]\s+/.exec(lines[0]);
  if (task) lines = [lines[0].slice(task[0].length), ...lines.slice(1)];
  const node = make('li', task ? {class: 'task'} : null);
  if (task) {
    const done = task[1] !== ' ';
    node.append(make('input', {type: 'checkbox', disabled: true, checked: done, 'aria-label': done ? 'done' : 'to do'}));
  }
  const isLoose = lines.some((line, i) => i > 0 && i < lines.length - 1 && BLANK.test(line));
  blocksOf(lines).forEach((block) => {
    const child = drawBlock(block, depth + 1);
    if (block.kind === 'text' && !isLoose) node.append(...child.childNodes);
    else node.append(child);
  });
  return node;
}

function drawTable(lines, depth) {
  const classes = cellsOf(lines[1]).map((cell) =>
    cell.endsWith(':') ? (cell.startsWith(':') ? 't-center' : 't-right') : null);
  const row = (line, tag) => {
    const cells = cellsOf(line);
    return make('tr', null, ...classes.map((name, i) => {
      const cell = make(tag, {class: name, scope: tag === 'th' ? 'col' : null});
      drawInline(cell, cells[i] || '', depth);
      return cell;
    }));
  };
  return make('div', {class: 'table-frame', tabindex: '0', role: 'region', 'aria-label': 'Table'},
    make('table', null, make('thead', null, row(lines[0], 'th')),
      make('tbody', null, ...lines.slice(2).map((line) => row(line, 'td')))));
}

/* ---- within a line ---- */

const SAFE_LINK = /^(?:https?:\/\/[^\s]|mailto:[^\s])/i;
const PUNCTUATION = /[!-/:-@[-`{-~]/;

// href, or null where it leads anywhere else.
function safeHref(text) {
  if (!SAFE_LINK.test(text)) return null;
  try {
    const url = new URL(text);
    return ['http:', 'https:', 'mailto:'].includes(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

function linkNode(href) {
  return make('a', {href, rel: 'noopener noreferrer nofollow', target: '_blank'});
}

function drawInline(node, text, depth) {
  if (text.length > MAX_INLINE) {
    drawInline(node, text.slice(0, MAX_INLINE), depth);
    node.append(text.slice(MAX_INLINE));
    return;
  }
  const state = {text, at: 0, plain: '', node, missing: new Set()};
  const flush = () => { if (state.plain) node.append(state.plain); state.plain = ''; };
  while (state.at < text.length) {
    const made = inlineAt(state, depth);
    if (made) { flush(); node.append(made); }
    else state.plain += text[state.at++];
  }
  flush();
}

// The node that begins here, with state.at behind it; or null.
function inlineAt(state, depth) {
  const {text, at} = state;
  const c = text[at];
  if (c === '\\') return escapeAt(state);
  if (c === '\n') return breakAt(state);
  if (c === '`') return codeAt(state);
  if (depth < MAX_DEPTH) {
    if (c === '*' || c === '_' || c === '~') return emphasisAt(state, depth);
    if (c === '[' || (c === '!' && text[at + 1] === '[')) return linkAt(state, depth);
  }
  if (c === '<') return autolinkAt(state);
  if (c === 'h' && (at === 0 || !/\w/.test(text[at - 1]))) return addressAt(state);
  return null;
}

function escapeAt(state) {
  const next = state.text[state.at + 1];
  if (next === '\n') { state.at += 2; return make('br'); }
  if (next === undefined || !PUNCTUATION.test(next)) return null;
  state.at += 2;
  return document.createTextNode(next);
}

function breakAt(state) {
  if (!state.plain.endsWith('  ')) return null;
  state.plain = state.plain.trimEnd();
  state.at++;
  return make('br');
}

function codeAt(state) {
  const {text, at} = state;
  let n = 1;
  while (text[at + n] === '`') n++;
  const key = '`' + n;
  let end = state.missing.has(key) ? -1 : at + n;
  while (end !== -1) {
    end = text.indexOf('`'.repeat(n), end);
    if (end === -1) break;
    let m = n;
    while (text[end + m] === '`') m++;
    if (m === n) break;
    end += m;
  }
  if (end === -1) {
    state.missing.add(key);
    state.at += n;
    return document.createTextNode('`'.repeat(n));
  }
  let inner = text.slice(at + n, end).replace(/\n/g, ' ');
  if (inner.length > 2 && inner.startsWith(' ') && inner.endsWith(' ')) inner = inner.slice(1, -1);
  state.at = end + n;
  return make('code', null, inner);
}

const isWordEdge = (c) => c === undefined || !/[\p{L}\p{N}]/u.test(c);

function emphasisAt(state, depth) {
  const {text, at} = state;
  const c = text[at];
  let n = 1;
  while (text[at + n] === c) n++;
  const skip = () => { state.at += n; return document.createTextNode(c.repeat(n)); };
  const wanted = c === '~' ? 2 : Math.min(n, 3);
  if ((c === '~' && n !== 2) || n > 3) return skip();
  if (text[at + n] === undefined || /\s/.test(text[at + n]) || (c === '_' && !isWordEdge(text[at - 1]))) return skip();
  const mark = c.repeat(wanted);
  if (state.missing.has(mark)) return skip();
  let end = at + n;
  for (;;) {
    end = text.indexOf(mark, end);
    if (end === -1) { state.missing.add(mark); return skip(); }
    let m = wanted;
    while (text[end + m] === c) m++;
    const closes = m === wanted && !/\s/.test(text[end - 1]) && text[end - 1] !== '\\' && (c !== '_' || isWordEdge(text[end + m]));
    if (closes) break;
    end += m;
  }
  const inner = text.slice(at + n, end);
  const node = wanted === 1 ? make('em') : c === '~' ? make('del') : make('strong');
  if (wanted === 3) {
    const em = make('em');
    drawInline(em, inner, depth + 1);
    node.append(em);
  } else {
    drawInline(node, inner, depth + 1);
  }
  state.at = end + wanted;
  return node;
}

// [text](target "title"), and pictures as links to them.
function linkAt(state, depth) {
  const {text, at} = state;
  const isPicture = text[at] === '!';
  const open = at + (isPicture ? 1 : 0);
  let level = 0;
  let close = open;
  if (state.missing.has('[')) return null;
  for (; close < text.length && close - open < 1000; close++) {
    if (text[close] === '\\') close++;
    else if (text[close] === '[') level++;
    else if (text[close] === ']' && --level === 0) break;
  }
  if (text[close] !== ']') { if (close >= text.length) state.missing.add('['); return null; }
  const rest = /^\(\s*(?:<([^<>\n]*)>|([^\s()<>]*(?:\([^\s()<>]*\)[^\s()<>]*)*))(?:\s+(?:"[^"]*"|'[^']*'))?\s*\)/
    .exec(text.slice(close + 1, close + 2100));
  if (!rest) return null;
  const label = text.slice(open + 1, close);
  const href = safeHref(rest[1] !== undefined ? rest[1] : rest[2]);
  const node = href ? linkNode(href) : make('span');
  drawInline(node, label || (isPicture ? 'picture' : ''), href ? MAX_DEPTH - 1 : depth + 1);
  if (!node.firstChild) node.append(href || '');
  state.at = close + 1 + rest[0].length;
  return node;
}

function autolinkAt(state) {
  const match = /^<((?:https?:\/\/|mailto:)[^\s<>]{1,2000})>/i.exec(state.text.slice(state.at, state.at + 2020));
  const href = match && safeHref(match[1]);
  if (!href) return null;
  const node = linkNode(href);
  node.append(match[1]);
  state.at += match[0].length;
  return node;
}

function addressAt(state) {
  const match = /^https?:\/\/[^\s<>"`]{1,2000}/i.exec(state.text.slice(state.at, state.at + 2010));
  if (!match) return null;
  let found = match[0].replace(/[.,;:!?'*_~]+$/, '');
  while (found.endsWith(')') && found.split(')').length > found.split('(').length) found = found.slice(0, -1);
  const href = safeHref(found);
  if (!href) return null;
  const node = linkNode(href);
  node.append(found);
  state.at += found.length;
  return node;
}

/* ---- code ---- */

const WORDS = new Set(('abstract and as assert async await bool boolean break case catch char class const constexpr ' +
  'continue def default defer del delete do double elif else enum except export extends extern false False finally ' +
  'float fn for from func function global go if impl implements import in inline int interface is lambda let long ' +
  'loop match mod module mut namespace new nil None not null nullptr or override package pass private protected pub ' +
  'public raise return self short signed sizeof static string struct super switch template this throw trait true ' +
  'True try type typedef typename typeof undefined union unsigned use using val var virtual void volatile where ' +
  'while with yield select insert update into values create table primary key order by group limit join on ' +
  'then fi done esac echo local').split(' '));
const HASHES = /^(?:py|python|sh|bash|shell|zsh|ruby|rb|yaml|yml|toml|perl|r|make|makefile|cmake|dockerfile|ini|conf)$/;
const DASHES = /^(?:sql|lua|haskell|hs)$/;
const PLAIN = /^(?:|text|txt|plain|markdown|md|diff|csv|log|output)$/;

// Coloured by what most languages have in common.
function drawCode(node, text, language) {
  if (PLAIN.test(language) || text.length > 50000) return node.append(text);
  const note = HASHES.test(language) ? '#[^\\n]*' : DASHES.test(language) ? '--[^\\n]*' : '\\/\\/[^\\n]*|\\/\\*[^]*?(?:\\*\\/|$)';
  const parts = new RegExp(`(${note})|("(?:[^"\\\\\\n]|\\\\.)*"?|'(?:[^'\\\\\\n]|\\\\.)*'?|\`(?:[^\`\\\\]|\\\\.)*\`?)|` +
    '(\\b\\d[\\w.]*\\b)|([A-Za-z_$][\\w$]*)', 'g');
  let at = 0;
  for (const match of text.matchAll(parts)) {
    const kind = match[1] !== undefined ? 'c-c' : match[2] !== undefined ? 'c-s' : match[3] !== undefined ? 'c-n' :
      WORDS.has(match[4]) ? 'c-k' : null;
    if (!kind) continue;
    if (match.index > at) node.append(text.slice(at, match.index));
    node.append(make('span', {class: kind}, match[0]));
    at = match.index + match[0].length;
  }
  node.append(text.slice(at));
}

/* ---- a text that grows ---- */

// Draws into node; blocks that are as they were stay, with what is selected in them.
class MarkdownView {
  constructor(node) {
    this.node = node;
    this.keys = [];
  }

  show(text) {
    const blocks = blocksOf(text.replace(/\r\n?/g, '\n').replace(/\t/g, '    ').split('\n'));
    const keys = blocks.map((block) => block.kind + '\n' + block.lines.join('\n'));
    let same = 0;
    while (same < keys.length && keys[same] === this.keys[same]) same++;
    while (this.node.childNodes.length > same) this.node.lastChild.remove();
    this.node.append(...blocks.slice(same).map((block) => drawBlock(block, 0)));
    this.keys = keys;
  }
}
