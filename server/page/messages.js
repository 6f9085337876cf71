// SPDX-License-Identifier: MIT
// Messages as they are shown.

// What a view may ask for: {edit(message, text), again(message), version(message), results(message, texts)}.
class MessageView {
  constructor(conversation, message, actions) {
    this.conversation = conversation;
    this.message = message;
    this.actions = actions;
    this.isRunning = false;
    const isUser = message.role === 'user';
    if (message.role === 'tool') return this.addResult();
    this.content = make('div', {class: isUser ? 'content' : 'content markdown'});
    this.tools = make('div', {class: 'tools'});
    this.node = make('article', {class: 'message ' + message.role, 'data-id': message.id},
      make('h2', {class: 'unseen'}, isUser ? 'You' : 'Answer'));
    if (!isUser) this.addParts();
    this.node.append(this.content);
    if (!isUser) this.node.append(this.calls, this.failure);
    this.node.append(this.tools);
    this.update();
    this.showTools();
  }

  // What a call came to.
  addResult() {
    const m = this.message;
    this.update = this.showTools = () => {};
    this.node = make('article', {class: 'message tool', 'data-id': m.id}, make('h2', {class: 'unseen'}, 'Result'),
      make('details', {class: 'call', open: m.content.length < 400},
        make('summary', null, icon('tool'), 'Result of ', make('code', null, m.name)), make('pre', null, m.content)));
  }

  addParts() {
    this.markdown = new MarkdownView(this.content);
    const thought = make('div', {class: 'thought markdown'});
    this.thoughtView = new MarkdownView(thought);
    this.summary = make('summary');
    this.thoughts = make('details', {class: 'thoughts', hidden: true}, this.summary, thought);
    this.calls = make('div');
    this.failure = make('div', {class: 'failure', hidden: true});
    this.waiting = make('p', {class: 'waiting', hidden: true}, 'Reading the prompt');
    this.node.append(this.thoughts, this.waiting);
  }

  // What the message says now.
  update() {
    const m = this.message;
    if (m.role === 'user') {
      this.content.textContent = m.content;
      return;
    }
    const isThinking = this.isRunning && !m.content && Boolean(m.thoughts) && !m.calls;
    this.thoughts.hidden = !m.thoughts;
    this.summary.textContent = isThinking ? 'Thinking …' : 'Thoughts';
    if (m.thoughts && (this.thoughts.open || !this.isRunning || !this.hasOpened)) this.thoughtView.show(m.thoughts);
    if (!this.hasOpened) {
      this.hasOpened = true; // drawn when it is opened, from now on
      this.thoughts.addEventListener('toggle', () => this.message.thoughts && this.thoughtView.show(this.message.thoughts));
    }
    this.markdown.show(m.content);
    this.showCalls();
    this.waiting.hidden = !this.isRunning || Boolean(m.content || m.thoughts || m.calls);
    this.failure.hidden = !m.failure;
    this.failure.textContent = m.failure || '';
    this.node.setAttribute('aria-busy', String(this.isRunning));
  }

  showCalls() {
    (this.message.calls || []).forEach((call, i) => {
      let node = this.calls.children[i];
      if (!node) {
        node = make('details', {class: 'call', open: true}, make('summary', null, icon('tool'), 'Calls ', make('code')), make('pre'));
        this.calls.append(node);
      }
      node.querySelector('code').textContent = call.name;
      node.querySelector('pre').textContent = prettyJson(call.arguments);
    });
  }

  // The row below: what can be done with the message, and how it came to be.
  showTools() {
    const m = this.message;
    this.tools.replaceChildren();
    this.tools.hidden = this.isRunning;
    if (this.isRunning) return;
    const copy = iconButton('copy', 'Copy this text', () => copyText(m.content, copy, 'Copied'));
    this.tools.append(copy);
    if (m.role === 'user') this.tools.append(iconButton('edit', 'Edit this message and send it again', () => this.edit()));
    else this.tools.append(iconButton('again', 'Make this answer again', () => this.actions.again(m)));
    this.showResults();
    this.showVersions();
    const meta = metaText(m);
    if (meta) this.tools.append(make('span', {class: 'meta'}, meta));
  }

  // Fields for the results of the calls, where they are what comes next.
  showResults() {
    const m = this.message;
    for (const field of this.node.querySelectorAll('.result')) field.remove();
    if (!m.calls || m.id !== this.conversation.leaf) return;
    const areas = m.calls.map((call, i) => {
      const area = make('textarea', {rows: '2', placeholder: 'Its result', 'aria-label': 'Result of ' + call.name, spellcheck: 'false'});
      this.calls.children[i].append(make('div', {class: 'result'}, area));
      return area;
    });
    const send = () => this.actions.results(m, areas.map((area) => area.value));
    this.calls.append(make('div', {class: 'result'},
      make('button', {class: 'button strong', type: 'button', on: {click: send}}, areas.length > 1 ? 'Send the results' : 'Send the result')));
  }

  showVersions() {
    const versions = siblingsOf(this.conversation, this.message);
    this.node.classList.toggle('has-versions', versions.length > 1);
    if (versions.length < 2) return;
    const at = versions.indexOf(this.message);
    const go = (name, label, to) => {
      const button = iconButton(name, label, () => this.actions.version(versions[to]));
      button.disabled = to < 0 || to >= versions.length;
      return button;
    };
    this.tools.append(make('span', {class: 'versions', role: 'group', 'aria-label': 'Versions'},
      go('left', 'The version before', at - 1), `${at + 1} / ${versions.length}`, go('right', 'The version after', at + 1)));
  }

  edit() {
    const area = make('textarea', {'aria-label': 'Edit the message'});
    const close = () => { box.replaceWith(this.content); this.tools.hidden = false; };
    const cancel = () => { close(); this.tools.querySelectorAll('button')[1].focus(); };
    const save = () => {
      const text = area.value.trim();
      if (!text) return;
      close();
      this.actions.edit(this.message, text);
    };
    const box = make('div', {class: 'edit'}, area, make('div', {class: 'edit-actions'},
      make('button', {class: 'button quiet', type: 'button', on: {click: cancel}}, 'Cancel'),
      make('button', {class: 'button strong', type: 'button', on: {click: save}}, 'Send again')));
    area.value = this.message.content;
    area.addEventListener('keydown', (event) => {
      if (event.key === 'Escape') { event.stopPropagation(); cancel(); }
      if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) { event.preventDefault(); save(); }
    });
    this.content.replaceWith(box);
    this.tools.hidden = true;
    area.focus();
    area.style.height = Math.min(area.scrollHeight + 4, 420) + 'px';
  }
}

function prettyJson(text) {
  try {
    const value = JSON.parse(text);
    const short = JSON.stringify(value, null, 1).replace(/\n\s*/g, ' ');
    return short.length <= 72 ? short : JSON.stringify(value, null, 2);
  } catch {
    return text;
  }
}

function metaText(m) {
  const meta = m.meta || {};
  const parts = [];
  if (meta.finish === 'stopped') parts.push('stopped');
  if (meta.finish === 'length') parts.push('cut at its limit');
  if (meta.tokens > 0) parts.push(countOf(meta.tokens, 'token'));
  if (meta.tokens > 1 && meta.seconds > 0) parts.push(((meta.tokens - 1) / meta.seconds).toFixed(1) + ' tokens/s');
  if (meta.first > 0.05 && m.role === 'assistant') parts.push('first after ' + (meta.first < 9.95 ? meta.first.toFixed(1) : meta.first.toFixed(0)) + ' s');
  return parts.join(' · ');
}
