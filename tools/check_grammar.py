#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Grammars against PyPI's jsonschema. Random schemas: what random logits write within each must be
valid, and documents that are valid by the schema's own words must be allowed as json.dumps writes
them. Random patterns that look around: of all short texts those must be allowed that Python's re
finds them in. check_grammar.py PROBE MODEL [N_SCHEMAS [SEED]]"""
import itertools
import json
import random
import re
import subprocess
import sys
from decimal import Decimal, getcontext

import jsonschema

PINNED = {"jsonschema[format]": "4.26.0"}


class Probe:
    def __init__(self, program, model):
        self.process = subprocess.Popen([program, model], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, line, data=b""):
        self.process.stdin.write(line.encode() + b"\n" + data)
        self.process.stdin.flush()
        return self.process.stdout.readline().decode().rstrip("\n")

    def schema(self, text):
        return self.ask(f"S {len(text)}", text)

    def write(self, seed, limit):
        answer = self.ask(f"W {seed} {limit}")
        if answer.startswith("= "):
            return self.process.stdout.read(int(answer[2:])).decode()
        if answer.startswith("stuck"):
            raise AssertionError(answer)
        return None

    def allows(self, text):
        return self.ask(f"T {len(text)}", text)


WORDS = ["a", "b", "ab", "name", "value", "größe", "日本", "x y", 'q"', "", "a/b", "tab\t", "\u2028"]
PATTERNS = [  # a pattern, and texts that it is found in
    ("^[a-c]{1,4}$", ["a", "abca"]),
    ("^\\d{3}-\\d{4}$", ["555-1234"]),
    ("^(yes|no|maybe)$", ["yes", "maybe"]),
    ("^#[0-9a-fA-F]{6}$", ["#00ff7F"]),
    ("b+c", ["abbc", "bc\"x", "\nbcé"]),
    ("^x", ["x", "xyz\\"]),
    ("[^a-z]$", ["a1", "É"]),
    ("^(?:[A-Z][a-z]* ?)+$", ["Ab C", "A"]),
    ("^.{2,3}$", ["ab", "é日x"]),
    ("^[\\w.-]+@[\\w-]+$", ["a.b@c"]),
    ("a|^b$", ["xax", "b"]),
    ("^\\u00e9*[\\\\\"/]?$", ["éé", "é\\", "\""]),
    ("^(?=.*[A-Z])(?=.*[0-9])(?!.*foo).{4,9}$", ["Ab12", "0fo Oé\""]),
    ("^(?:(?!end).)*$", ["", "en", "e\\nd"]),
    ("(?<!a)b|c(?=d)", ["b", "acd", "ac cdx"]),
    ("(?<=[$é])x+$", ["$x", "aéxx"]),
    ("^(?:^|,)a(?:$|,b$)", ["a", ",a,b"]),
    ("^(?![0-9]).[a-z]*(?:-[a-z]{2})?$", ["ab", "x-yz"]),
]
FORMATS = {  # and texts of the kind
    "date": ["2024-02-29", "1970-01-01"],
    "time": ["12:00:00Z", "23:59:59.123+05:30"],
    "date-time": ["2024-02-29T12:00:00Z", "1999-12-31T23:59:59.5-08:00"],
    "duration": ["P1DT2H", "PT5M", "P3W", "P1Y2M"],
    "uuid": ["123e4567-e89b-12d3-a456-426614174000"],
    "email": ["a@b", "a.b+c@example.org"],
    "ipv4": ["127.0.0.1", "255.255.255.255"],
    "ipv6": ["::1", "2001:db8::1", "1:2:3:4:5:6:7:8"],
    "uri": ["https://example.org/a?b#c", "urn:a:b", "mailto:x@y"],
    "hostname": ["example.org", "a-b.c"],
}


class Maker:
    """A schema, and documents that satisfy it: each make_* returns (schema, document maker)."""

    def __init__(self, rng):
        self.rng = rng
        self.defs = {}
        self.open_refs = []

    def make(self, depth):
        kinds = ["null", "boolean", "integer", "number", "string", "pattern", "format", "enum", "const",
                 "multiple", "unique"]
        if depth > 0:
            kinds += ["array", "tuple", "object", "object", "object", "any", "all", "ref", "map", "types", "one"]
        return getattr(self, "make_" + self.rng.choice(kinds))(depth)

    def make_null(self, _):
        return {"type": "null"}, lambda: None

    def make_boolean(self, _):
        return {"type": "boolean"}, lambda: self.rng.random() < 0.5

    def make_integer(self, _):
        r = self.rng
        schema = {"type": "integer"}
        low, high = -(10**9), 10**9
        if r.random() < 0.5:
            low = r.choice([0, 1, -1, -7, 10, 99, 100, -1000, 12345, r.randint(-(10**6), 10**6)])
            schema["minimum"] = low
            if r.random() < 0.3:
                schema["exclusiveMinimum"] = schema.pop("minimum")
                low += 1
        if r.random() < 0.5:
            high = low + r.choice([0, 1, 5, 10, 90, 1234, 10**5])
            schema["maximum"] = high
            if r.random() < 0.3:
                schema["exclusiveMaximum"] = schema.pop("maximum") + 1
        return schema, lambda: r.choice([low, high, r.randint(low, high)])

    def make_number(self, _):
        r = self.rng
        schema = {"type": "number"}
        low, high = None, None
        if r.random() < 0.5:
            low = r.choice([0, -1, 0.5, -2.25, 10, 99.99, round(r.uniform(-100, 100), 3)])
            schema["minimum"] = low
        if r.random() < 0.5:
            high = (low or 0) + r.choice([0.125, 1, 5.5, 90, 1000.25])
            schema["maximum"] = high

        def document():
            a = low if low is not None else (high if high is not None else 0) - 50
            b = high if high is not None else a + 100
            value = r.choice([a, b, round(r.uniform(a, b), 4)])
            return min(max(value, a), b)

        return schema, document

    def make_multiple(self, _):
        r = self.rng
        is_integer = r.random() < 0.5
        step = Decimal(r.choice(["2", "3", "5", "7", "10", "12", "25", "60", "97", "100", "360", "1000", "0.5", "2.5"]
                                if is_integer else ["0.01", "0.1", "0.25", "0.5", "1.5", "5", "12", "0.125", "33"]))
        schema = {"type": "integer" if is_integer else "number", "multipleOf": step}
        unit = step * 2 if is_integer and step != int(step) else step
        low, high = -300, 300
        if r.random() < 0.5:
            low = r.choice([0, 1, -1, -20, 17])
            gap = r.choice([0, unit / 2])
            schema["exclusiveMinimum" if gap and r.random() < 0.3 else "minimum"] = low * unit - gap
        if r.random() < 0.5:
            high = low + r.choice([1, 3, 44, 1000])
            schema["maximum"] = high * unit
        if is_integer:
            return schema, lambda: int(r.randint(low, high) * unit)
        return schema, lambda: r.randint(low, high) * unit

    def make_unique(self, _):
        r = self.rng
        values = r.sample(["a", "b", "ab", 1, 2.5, True, None, "größe"], r.randint(1, 6))
        schema = {"type": "array", "items": {"enum": values}, "uniqueItems": True}
        low, high = 0, len(values)
        if r.random() < 0.4:
            low = schema["minItems"] = r.randint(0, len(values))
        if r.random() < 0.4:
            high = schema["maxItems"] = r.randint(low, len(values) + 1)
        return schema, lambda: r.sample(values, r.randint(low, min(high, len(values))))

    def text(self, low, high):
        alphabet = 'abcXYZ 019"\\/\n\t\x01é日😀{}[],:'
        return "".join(self.rng.choice(alphabet) for _ in range(self.rng.randint(low, high)))

    def make_string(self, _):
        r = self.rng
        schema = {"type": "string"}
        low, high = 0, 20
        if r.random() < 0.4:
            low = schema["minLength"] = r.randint(0, 6)
            high = low + 20
        if r.random() < 0.4:
            high = schema["maxLength"] = low + r.randint(0, 9)
        return schema, lambda: self.text(low, high)

    def make_pattern(self, _):
        pattern, texts = self.rng.choice(PATTERNS)
        return {"type": "string", "pattern": pattern}, lambda: self.rng.choice(texts)

    def make_format(self, _):
        name = self.rng.choice(list(FORMATS))
        return {"type": "string", "format": name}, lambda: self.rng.choice(FORMATS[name])

    def make_enum(self, _):
        r = self.rng
        values = r.sample(WORDS + [1, 2.5, True, None, -3, [1, "a"], {"k": [None]}], r.randint(1, 5))
        return {"enum": values}, lambda: r.choice(values)

    def make_const(self, _):
        value = self.rng.choice(WORDS + [7, None, {"a": 1}])
        return {"const": value}, lambda: value

    def make_array(self, depth):
        r = self.rng
        items, document = self.make(depth - 1)
        schema = {"type": "array", "items": items}
        low, high = 0, 3
        if r.random() < 0.4:
            low = schema["minItems"] = r.randint(0, 2)
        if r.random() < 0.4:
            high = schema["maxItems"] = low + r.randint(0, 3)
        high = max(low, high)
        return schema, lambda: [document() for _ in range(r.randint(low, high))]

    def make_tuple(self, depth):
        r = self.rng
        prefix = [self.make(depth - 1) for _ in range(r.randint(1, 3))]
        schema = {"type": "array", "prefixItems": [p[0] for p in prefix], "items": False}
        low = r.choice([0, len(prefix)])
        if low:
            schema["minItems"] = low
        return schema, lambda: [p[1]() for p in prefix[: r.randint(low, len(prefix))]]

    def make_object(self, depth):
        r = self.rng
        names = r.sample(WORDS, r.randint(0, 4))
        members = {name: self.make(depth - 1) for name in names}
        required = [name for name in names if r.random() < 0.6]
        schema = {"type": "object", "properties": {n: m[0] for n, m in members.items()}}
        if required:
            schema["required"] = r.sample(required, len(required))
        more = None
        kind = r.random()
        if kind < 0.6:
            schema["additionalProperties"] = False
        elif kind < 0.8:
            other, more = self.make(0)
            schema["additionalProperties"] = other

        def document():
            out = {n: members[n][1]() for n in names if n in required or r.random() < 0.5}
            while more and r.random() < 0.4:
                key = self.text(0, 5) if r.random() < 0.7 else r.choice(WORDS) + "x"
                if key not in names:
                    out[key] = more()
            return out

        return schema, document

    def make_map(self, depth):
        value, document = self.make(depth - 1)
        pattern, texts = self.rng.choice(PATTERNS)
        schema = {"type": "object", "patternProperties": {pattern: value}, "additionalProperties": False}
        return schema, lambda: {t: document() for t in self.rng.sample(texts, self.rng.randint(0, len(texts)))}

    def make_any(self, depth):
        branches = [self.make(depth - 1) for _ in range(self.rng.randint(1, 3))]
        return {"anyOf": [b[0] for b in branches]}, lambda: self.rng.choice(branches)[1]()

    def make_one(self, depth):
        r = self.rng
        branches = [({"type": "object", "properties": {"kind": {"const": str(i)}, "v": m[0]},
                      "required": ["kind", "v"], "additionalProperties": False}, m[1])
                    for i, m in enumerate(self.make(depth - 1) for _ in range(r.randint(1, 3)))]

        def document():
            schema, value = r.choice(branches)
            return {"kind": schema["properties"]["kind"]["const"], "v": value()}

        return {"oneOf": [b[0] for b in branches]}, document

    def make_all(self, depth):
        r = self.rng
        value, document = self.make(depth - 1)
        first = {"type": "object", "properties": {"p": value, "q": {"type": "integer"}}, "required": ["p"]}
        second = {"properties": {"q": {"minimum": 5}}, "required": ["q"], "additionalProperties": {}}
        return {"allOf": [first, second]}, lambda: {"p": document(), "q": r.randint(5, 99)}

    def make_ref(self, depth):
        """A list or a tree that refers to itself."""
        name = f"d{len(self.defs)}/~%"
        self.defs[name] = None
        value, document = self.make(depth - 1)
        ref = {"$ref": "#/$defs/" + name.replace("~", "~0").replace("/", "~1").replace("%", "%25")}
        self.defs[name] = {"type": "object", "properties": {
            "value": value, "next": {"anyOf": [ref, {"type": "null"}]},
            "all": {"type": "array", "items": ref}}, "required": ["value", "next"],
            "additionalProperties": False}

        def node(left):
            out = {"value": document(), "next": node(left - 1) if left > 0 else None}
            if left > 0 and self.rng.random() < 0.5:
                out["all"] = [node(0) for _ in range(self.rng.randint(0, 2))]
            return out

        return ref, lambda: node(self.rng.randint(0, 3))

    def make_types(self, _):
        r = self.rng
        makers = {"null": lambda: None, "boolean": lambda: True, "string": lambda: self.text(0, 4),
                  "integer": lambda: r.randint(-5, 5), "array": lambda: [1, "a"], "object": lambda: {"z": [{}]}}
        types = r.sample(list(makers), r.randint(1, 3))
        return {"type": types}, lambda: makers[r.choice(types)]()

    def whole(self):
        schema, document = self.make(self.rng.randint(0, 3))
        if self.defs:
            schema = {"allOf": [schema], "$defs": self.defs} if "$ref" in schema and self.rng.random() < 0.5 \
                else {**schema, "$defs": self.defs}
        return schema, document


def reject_constant(name):
    raise ValueError(name)


class PatternMaker:
    """Patterns over three characters, which Python's re and ECMAScript read alike."""

    CHARACTERS = "ab-"

    def __init__(self, rng):
        self.rng = rng

    def alternatives(self, depth):
        return "|".join(self.sequence(depth) for _ in range(self.rng.choice([1, 1, 1, 2])))

    def sequence(self, depth):
        return "".join(self.item(depth) for _ in range(self.rng.randint(0, 4)))

    def fixed(self):
        """What may stand in a look behind, to re."""
        return "".join(self.rng.choice(["a", "b", "[ab]", "-", "."]) for _ in range(self.rng.randint(1, 2)))

    def item(self, depth):
        r = self.rng.random()
        if r < 0.12:
            return f"(?{self.rng.choice('=!')}{self.alternatives(max(depth - 1, 0))})"
        if r < 0.2:
            return f"(?<{self.rng.choice('=!')}{self.fixed()})"
        if r < 0.29:
            return self.rng.choice(["\\b", "\\B", "^", "$"])
        part = self.rng.choice(["a", "b", "-", ".", "[ab]", "[^a]", "\\w", "\\W"])
        if depth > 0 and self.rng.random() < 0.45:
            part = f"(?:{self.alternatives(depth - 1)})"
        low = self.rng.randint(0, 2)
        times = ["*", "+", "?", f"{{{low},{low + self.rng.randint(0, 2)}}}", ""]
        return part + self.rng.choices(times, [15, 7, 10, 6, 62])[0]


