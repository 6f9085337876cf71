# SPDX-License-Identifier: MIT
"""What a page owes to those who do not see it, or not well, as a script that runs in it: a list of what is amiss. Names of
controls, labels of fields, ids that are there once, headings in order, contrast of text (4.5, large 3) and of the edges of
fields (3), sizes of what is touched."""

AUDIT = r"""
(() => {
  const problems = [];
  const say = (node, what) => problems.push(`${what}: ${node.outerHTML.slice(0, 140)}`);
  const dialog = document.querySelector('dialog[open]');
  const root = dialog || document.body;
  const isShown = (node) => {
    if (!node.checkVisibility({visibilityProperty: true, opacityProperty: true, contentVisibilityAuto: true})) return false;
    const box = node.getBoundingClientRect();
    if (box.width < 1.5 || box.height < 1.5) return false;
    if (!dialog && node.closest('dialog')) return false;
    return !node.closest('[inert]') && !node.closest('[aria-hidden="true"]');
  };
  const nameOf = (node) => {
    const by = node.getAttribute('aria-labelledby');
    if (by) return by.split(/\s+/).map((id) => (document.getElementById(id) || {}).textContent || '').join(' ').trim();
    if (node.getAttribute('aria-label')) return node.getAttribute('aria-label').trim();
    if (node.labels && node.labels.length) return node.labels[0].textContent.trim();
    return node.textContent.trim();
  };

  // names, roles, ids
  for (const node of root.querySelectorAll('button, a[href], input, select, textarea, summary, [role="region"], [role="img"], nav, aside, dialog'))
    if (isShown(node) && !nameOf(node)) say(node, 'no name');
  const ids = new Map();
  for (const node of document.querySelectorAll('[id]')) ids.set(node.id, (ids.get(node.id) || 0) + 1);
  for (const [id, n] of ids) if (n > 1) problems.push(`the id ${id} is there ${n} times`);
  for (const name of ['aria-labelledby', 'aria-describedby', 'aria-controls', 'for'])
    for (const node of document.querySelectorAll(`[${name}]`))
      for (const id of node.getAttribute(name).split(/\s+/)) if (!ids.has(id)) say(node, `${name} names nothing`);
  if (document.querySelectorAll('main').length !== 1) problems.push('not one main');
  if (document.querySelectorAll('h1').length !== 1) problems.push('not one h1');
  if (!document.documentElement.lang) problems.push('no language');
  for (const node of document.querySelectorAll('[tabindex]')) if (node.tabIndex > 0) say(node, 'an order of its own');
  for (const list of root.querySelectorAll('ul, ol'))
    for (const child of list.children) if (child.tagName !== 'LI') say(child, 'in a list and no item');
  for (const node of root.querySelectorAll('button button, a button, button a')) say(node, 'a control in a control');

  // what scrolls can be reached
  for (const node of root.querySelectorAll('pre, .table-frame'))
    if (isShown(node) && node.scrollWidth > node.clientWidth + 1 && getComputedStyle(node).overflowX !== 'visible' && node.tabIndex < 0)
      say(node, 'scrolls, and the keyboard does not reach it');

  // contrast
  const parse = (text) => {
    const n = text.match(/[\d.]+/g).map(Number);
    return text.startsWith('color(') ? [n[0] * 255, n[1] * 255, n[2] * 255, n[3] === undefined ? 1 : n[3]]
      : [n[0], n[1], n[2], n[3] === undefined ? 1 : n[3]];
  };
  const over = (top, below) => [0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3]));
  const light = (c) => {
    const [r, g, b] = c.map((v) => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratio = (a, b) => { const x = light(a), y = light(b); return (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05); };
  const behind = (node) => {
    const layers = [];
    for (let n = node; n; n = n.parentElement) {
      const colour = parse(getComputedStyle(n).backgroundColor);
      if (colour[3] > 0) layers.push(colour);
      if (colour[3] === 1) break;
    }
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255]);
  };
  const seen = new Set();
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || seen.has(node) || !isShown(node)) continue;
    seen.add(node);
    if (node.closest(':disabled, script, style, title')) continue;
    const style = getComputedStyle(node);
    const size = parseFloat(style.fontSize);
    const isLarge = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    const ground = behind(node);
    const value = ratio(over(parse(style.color), ground), ground);
    if (value < (isLarge ? 3 : 4.5)) say(node, `contrast ${value.toFixed(2)}`);
    if (size < 12) say(node, `type of ${size} px`);
  }
  for (const node of root.querySelectorAll('input:not([type="checkbox"]):not([type="file"]), select, textarea')) {
    if (!isShown(node)) continue;
    const box = node.id === 'input' ? node.parentElement : node;
    const edge = parse(getComputedStyle(box).borderTopColor);
    const ground = behind(box.parentElement);
    if (ratio(over(edge, ground), ground) < 3) say(node, 'an edge that is hard to see');
    if (node.placeholder) {
      const colour = parse(getComputedStyle(node, '::placeholder').color);
      if (ratio(over(colour, behind(node)), behind(node)) < 4.5) say(node, 'a placeholder that is hard to read');
    }
  }

  // what is touched
  for (const node of root.querySelectorAll('button, input:not([type="checkbox"]), select, summary')) {
    if (!isShown(node)) continue;
    const box = node.getBoundingClientRect();
    if (box.width < 24 || box.height < 24) say(node, `${box.width.toFixed(0)} by ${box.height.toFixed(0)} px`);
    if (box.right > innerWidth + 1 && !node.closest('.table-frame, pre')) say(node, 'beyond the edge');
  }
  return problems;
})()
"""
