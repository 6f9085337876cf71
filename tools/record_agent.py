#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Between an agent and `moeflux serve`: writes down what they say to each other, and gives the
model its lines, so that a small model without wit keeps a real agent going.

    record_agent.py --server URL --lines LINES.json --log OUT.jsonl -- COMMAND...

COMMAND is run with {url} in its arguments replaced by the proxy's address; OPENAI_BASE_URL,
OPENAI_API_BASE and ANTHROPIC_BASE_URL say it, too. Requests pass as they are, but that those for an
answer get a field more, a `grammar` of one text: the next line. LINES.json: a list of objects with
`text`, `thought` and `calls` ([[NAME, ARGUMENTS], ...]), taken in order by requests whose tools are
those that the line calls (a line without calls: by any that has tools, or does not need them:
`"any": true`); requests that no line fits (titles, summaries) get `ASIDE`. Lines are written as Hermes
templates write them. Where a request itself says what form its answer has (a tool that must be called, a
schema) the model says what comes to it, and the line is "".

OUT.jsonl: a line for each request: `method`, `path`, `headers` (those that a server may look at),
`body` as it came, `line` (what the model was made to say, null where nothing), `status`, and `answer`,
the text of the server's answer. tools/trim_agent_log.py makes a test's data of it.
"""
import argparse
import http.client
import http.server
import json
import os
import subprocess
import sys
import threading
import urllib.parse

ASIDE = "Once upon a time"
ANSWERED = ("/chat/completions", "/responses", "/messages")
KEPT_HEADERS = ("accept", "anthropic-version", "anthropic-beta", "content-encoding", "content-type",
                "openai-beta", "originator", "user-agent", "x-app", "x-stainless-lang")


def line_text(line):
    """What the model says, in the form that tests/text/data/jinja/hermes.jinja shows it."""
    text = f"<think>\n{line['thought']}\n</think>\n\n" if line.get("thought") else ""
    text += line.get("text", "")
    for name, arguments in line.get("calls", []):
        call = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
        text += ("\n" if text and not text.endswith("\n") else "") + f"<tool_call>\n{call}\n</tool_call>"
    return text


def gbnf(text):
    escaped = "".join(f"\\x{ord(c):02X}" if ord(c) < 32 or c in '"\\' else c for c in text)
    return f'root ::= "{escaped}"'


def tool_names(body):
    """Of a request: the names that its tools may be called by, groups' tools included."""
    names = set()
    for tool in body.get("tools") or body.get("functions") or []:
        inner = tool.get("function") or tool.get("custom") or tool
        names.add(inner.get("name"))
        names.update(t.get("name") for t in tool.get("tools") or [])
    return names


def has_form(body):
    """Whether the request holds its answer to a form, which excludes a line."""
    choice = body.get("tool_choice")
    kind = choice.get("type") if isinstance(choice, dict) else choice
    formats = [body.get("response_format"), (body.get("text") or {}).get("format"),
               (body.get("output_config") or {}).get("format"), body.get("output_format")]
    return kind not in (None, "auto", "none") or any(f and f.get("type") != "text" for f in formats)


class Lines:
    def __init__(self, lines):
        self.lines, self.lock = list(lines), threading.Lock()

    def next(self, body):
        """The line for this request: its text."""
        with self.lock:
            names = tool_names(body)
            if self.lines:
                line = self.lines[0]
                called = {name for name, _ in line.get("calls", [])}
                if line.get("any") or (names and called <= names):
                    self.lines.pop(0)
                    return line_text(line)
            return ASIDE


class Log:
    def __init__(self, path):
        self.file, self.lock = open(path, "w", encoding="utf-8"), threading.Lock()

    def write(self, record):
        with self.lock:
            self.file.write(json.dumps(record, ensure_ascii=False) + "\n")
            self.file.flush()


def handler(server, lines, log, is_quiet=False):
    """The proxy's. log: has write(record)."""
    target = urllib.parse.urlsplit(server)

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def handle(self):
            try:
                super().handle()
            except ConnectionResetError:  # instead of another request
                pass

        def pass_on(self):
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.headers.get("Transfer-Encoding"):
                body = self.read_chunks()
            record = {"method": self.command, "path": self.path, "line": None,
                      "headers": {k.lower(): v for k, v in self.headers.items()
                                  if k.lower() in KEPT_HEADERS},
                      "body": body.decode("utf-8", "replace") if body else None}
            path = urllib.parse.urlsplit(self.path).path.rstrip("/")
            if self.command == "POST" and path.endswith(ANSWERED) and body:
                asked = json.loads(body)
                record["line"] = "" if has_form(asked) else lines.next(asked)
                asked.update({"grammar": gbnf(record["line"])} if record["line"] else {"seed": 7})
                body = json.dumps(asked, ensure_ascii=False).encode()
            self.answer(body, record)

        def read_chunks(self):
            body = b""
            while n := int(self.rfile.readline().split(b";")[0], 16):
                body += self.rfile.read(n)
                self.rfile.readline()
            self.rfile.readline()
            return body

        def answer(self, body, record):
            upstream = http.client.HTTPConnection(target.hostname, target.port, timeout=600)
            headers = {k: v for k, v in self.headers.items()
                       if k.lower() not in ("host", "connection", "content-length", "accept-encoding",
                                            "transfer-encoding")}
            upstream.request(self.command, self.path, body or None, headers)
            reply = upstream.getresponse()
            self.send_response(reply.status)
            for key, value in reply.getheaders():
                if key.lower() not in ("connection", "content-length", "transfer-encoding", "date",
                                       "server"):
                    self.send_header(key, value)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            text = b""
            try:
                while piece := reply.read1(65536):
                    text += piece
                    if self.command != "HEAD":
                        self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                        self.wfile.flush()
                self.wfile.write(b"0\r\n\r\n" if self.command != "HEAD" else b"")
                record["has_hung_up"] = False
            except (BrokenPipeError, ConnectionResetError):
                record["has_hung_up"] = True
                self.close_connection = True
            upstream.close()
            log.write({**record, "status": reply.status, "answer": text.decode("utf-8", "replace")})
            if is_quiet:
                return
            print(f"{record['method']} {record['path']} {reply.status} {(record['line'] or '')[:60]!r}"
                  + ("" if reply.status == 200 else " " + text.decode("utf-8", "replace")[:300]),
                  file=sys.stderr)

        do_GET = do_POST = do_HEAD = do_DELETE = do_PUT = pass_on

    return Handler


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    for name in ("--server", "--lines", "--log"):
        parser.add_argument(name, required=True)
    parser.add_argument("--timeout", type=float, default=300)
    parser.add_argument("command", nargs="+")
    a = parser.parse_args()
    with open(a.lines, encoding="utf-8") as file:
        lines = Lines(json.load(file))
    proxy = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler(a.server, lines, Log(a.log)))
    proxy.daemon_threads = True
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{proxy.server_port}"
    env = {**os.environ, "OPENAI_BASE_URL": url + "/v1", "OPENAI_API_BASE": url + "/v1",
           "ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_BASE": url}
    try:
        code = subprocess.run([word.replace("{url}", url) for word in a.command], env=env,
                              stdin=subprocess.DEVNULL, timeout=a.timeout, check=False).returncode
    except subprocess.TimeoutExpired:
        code = 124
    print(f"record_agent: exit code {code}, {len(lines.lines)} lines were not asked for", file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    main()