def check_patterns(probe, n_patterns, seed):
    """Returns how many texts were compared, and how many failures there were."""
    rng = random.Random(seed)
    maker = PatternMaker(rng)
    texts = ["".join(t) for k in range(6) for t in itertools.product(maker.CHARACTERS, repeat=k)]
    n_compared = failures = 0
    for _ in range(n_patterns):
        pattern = maker.alternatives(2)
        pattern = f"^{pattern}$" if rng.random() < 0.5 else pattern
        low = rng.choice([0, 0, 1, 3])
        high = rng.choice([9, 9, low, low + 2])
        try:
            found = re.compile(pattern, re.ASCII)
        except re.error:  # nothing to repeat
            continue
        wanted = {t for t in texts if low <= len(t) <= high and found.search(t)}
        schema = {"type": "string", "pattern": pattern, "minLength": low, "maxLength": high}
        answer = probe.schema(dumps(schema).encode())
        if answer != "ok":
            if wanted and "more states" not in answer:
                failures += 1
                print(f"{answer}: {pattern!r}, {low} to {high}")
            continue
        for text in texts if "\\B" not in pattern else texts[1:]:  # old versions of re find no \B in ""
            verdict = probe.allows(dumps(text).encode())
            n_compared += 1
            if (verdict == "yes") != (text in wanted):
                failures += 1
                print(f"{verdict}: {text!r} of {pattern!r}, {low} to {high}")
                break
    return n_compared, failures


