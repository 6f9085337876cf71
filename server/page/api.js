// SPDX-License-Identifier: MIT
// The server: requests with the key, and streams of events read by hand.
const KEY_NAME = 'moeflux/key';

const key = {
  value: localStorage.getItem(KEY_NAME) || sessionStorage.getItem(KEY_NAME) || '',
  isKept: localStorage.getItem(KEY_NAME) !== null,
  set(value, isKept) {
    this.value = value;
    this.isKept = isKept;
    localStorage.removeItem(KEY_NAME);
    sessionStorage.removeItem(KEY_NAME);
    if (value) (isKept ? localStorage : sessionStorage).setItem(KEY_NAME, value);
  },
};

class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

// Headers carry Latin letters alone; a key that is none is one that no server knows.
const authorization = () => (key.value && /^[\x21-\x7e]+$/.test(key.value) ? {Authorization: 'Bearer ' + key.value} : {});

async function refusalOf(response) {
  let message = '';
  try {
    const body = await response.json();
    message = String((body.error && body.error.message) || '');
  } catch {
    // what is no JSON says nothing
  }
  return new Refused(response.status, message || 'the server answered with status ' + response.status);
}

async function getJson(path, signal) {
  const response = await fetch(path, {headers: authorization(), signal, cache: 'no-store', credentials: 'omit'});
  if (!response.ok) throw await refusalOf(response);
  return response.json();
}

// Lines of an event stream as they come; a line may be cut anywhere between two pieces.
class EventLines {
  constructor() {
    this.rest = '';
    this.data = [];
  }

  // The data of the events that this piece completes.
  take(piece) {
    const done = [];
    const lines = (this.rest + piece).split(/\r\n|\n|\r(?!$)/);
    this.rest = lines.pop();
    for (const line of lines) {
      if (line === '') {
        if (this.data.length > 0) done.push(this.data.join('\n'));
        this.data = [];
      } else if (line.startsWith('data:')) {
        this.data.push(line.slice(line[5] === ' ' ? 6 : 5));
      }
    }
    return done;
  }
}

// Sends body to the chat endpoint and hands each chunk to on(chunk). Ends with the stream; what it
// said of a failure is thrown.
async function streamChat(body, signal, on) {
  const response = await fetch('/v1/chat/completions', {
    method: 'POST', signal, credentials: 'omit', cache: 'no-store',
    headers: {'Content-Type': 'application/json', ...authorization()},
    body: JSON.stringify(body),
  });
  if (!response.ok) throw await refusalOf(response);
  const lines = new EventLines();
  const decoder = new TextDecoder();
  const reader = response.body.getReader();
  let isDone = false;
  for (;;) {
    const {done, value} = await reader.read();
    for (const data of lines.take(done ? decoder.decode() + '\n\n' : decoder.decode(value, {stream: true}))) {
      if (data === '[DONE]') { isDone = true; continue; }
      const chunk = JSON.parse(data);
      if (chunk.error) throw new Refused(500, String(chunk.error.message || 'the answer failed'));
      on(chunk);
    }
    if (done) break;
  }
  if (!isDone) throw new Refused(0, 'the connection ended before the answer did');
}
