#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes tests/text/data/jinja.json: what jinja2 renders, in the sandbox that transformers sets up.

Usage: make_template_goldens.py OUT.json [--templates DIR] [--no-units]
Needs jinja2 and transformers. DIR (default tests/text/data/jinja): *.jinja, found by the test beside OUT in jinja/; each rendered with all INPUTS.

  variables  those of the units
  units      [{"t": template, "x": text, or null where jinja2 raises}]
  inputs     [variables]
  templates  [{"name", "cases": [text or null, one an input]}]
"""
import argparse
import json
import os
import pathlib
import time

os.environ["TZ"] = "UTC"
time.tzset()
NOW = 1767225600  # 2026-01-01; strftime_now of the tests

from template_cases import INPUTS, UNITS, VARIABLES  # noqa: E402  (beside this file)


def environment():
    """The environment of transformers, with a clock that stands."""
    import datetime
    from transformers.utils import chat_template_utils as utils

    class Frozen(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return cls.fromtimestamp(NOW)

    utils.datetime = Frozen
    return utils


def render(utils, template, variables):
    variables = json.loads(json.dumps(variables))
    try:
        if "messages" in variables:
            rest = {k: v for k, v in variables.items()
                    if k not in ("messages", "tools", "documents", "add_generation_prompt")}
            out, _ = utils.render_jinja_template(
                conversations=[variables["messages"]], tools=variables.get("tools"),
                documents=variables.get("documents"), chat_template=template,
                add_generation_prompt=variables.get("add_generation_prompt", False), **rest)
            return out[0]
        return utils._compile_jinja_template(template).render(**variables)
    except Exception:  # it raises: that is what is to be seen
        return None


def with_defaults(variables):
    """As transformers passes them: always there."""
    return {"tools": None, "documents": None, "add_generation_prompt": False, **variables}


def main():
    here = pathlib.Path(__file__).resolve().parent
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--templates", type=pathlib.Path,
                        default=here.parent / "tests" / "text" / "data" / "jinja")
    parser.add_argument("--no-units", action="store_true")
    options = parser.parse_args()
    utils = environment()
    units = [] if options.no_units else [
        {"t": t, "x": render(utils, t, VARIABLES)} for t in UNITS]
    units = [u for u in units if " at 0x" not in (u["x"] or "")]  # an address is printed
    inputs = [with_defaults(v) for v in INPUTS]
    templates = []
    for path in sorted(options.templates.glob("*.jinja")):
        with open(path, encoding="utf-8", newline="") as file:
            text = file.read()
        templates.append({"name": path.name,
                          "cases": [render(utils, text, v) for v in inputs]})
    everything = {"variables": VARIABLES, "units": units, "inputs": inputs, "templates": templates}
    options.out.write_text(json.dumps(everything, ensure_ascii=False, indent=0) + "\n",
                           encoding="utf-8")
    n = sum(len(t["cases"]) for t in templates)
    n_refused = sum(c is None for t in templates for c in t["cases"])
    n_bad = sum(u["x"] is None for u in units)
    print(f"{len(units)} units ({n_bad} raise), {len(templates)} templates, {n} renderings ({n_refused} raise)")


if __name__ == "__main__":
    main()