def unique_members(pairs):
    """A name twice is valid JSON, of which readers take the last: it is judged so."""
    return dict(pairs)


def dumps(value, **form):
    return json.dumps(value, default=float, **form)


def loads(text):
    """Decimals as they are written: as binary fractions few are multiples of any."""
    return json.loads(text, parse_float=Decimal, parse_constant=reject_constant,
                      object_pairs_hook=unique_members)


def checker():
    formats = jsonschema.Draft202012Validator.FORMAT_CHECKER
    missing = [f for f in FORMATS if f not in formats.checkers]
    if missing:
        sys.exit(f"jsonschema checks no {missing}: install jsonschema[format]")
    return formats


def main():
    probe = Probe(sys.argv[1], sys.argv[2])
    n_schemas = int(sys.argv[3]) if len(sys.argv) > 3 else 400
    first = int(sys.argv[4]) if len(sys.argv) > 4 else 1
    formats = checker()
    getcontext().prec = 5000  # of remainders
    counts = {"schemas": 0, "refused": 0, "written": 0, "cut": 0, "allowed": 0}
    counts["of patterns"], failures = check_patterns(probe, n_schemas, first)
    for seed in range(first, first + n_schemas):
        schema, document = Maker(random.Random(seed)).whole()
        text = dumps(schema, ensure_ascii=bool(seed % 2)).encode()
        answer = probe.schema(text)
        counts["schemas"] += 1
        if answer != "ok":
            counts["refused"] += 1
            failures += 1
            print(f"seed {seed}: refused: {answer}: {text.decode()}")
            continue
        validator = jsonschema.Draft202012Validator(loads(text), format_checker=formats)
        for i in range(8):
            written = probe.write(seed * 1000 + i, 700)
            if written is None:
                counts["cut"] += 1
                continue
            counts["written"] += 1
            try:
                validator.validate(loads(written))
            except Exception as error:  # whatever it is, the text is wrong
                failures += 1
                print(f"seed {seed}.{i}: {written!r} of {text.decode()}: {str(error)[:300]}")
        for i in range(8):
            value = loads(dumps(document()))
            if not validator.is_valid(value):
                print(f"seed {seed}: the maker's own document is not valid: {value!r} of {text.decode()}")
                failures += 1
                continue
            form = [dict(), dict(indent=2), dict(separators=(",", ":")), dict(indent="\t")][i % 4]
            shown = dumps(value, ensure_ascii=False, **form)
            shown = re.sub(r"e([+-])0+(\d)", r"e\1\2", shown)
            verdict = probe.allows(shown.encode())
            counts["allowed"] += 1
            if verdict != "yes":
                failures += 1
                print(f"seed {seed}.{i}: {verdict}: {shown!r} of {text.decode()}")
        if failures > 20:
            break
    print(", ".join(f"{n} {name}" for name, n in counts.items()) + f", {failures} failures")
    return 1 if failures or counts["written"] == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
