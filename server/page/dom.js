// SPDX-License-Identifier: MIT
// Nodes made by hand: whatever text comes from a model, a file or a server goes in as text.
const $ = (id) => document.getElementById(id);

// make('button', {class: 'button', title: '...', on: {click}}, child or text, ...)
function make(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === 'on') {
      for (const [event, handler] of Object.entries(value)) node.addEventListener(event, handler);
    } else if (value === true) {
      node.setAttribute(name, '');
    } else if (value !== false && value !== null && value !== undefined) {
      node.setAttribute(name, value);
    }
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

function icon(name) {
  const space = 'http://www.w3.org/2000/svg';
  const svg = document.createElementNS(space, 'svg');
  const use = document.createElementNS(space, 'use');
  use.setAttribute('href', '#i-' + name);
  svg.setAttribute('class', 'icon');
  svg.setAttribute('aria-hidden', 'true');
  svg.append(use);
  return svg;
}

function iconButton(name, label, click) {
  return make('button', {class: 'button icon-only', type: 'button', 'aria-label': label, title: label, on: {click}},
    icon(name));
}

// Said by a screen reader when it has nothing else to say.
function say(text) {
  $('said').textContent = '';
  setTimeout(() => { $('said').textContent = text; }, 50);
}

function toast(text) {
  const close = iconButton('close', 'Dismiss', () => node.remove());
  const node = make('div', {class: 'toast'}, make('p', null, text), close);
  $('toasts').append(node);
  setTimeout(() => node.remove(), 9000);
}

// A question: resolves to the text of the field (where there is one), to true, or to null.
function ask({title, text, yes, value}) {
  const dialog = $('ask');
  const input = $('ask-input');
  $('ask-title').textContent = title;
  $('ask-text').textContent = text || '';
  $('ask-text').hidden = !text;
  $('ask-field').hidden = value === undefined;
  $('ask-yes').textContent = yes;
  input.value = value || '';
  return new Promise((resolve) => {
    let answer = null;
    const agree = () => { answer = value === undefined ? true : input.value.trim(); dialog.close(); };
    $('ask-yes').onclick = agree;
    $('ask-no').onclick = () => dialog.close();
    input.onkeydown = (event) => {
      if (event.key !== 'Enter' || event.isComposing) return;
      event.preventDefault(); // else it would press what gets the focus back
      agree();
    };
    dialog.onclose = () => resolve(answer);
    dialog.showModal();
    if (value === undefined) $('ask-yes').focus();
    else input.select();
  });
}

async function copyText(text, button, label) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Where the page is not trusted with the clipboard (plain http from elsewhere), by selection.
    const area = make('textarea', {class: 'unseen', 'aria-hidden': 'true'});
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand('copy');
    area.remove();
    button.focus();
    if (!done) return toast('The browser does not let this page copy.');
  }
  const old = button.querySelector('.icon');
  const done = icon('check');
  old.replaceWith(done);
  say(label);
  setTimeout(() => done.replaceWith(old), 1500);
}

function download(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], {type}));
  const link = make('a', {href: url, download: name});
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

function countOf(n, one, many) {
  return n.toLocaleString('en') + ' ' + (n === 1 ? one : many || one + 's');
}

function bytesOf(n) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let i = 0;
  while (n >= 1024 && i < units.length - 1) { n /= 1024; i++; }
  return (n >= 100 || i === 0 ? n.toFixed(0) : n.toFixed(1)) + ' ' + units[i];
}

const newId = () => Array.from(crypto.getRandomValues(new Uint8Array(9)), (b) => b.toString(36).padStart(2, '0')).join('');
