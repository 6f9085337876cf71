#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Of what tools/record_agent.py wrote down, a log that tests/server/agent_replay.c can say again.

    trim_agent_log.py OUT.jsonl CLIENT >LOG.json

Kept as they were: paths, the headers that a server looks at, every field and its value, schemas, roles,
kinds and order of what a conversation is made of, names and arguments of calls, marks that servers know
(`<system-reminder>`). Not kept is prose, which is the agents' authors' (and says where it was recorded):
each word of a prompt and of what a tool found is another word, always the same one for the same; a long text
loses its middle, in whose place stand three words made of all of it, as they do for each description: so
a text that an agent changes on the way changes here, too. Identifiers are numbered; those that came from the
server (`@{REQUEST:KEY:N}`) are, in a replay, those that the server then gives.

The log: `client`, and `requests`, each with
  method, path, headers (a list of lines; null: those of the request before)
  like     the earlier request that it repeats most of (null: none), `keep`: so many items of its history
           come first, `drop`: fields of it that are not here; the other fields are the same ones
  fields   those that are not the same; `history`: its field's name, `add`: the items that follow
  line     what the model is made to say; "": what the form that is asked for comes to; null: it is not asked
  status, events (kinds of events in their order, neighbours that are alike once)
  after    the request whose conversation it goes on with; null: it begins one
"""
import hashlib
import json
import re
import sys

HISTORIES = ("messages", "input")
SERVERS_IDS = re.compile(r'"(id|call_id|signature|encrypted_content)":"((?:[^"\\]|\\.){6,})"')
UUID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b|\b[0-9a-f]{24,}\b")
KNOWN = re.compile(r"@\{\d+:\w+:\d+\}|</?(?:system-reminder|think|tool_response|total_tokens)>|x-anthropic-billing-header:")
WORDS = """time man day way house little great good old young long hand eye head night year life
world door room water light white black voice word face heart mother father boy girl king sea ship road tree
hill town city street table chair fire wind rain snow sun moon star stone wood iron gold silver bread wine horse
dog bird fish field garden wall window bed book letter paper story song name part side place end thing people
friend child woman brother sister son daughter morning evening hour minute week month summer winter first last
next new own other same small large high low deep far near dark bright warm cold quick slow soft hard strong
weak rich poor kind dear true full open free""".split()
LONG_TEXT, HEAD, TAIL = 200, 100, 40


def number_of(text, n):
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big") % n


def reword(text):
    """Other words; what stands between them, and marks that servers know, as they were."""
    def words(part):
        return re.sub(r"[^\W\d_]{2,}", lambda m: WORDS[number_of(m.group(), len(WORDS))], part)
    out, at = "", 0
    for known in KNOWN.finditer(text):
        out += words(text[at:known.start()]) + known.group()
        at = known.end()
    return out + words(text[at:])


def short(text):
    """Three words that stand for all of it."""
    return " ".join(WORDS[number_of(text + end, len(WORDS))] for end in "123")


def other_text(text):
    if len(text) <= LONG_TEXT:
        return reword(text)
    return f"{reword(text[:HEAD])} ({short(text)}) {reword(text[-TAIL:])}"


def other_schema(value, is_names=False):
    """A tool, or a part of one: descriptions are prose, the rest is what a server reads."""
    if isinstance(value, list):
        return [other_schema(v) for v in value]
    if not isinstance(value, dict):
        return value
    out = {}
    for key, v in value.items():
        if isinstance(v, str) and not is_names and key in ("description", "title", "definition", "$comment"):
            out[key] = short(v) if v else v
        else:
            out[key] = other_schema(v, key in ("properties", "$defs", "definitions"))
    return out


def other_content(value):
    """What others than the model said: texts, at any depth of parts."""
    if isinstance(value, str):
        return other_text(value)
    if isinstance(value, list):
        return [other_content(v) for v in value]
    if isinstance(value, dict):
        return {k: other_content(v) if k in ("text", "content", "output", "thinking") else v
                for k, v in value.items()}
    return value


def other_item(item):
    """An item of the history. What the model said is ours already."""
    if item.get("role") == "assistant" or item.get("type", "message") in (
            "function_call", "custom_tool_call", "reasoning"):
        return item
    return {k: other_content(v) if k in ("content", "output") else
            other_schema(v) if k == "tools" else v for k, v in item.items()}


def other_request(body):
    out = {}
    for key, value in body.items():
        if key in ("tools", "functions", "response_format", "text", "output_config"):
            out[key] = other_schema(value)
        elif key in ("system", "instructions"):
            out[key] = other_content(value)
        elif key in HISTORIES and isinstance(value, list):
            out[key] = [other_item(i) for i in value]
        elif key in ("input", "prompt"):
            out[key] = other_content(value)
        else:
            out[key] = value
    return out


def distinct_ids(answer):
    """By key: the values that an answer has, in their order, each once."""
    out = {}
    for key, value in SERVERS_IDS.findall(answer):
        if value not in out.setdefault(key, []):
            out[key].append(value)
    return out


def number_ids(records):
    """What the server gave is named by where it came from; what else identifies, by its number."""
    given, n_others, others = {}, 0, {}
    for i, record in enumerate(records):
        body = record["body"] or ""
        for value, name in sorted(given.items(), key=lambda v: -len(v[0])):
            body = body.replace(value, name)
        for value in UUID.findall(body + json.dumps(record["headers"])):
            if value not in others:
                n_others += 1
                others[value] = (f"00000000-0000-7000-8000-{n_others:012x}" if "-" in value
                                 else f"{n_others:0{len(value)}x}")
        for value, name in others.items():
            body = body.replace(value, name)
        record["body"] = body
        for key, values in distinct_ids(record["answer"] if record["line"] is not None else "").items():
            for n, value in enumerate(values):
                given.setdefault(value, f"@{{{i}:{key}:{n}}}")


def kinds_of_chat(event):
    kinds = []
    for choice in event.get("choices") or []:
        part = choice.get("delta") or choice.get("message") or {}
        kinds += [k for k, v in part.items() if v is not None and not (k == "content" and v == "")]
        kinds += [choice["finish_reason"]] if choice.get("finish_reason") else []
    return kinds + (["usage"] if event.get("usage") else [])


def kinds_of(event):
    if "choices" in event:
        return kinds_of_chat(event)
    kind = event.get("type") or event.get("object") or "answer"
    if kind == "message" and event.get("content") is not None:  # not streamed
        return [kind] + [b["type"] for b in event["content"]]
    if kind == "content_block_start":
        return [event["content_block"]["type"]]
    if event.get("output") is not None:
        return [event["object"]] + [o["type"] for o in event["output"]]
    return [] if kind == "ping" else [kind]


def events_of(answer):
    """The kinds of an answer's events; of one that is not streamed, what it is made of."""
    if answer.startswith("{"):
        events = [json.loads(answer)]
    else:
        events = [json.loads(line[6:]) for line in answer.split("\n") if line.startswith("data: {")]
    kinds = []
    for event in events:
        kinds += [k for k in kinds_of(event)]
    if "\ndata: [DONE]" in answer:
        kinds.append("[DONE]")
    return " ".join(k for i, k in enumerate(kinds) if i == 0 or kinds[i - 1] != k)


