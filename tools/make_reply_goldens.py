#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes tests/text/data/reply.json: messages of an assistant as templates write them, rendered by jinja2.

Usage: make_reply_goldens.py OUT.json [--templates DIR]
Needs jinja2 and transformers. DIR (default tests/text/data/jinja): *.jinja, found by the test beside OUT in jinja/.

  tools      those of all messages
  templates  [{"name", "cases": [{"text", "thought", "content", "calls": [{"name", "arguments"}]}]}]

A case is a message that the template can write: text is what stands behind the question, up to the end of the turn;
thought and content are "" where the template leaves them out.
"""
import argparse
import json
import pathlib

from make_template_goldens import environment  # (beside this file)

QUESTION = "What is the question?"


def tool(name, properties):
    return {"type": "function", "function": {
        "name": name, "description": f"Does {name}.",
        "parameters": {"type": "object", "properties": properties, "required": list(properties)[:1]}}}


def typed(kind):
    return {"type": kind, "description": "One."}


TOOLS = [
    tool("get_weather", {"city": typed("string"), "days": typed("integer")}),
    tool("search", {"query": typed("string"), "limit": typed("number"), "strict": typed("boolean"),
                    "tags": {"type": "array", "description": "Some.", "items": {"type": "string"}},
                    "deep": typed("object"), "note": {"type": ["string", "null"], "description": "One."},
                    "either": {"anyOf": [{"type": "integer"}, {"type": "string"}], "description": "One."}}),
    tool("ping", {}),
]

WEATHER = ("get_weather", {"city": "Paris", "days": 3})
PING = ("ping", {})
# (thought, content, calls)
MESSAGES = [
    ("", "Just words.", []),
    ("", "Several\n\nlines, {braces}, [brackets] & <tags> of it.", []),
    ("Let me see.", "It is so.", []),
    ("", "", [WEATHER]),
    ("", "", [PING]),
    ("", "I look.", [WEATHER]),
    ("", "", [WEATHER, PING, WEATHER]),
    ("First this.\nThen that.", "", [PING]),
    ("First this.", "Well:", [WEATHER, PING]),
    ("", "", [("search", {"query": "é 日本 😀 \"quoted\" it's \\ back", "limit": 0.5, "strict": True, "tags": ["a", "b c"],
                          "deep": {"a": [1, {"b": "c"}], "x": True, "y": "it's"}})]),
    ("", "", [("search", {"query": "two\nlines\n\n\tindented", "strict": False, "tags": [], "deep": {}})]),
    ("", "", [("search", {"query": "5", "either": 5, "limit": -12})]),
    ("", "", [("search", {"query": "true", "note": "text", "either": "word"})]),
    ("", "", [("search", {"query": "{\"a\": 1}", "note": "nothing"})]),
    ("", "", [("search", {"query": "<b>x</b> a < b, </p", "note": ", x) ] } 'q' \"r\""})]),
    ("", "", [("search", {"query": "", "tags": ["", "]", "}"]})]),
    ("", "", [("search", {"query": "q", "note": None})]),
    ("", "", [("search", {"query": "if (a) {\n    return \"}\";\n}", "limit": 1})]),
]

# What ends a turn where the template has something else behind calls than behind words.
ENDS = ["<|end_of_msg|>", "<|END_TURN|>", "<|END_OF_TURN_TOKEN|>", "<|eom_id|>", "<|eom|>", "<|call|>", "<|calls|>", "<|return|>", "<|tool_response>", "<|eot_id|>", "<|eot|>"]


def message(case, is_text, ids):
    thought, content, calls = case
    out = {"role": "assistant", "content": content}
    if thought:
        out["reasoning_content"] = out["thinking"] = thought
    if calls:
        out["tool_calls"] = [
            {"id": f"functions.{name}:{i}" if ids else f"abcdefgh{i}", "type": "function",
             "function": {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False) if is_text else arguments}}
            for i, (name, arguments) in enumerate(calls)]
    return out


def render(utils, template, assistant):
    out, _ = utils.render_jinja_template(
        conversations=[[{"role": "user", "content": QUESTION}, assistant]], tools=TOOLS, documents=None,
        chat_template=template, add_generation_prompt=False, bos_token="<bos>", eos_token="<eos>")
    text = out[0]
    return text[text.rindex(QUESTION) + len(QUESTION):] if QUESTION in text else text


def has_all(text, case):
    """Whether the template wrote the calls."""
    return all(name in text for name, _ in case[2])


def attempt(utils, template, case):
    """The message's text in the first form that the template takes."""
    ways = [(False, True), (True, True)] if "_section_begin" in template else []
    for is_text, ids in ways + [(False, False), (True, False)]:
        try:
            text = render(utils, template, message(case, is_text, ids))
        except Exception:  # it refuses this form
            continue
        if has_all(text, case):
            return text
    return None


def without_end(text, end, case):
    last = max(text.rfind(each) for each in [case[1].split("\n")[-1], *(name for name, _ in case[2])] if each)
    places = [text.find(each, last) for each in (end.strip(), *ENDS, "<eos>") if each]
    places = [place for place in places if place >= 0]
    return text[:min(places)] if places else text


def written(arguments, text):
    """Those that the template wrote: some leave out what is null."""
    return {key: value for key, value in arguments.items() if value is not None or key in text}


def cases_of(utils, template):
    # what stands behind words ends a turn, but for what is only white space
    plain = attempt(utils, template, ("", "Sentinel words.", []))
    end = plain.split("Sentinel words.")[-1] if plain and "Sentinel words." in plain else ""
    cases = []
    for case in MESSAGES:
        text = attempt(utils, template, case)
        if text is None:
            continue
        thought, content, calls = case
        cases.append({"text": without_end(text, end, case), "thought": thought if thought in text else "",
                      "content": content if content.split("\n")[0] in text else "",
                      "calls": [{"name": name, "arguments": written(arguments, text)} for name, arguments in calls]})
    return cases


def main():
    here = pathlib.Path(__file__).resolve().parent
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--templates", type=pathlib.Path,
                        default=here.parent / "tests" / "text" / "data" / "jinja")
    options = parser.parse_args()
    utils = environment()
    templates = []
    for path in sorted(options.templates.glob("*.jinja")):
        with open(path, encoding="utf-8", newline="") as file:
            templates.append({"name": path.name, "cases": cases_of(utils, file.read())})
    options.out.write_text(json.dumps({"tools": TOOLS, "templates": templates}, ensure_ascii=False, indent=0) + "\n",
                           encoding="utf-8")
    n_calls = sum(len(c["calls"]) > 0 for t in templates for c in t["cases"])
    print(f"{len(templates)} templates, {sum(len(t['cases']) for t in templates)} messages, {n_calls} with calls")


if __name__ == "__main__":
    main()