def unmarked(value):
    """Without marks of what is to be kept, which move from request to request."""
    if isinstance(value, dict):
        return {k: unmarked(v) for k, v in value.items() if k not in ("cache_control", "id")}
    return [unmarked(v) for v in value] if isinstance(value, list) else value


def n_common(a, b):
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))


def history_of(body):
    name = next((h for h in HISTORIES if isinstance(body.get(h), list)), None)
    return name, body[name] if name else []


def predecessor(bodies, paths, i):
    """The latest of the longest conversations that this one begins with; None: it is a new one."""
    _, items = history_of(bodies[i])
    best = None
    for k in range(i):
        name, earlier = history_of(bodies[k])
        if (name and paths[k] == paths[i] and 0 < len(earlier) < len(items) and
                bodies[k].get("tools") == bodies[i].get("tools") and
                unmarked(items[:len(earlier)]) == unmarked(earlier) and
                (best is None or len(earlier) >= len(history_of(bodies[best])[1]))):
            best = k
    return best


def difference(bodies, paths, i):
    """like, keep, drop, fields, history, add"""
    body = bodies[i]
    name, items = history_of(body)
    def cost(k):
        other = bodies[k]
        return (sum(other.get(f) == v and f in other for f, v in body.items() if f != name),
                n_common(history_of(other)[1], items), k)
    others = [k for k in range(i) if paths[k] == paths[i] and history_of(bodies[k])[0] == name]
    like = max(others, key=cost) if others else None
    base = bodies[like] if like is not None else {}
    keep = n_common(history_of(base)[1], items) if like is not None else 0
    fields = {f: v for f, v in body.items() if f != name and not (f in base and base[f] == v)}
    return {"like": like, "keep": keep, "drop": [f for f in base if f not in body], "fields": fields,
            "history": name, "add": items[keep:]}


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        records = [json.loads(line) for line in file]
    # asked again, of the same server: once is enough
    asked, kept = set(), []
    for record in records:
        key = (record["method"], record["path"])
        if record["method"] == "POST" or key not in asked:
            kept.append(record)
        asked.add(key)
    records = [r for r in kept if not r.get("has_hung_up")]
    number_ids(records)
    bodies = [other_request(json.loads(r["body"])) if r["body"] else {} for r in records]
    paths = [r["path"].split("?")[0] for r in records]
    out, before = [], None
    for i, r in enumerate(records):
        headers = [f"{k}: {v}" for k, v in r["headers"].items() if k != "content-type"]
        entry = {"method": r["method"], "path": r["path"],
                 "headers": None if headers == before else headers, "line": r["line"],
                 "status": r["status"],
                 "events": events_of(r["answer"]) if r["line"] is not None else None,
                 "after": predecessor(bodies, paths, i) if r["line"] is not None else None}
        if r["method"] == "POST":
            entry.update(difference(bodies, paths, i))
        before = headers
        if entry["after"] is None and r["line"] is not None:
            print(f"request {i} begins a conversation", file=sys.stderr)
        out.append(entry)
    log = json.dumps({"client": sys.argv[2], "requests": ["@"]}, ensure_ascii=False)
    lines = ",\n".join(json.dumps(e, ensure_ascii=False, separators=(",", ":")) for e in out)
    print(log.replace('"@"', "\n" + lines + "\n"))


if __name__ == "__main__":
    main()
