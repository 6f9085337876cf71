# SPDX-License-Identifier: MIT
"""The server's page in Chromium: types, streams, stops, reloads, edits; hostile Markdown; files; keyboard; labels and
contrast; keys. check_page.py MOEFLUX MODEL THINKING_MODEL [FOLDER]: with a folder, pictures of it are left there."""
import base64
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from page_audit import AUDIT  # noqa: E402
from page_browser import ALT, CONTROL, SHIFT, Browser, Page  # noqa: E402

ANSWER = "(document.querySelector('.message.assistant:last-child .content') || {textContent: ''}).textContent"
IS_IDLE = "document.querySelector('#send').getAttribute('aria-label') === 'Send'"
HOSTILE = """# Title <script>document.title = 'owned'</script>

<img src=x onerror="document.title = 'owned'"> and <b onclick="document.title = 'owned'">bold</b>

[a](javascript:document.title='owned') [b](JaVaScRiPt:1) [c](data:text/html,x) [d](vbscript:x) [e]( java\tscript:1)
[good](https://example.com/a_(b) "title") ![pic](https://example.com/p.png) <https://example.com/x> https://example.com/y.
[mail](mailto:a@b.c) **bold** *it* ~~gone~~ `code <b>` snake_case_word 2 * 3 * 4 \\*star\\*

1. one
   - inner

     ```py
     # in a list
     ```
2. two

- [x] done
- [ ] open

| a | b |
|---|--:|
| 1 | `x \\| y` |

> quote
> > deeper

```html
<script>document.title = 'owned'</script>
```

***
unclosed **bold and `code and [link](
"""


class Failures:
    def __init__(self):
        self.n_checks, self.failed = 0, []

    def check(self, is_good, what):
        self.n_checks += 1
        if not is_good:
            self.failed.append(what)
            print("FAILED:", what)

    def equal(self, got, wanted, what):
        self.check(got == wanted, f"{what}: {got!r}, not {wanted!r}")


class Server:
    def __init__(self, program, model, *options):
        environment = {**os.environ, "MOEFLUX_DEVICE": "cpu"}
        self.process = subprocess.Popen(
            [program, "serve", model, "--port", "0", *options], stdout=subprocess.PIPE, text=True, env=environment
        )
        line = self.process.stdout.readline()
        found = re.search(r"http://\S+", line)
        if not found:
            raise RuntimeError("the server did not start: " + line)
        self.url = found.group(0)

    def close(self):
        self.process.terminate()
        self.process.wait()
        self.process.stdout.close()


def send(page, text):
    page.evaluate("document.querySelector('#input').focus()")
    page.type(text)
    page.key("Enter")


def answered(page, timeout=120):
    page.wait(f"{IS_IDLE} && document.querySelectorAll('.message.assistant').length > 0", "the answer's end", timeout)


def set_field(page, name, value):
    page.evaluate(
        f"(() => {{ const e = document.querySelector('#s-{name}'); e.value = {json.dumps(value)};"
        "e.dispatchEvent(new Event('input', {bubbles: true})); e.dispatchEvent(new Event('change', {bubbles: true})); })()"
    )


def set_settings(page, **values):
    page.click("#open-settings")
    page.wait("document.querySelector('#settings').open")
    for name, value in values.items():
        set_field(page, name, str(value))
    page.key("Escape")
    page.wait("!document.querySelector('#settings').open")


def test_answers(t, page, url):
    page.open(url)
    page.wait("document.querySelector('#model').textContent.includes('parameters')", "the model's name")
    t.equal(page.evaluate("document.activeElement.id"), "input", "the field has the focus")
    t.check(page.evaluate("document.querySelector('#send').disabled"), "nothing to send yet")
    send(page, "Once upon a time")
    lengths = []
    for _ in range(4):
        n = lengths[-1] if lengths else 0
        page.wait(f"{ANSWER}.length > {n}", "text that grows")
        lengths.append(page.evaluate(f"{ANSWER}.length"))
    t.check(lengths == sorted(set(lengths)), f"the answer grows: {lengths}")
    t.equal(page.evaluate("document.querySelector('#send').getAttribute('aria-label')"), "Stop", "what the button does")
    t.equal(page.evaluate("document.querySelector('.assistant').getAttribute('aria-busy')"), "true", "it is busy")
    page.key("Escape")
    page.wait(IS_IDLE, "the stop")
    stopped = page.evaluate(ANSWER)
    time.sleep(0.3)
    t.equal(page.evaluate(ANSWER), stopped, "nothing comes after the stop")
    t.check("stopped" in page.evaluate("document.querySelector('.assistant .tools').textContent"), "it says so")
    t.equal(page.evaluate("document.activeElement.id"), "input", "the focus stays")
    page.wait("document.querySelector('#said').textContent === 'Stopped'", "a screen reader is told")
    page.reload()
    page.wait("document.querySelectorAll('.message').length === 2", "the conversation")
    t.equal(page.evaluate(ANSWER), stopped, "the answer after a reload")
    t.equal(page.evaluate("document.querySelector('#title').textContent"), "Once upon a time", "its title")
    return stopped


def test_versions(t, page):
    set_settings(page, max_tokens=24, seed=5, temperature=0.8)
    page.click(".message.user .tools button:nth-child(2)")
    t.equal(page.evaluate("document.activeElement.value"), "Once upon a time", "what is edited")
    page.evaluate("document.activeElement.select()")
    page.type("There was once a king")
    page.key("Enter")
    answered(page)
    first = page.evaluate(ANSWER)
    t.check(len(first) > 20, "an answer to the edited message")
    t.check("2 / 2" in page.evaluate("document.querySelector('.message.user').textContent"), "two versions of the message")
    t.check("24 tokens" in page.evaluate("document.querySelector('.assistant .meta').textContent"), "how long it is")
    page.click(".assistant button[aria-label='Make this answer again']")
    answered(page)
    t.equal(page.evaluate(ANSWER), first, "the same seed, the same answer")
    t.check("2 / 2" in page.evaluate("document.querySelector('.assistant').textContent"), "two versions of the answer")
    page.click(".message.user button[aria-label='The version before']")
    t.equal(page.evaluate("document.querySelector('.user .content').textContent"), "Once upon a time", "the one before")
    send(page, "And then")
    answered(page)
    t.equal(page.evaluate("document.querySelectorAll('.message').length"), 4, "messages of two turns")
    page.wait("document.querySelector('#said').textContent.startsWith('Answer: ')", "the answer is said")


def import_file(page, folder, name, data):
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(data, file)
    page.choose_file("#file", path)
    page.wait(f"document.querySelector('#title').textContent === {json.dumps(data['title'])}", "what was imported")


def test_hostile(t, page, folder):
    messages = [
        {"role": "user", "content": "<img src=x onerror=\"document.title='owned'\">"},
        {"role": "assistant", "content": HOSTILE, "reasoning_content": "<script>document.title='owned'</script> *thinks*",
         "tool_calls": [{"id": "c", "function": {"name": "<b>f</b>", "arguments": '{"a": "<script>"}'}}]},
    ]
    import_file(page, folder, "hostile.json", {"title": "<script>1</script>", "messages": messages})
    count = "document.querySelectorAll('#log {}').length"
    for what in ("script", "img", "iframe", "b", "[onerror]", "[onclick]", "style"):
        t.equal(page.evaluate(count.format(what)), 0, f"{what} in messages")
    links = page.evaluate("[...document.querySelectorAll('#log a')].map((a) => [a.getAttribute('href'), a.rel, a.target])")
    t.equal([href for href, _, _ in links], ["https://example.com/a_(b)", "https://example.com/p.png", "https://example.com/x",
            "https://example.com/y", "mailto:a@b.c"], "links")
    t.check(all("noopener" in rel and target == "_blank" for _, rel, target in links), "links open nothing of ours")
    texts = {
        "strong": "bold", "em": "it", "del": "gone", "ol > li > ul > li .code pre": "# in a list",
        "li.task input[checked]": "", "td.t-right code": "x | y", "blockquote blockquote p": "deeper",
        "code": "code <b>", ".call summary code": "<b>f</b>",
    }
    for selector, text in texts.items():
        found = page.evaluate(f"[...document.querySelectorAll('.assistant {selector}')].map((e) => e.textContent)")
        t.check(text in found, f"{selector}: {found}, not {text!r}")
    body = page.evaluate("document.querySelector('.assistant .content').textContent")
    for text in ("snake_case_word", "2 * 3 * 4", "*star*", "unclosed **bold and `code and [link](", "<img src=x"):
        t.check(text in body, f"{text!r} is shown as it is")
    t.equal(page.evaluate("document.querySelectorAll('.assistant .markdown > ol > li').length"), 2, "items of the list")
    page.evaluate("document.querySelectorAll('#log a').forEach((a) => a.removeAttribute('target'))")
    t.check("owned" not in page.evaluate("document.title"), "nothing ran")
    # A long and knotted text is drawn in bounded time.
    knots = "*_`[" * 20000 + "\n\n" + "> " * 5000 + "x\n\n" + "- " * 3000 + "\n" + "[" * 30000 + "(" * 30000 + "|" * 5000
    began = time.monotonic()
    import_file(page, folder, "knots.json", {"title": "knots", "messages": [{"role": "assistant", "content": knots}]})
    t.check(time.monotonic() - began < 30, "knots take long to draw")
    # What is no conversation is refused and changes nothing.
    n = page.evaluate("document.querySelectorAll('#list li').length")
    for name, text in (("broken.json", "{"), ("other.json", '{"messages": [1, null, {"role": "x"}]}'), ("list.json", "[]")):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(text)
        page.choose_file("#file", os.path.join(folder, name))
        page.wait(f"document.querySelector('#toasts').textContent.includes({json.dumps(name)})", "the refusal")
    t.equal(page.evaluate("document.querySelectorAll('#list li').length"), n, "conversations")


def test_files(t, page, folder):
    downloads = os.path.join(folder, "downloads")
    os.mkdir(downloads)
    page.browser.call("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": downloads,
                      "browserContextId": page.context, "eventsEnabled": True})
    title = "<script>1</script>"
    page.evaluate(f"[...document.querySelectorAll('.item-name')].find((e) => e.textContent === {json.dumps(title)}).click()")

    def downloaded(selector, name):
        # A file has its name before it has its bytes: the browser says when it is whole.
        ended = []
        listener = lambda m: ended.append(m["params"]["state"]) if m["method"] == "Browser.downloadProgress" else None
        page.browser.listeners.append(listener)
        page.click(selector)
        end = time.monotonic() + 60
        while not {"completed", "canceled"} & set(ended) and time.monotonic() < end:
            page.browser.pump(end - time.monotonic())
        page.browser.listeners.remove(listener)
        t.check("completed" in ended, f"{name} is not downloaded: {ended}")
        with open(os.path.join(downloads, name), encoding="utf-8") as file:
            return file.read()

    ours = json.loads(downloaded("#export-json", "script-1-script.json"))
    t.equal(ours["conversations"][0]["messages"][1]["content"], HOSTILE, "what is exported")
    text = downloaded("#export-markdown", "script-1-script.md")
    t.check(text.startswith("# <script>1</script>\n\n## You\n") and HOSTILE.strip() in text, "Markdown")
    everything = json.loads(downloaded("#export-all", "moeflux-conversations.json"))
    n = page.evaluate("document.querySelectorAll('#list li').length")
    t.equal(len(everything["conversations"]), n, "all conversations")
    # deleted, renamed, and in again
    page.click("#list .is-open button[aria-label^='Delete']")
    page.wait("document.querySelector('#ask').open")
    page.click("#ask-yes")
    page.wait(f"document.querySelectorAll('#list li').length === {n - 1}", "one less")
    page.choose_file("#file", os.path.join(downloads, "script-1-script.json"))
    page.wait(f"document.querySelectorAll('#list li').length === {n}", "it is there again")
    t.equal(page.evaluate("document.querySelectorAll('.message').length"), 2, "its messages")
    page.click("#list .is-open button[aria-label^='Rename']")
    page.wait("document.activeElement.id === 'ask-input'")
    page.type("Another name")
    page.key("Enter")
    page.wait("document.querySelector('#title').textContent === 'Another name'", "the new name")
    page.reload()
    page.wait("[...document.querySelectorAll('.item-name')].some((e) => e.textContent === 'Another name')", "kept")


def test_bounds(t, page):
    """More than may be kept: the oldest goes, and the page says so."""
    page.evaluate("""(() => { for (let i = 0; i < 205; i++) localStorage.setItem('moeflux/c/old' + i, JSON.stringify(
        {id: 'old' + i, title: 'old ' + i, created: i, updated: i, leaf: 'm', messages: [{id: 'm', parent: null, role: 'user', content: 'x'}]}));
        localStorage.setItem('moeflux/c/broken', '{'); })()""")
    page.reload()
    set_settings(page, max_tokens=12)
    page.click("#new")
    # toasts go by themselves: all that there were are kept
    page.evaluate("window.said = ''; new MutationObserver((all) => all.forEach((m) => m.addedNodes.forEach((n) => "
                  "{ window.said += n.textContent; }))).observe(document.querySelector('#toasts'), {childList: true})")
    send(page, "One more")
    answered(page)
    t.check(page.evaluate("document.querySelectorAll('#list li').length") <= 200, "no more than 200 are kept")
    t.check("“old 0” was the oldest conversation" in page.evaluate("window.said"), "what goes is named")
    t.check(page.evaluate("localStorage.getItem('moeflux/c/old204') !== null"), "the newest stay")
    page.evaluate("localStorage.clear()")
    page.reload()
    page.wait("document.querySelectorAll('#list li').length === 0")


def test_scheme(t, page):
    colour = "getComputedStyle(document.body).backgroundColor"
    page.media(prefers_color_scheme="light")
    light = page.evaluate(colour)
    page.media(prefers_color_scheme="dark")
    page.wait(f"{colour} !== {json.dumps(light)}", "dark as the system is")
    page.click("#scheme")
    page.wait(f"{colour} === {json.dumps(light)}", "light by the switch")
    page.reload()
    t.equal(page.evaluate(colour), light, "it stays so")
    page.click("#scheme")
    page.wait(f"{colour} !== {json.dumps(light)}")
    set_settings(page, scheme="")
    page.media(prefers_color_scheme="light")
    page.wait(f"{colour} === {json.dumps(light)}", "as the system again")
    page.media(prefers_color_scheme="light", prefers_reduced_motion="reduce")
    t.equal(page.evaluate("getComputedStyle(document.querySelector('.button')).transitionProperty"), "none", "no motion")
    page.media()


def test_engine(t, page):
    page.click("#engine-toggle")
    page.wait("document.querySelectorAll('#facts dd').length > 5 && document.querySelectorAll('.meter').length >= 5")
    held = page.evaluate("document.querySelector('#picture-sum').textContent")
    t.check(re.fullmatch(r"\d+ of 256 held", held), f"what is held: {held}")
    set_settings(page, max_tokens=600, seed=1)
    send(page, "In the old times")
    page.wait("Number(document.querySelector('#decode').textContent) > 0", "tokens per second")
    page.wait("document.querySelector('#map-text').textContent.includes('Asked for most of late: expert')", "the hottest")
    text = page.evaluate("document.querySelector('#map-text').textContent")
    t.check(text.startswith("8 layers by 32 experts. Memory holds "), f"the picture in words: {text}")
    colours = page.evaluate(
        "(() => { const c = document.querySelector('#map'); const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
        "const s = new Set(); for (let i = 0; i < d.length; i += 16) s.add(d.slice(i, i + 4).join()); return s.size; })()"
    )
    t.check(colours > 4, f"the picture has {colours} colours")
    page.evaluate("document.querySelector('#map-table').open = true")
    page.wait("document.querySelectorAll('#map-rows tr').length === 8", "the table")
    answered(page)
    n = len([url for url in page.requests if "moeflux/stats" in url])
    page.click("#engine-close")
    time.sleep(1.5)
    more = len([url for url in page.requests if "moeflux/stats" in url]) - n
    t.check(more <= 1, f"{more} polls though nobody looks")
    t.equal(page.evaluate("document.activeElement.id"), "engine-toggle", "the focus goes back")


def test_keyboard(t, page):
    """A pass without a mouse."""
    page.evaluate("document.querySelector('#input').focus()")
    page.key("o", CONTROL | SHIFT)
    page.wait("document.querySelector('#welcome').offsetHeight > 0", "a new conversation")
    page.type("One line")
    page.key("Enter", SHIFT)
    page.type("and another")
    t.check("\n" in page.evaluate("document.querySelector('#input').value"), "a line of its own")
    page.key("Enter")
    answered(page)
    page.key("ArrowUp")
    page.wait("document.activeElement.closest('.edit') !== null", "the last message is edited")
    page.key("Escape")
    page.wait("document.activeElement.closest('.tools') !== null", "and is not")
    page.key("ArrowDown", ALT)
    page.wait("document.querySelector('#title').textContent !== 'One line and another'", "the conversation below")
    page.key("ArrowUp", ALT)
    page.wait("document.querySelector('#title').textContent === 'One line and another'", "the one above")
    page.key("/", CONTROL)
    page.wait("document.querySelector('#keys').open", "the shortcuts")
    page.key("Escape")
    page.key(",", CONTROL)
    page.wait("document.querySelector('#settings').open", "the settings")
    page.key("Escape")
    page.key("l", CONTROL | SHIFT)
    page.wait("!document.querySelector('#engine').hidden", "the engine")
    page.key("l", CONTROL | SHIFT)
    page.evaluate("document.body.focus(); document.activeElement.blur()")
    seen = []
    for _ in range(120):
        page.key("Tab")
        name = page.evaluate("(() => { const e = document.activeElement; return e === document.body ? null : e.id || e.className"
                             " || e.tagName; })()")
        is_shown = page.evaluate("(() => { const e = document.activeElement, s = getComputedStyle(e);"
                                 "return e === document.body || s.outlineStyle !== 'none' || e.id === 'input'; })()")
        t.check(is_shown, f"the focus is seen on {name}")
        if name in seen and name in ("new", "input") and len(seen) > 12 and seen.count(name) > 0:
            break
        seen.append(name)
    for name in ("new", "import", "export-all", "open-settings", "scheme", "engine-toggle", "input"):
        t.check(name in seen, f"Tab reaches {name}: {seen}")


def audit(t, page, what):
    for problem in page.evaluate(AUDIT):
        t.check(False, f"{what}: {problem}")
    t.check(page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{what}: it is wider than the window")


def test_audit(t, page, folder, pictures):
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "page_sample.json"), encoding="utf-8") as file:
        sample = json.load(file)
    for title in sample:
        import_file(page, folder, "sample.json", {"title": title, "messages": sample[title]})
    page.evaluate("document.querySelectorAll('.toast').forEach((e) => e.remove())")
    for scheme in ("light", "dark"):
        page.media(prefers_color_scheme=scheme)
        for width, height in ((1280, 800), (1024, 720), (390, 844), (360, 640)):
            page.size(width, height, width < 800)
            page.evaluate("document.querySelector('#scroll').scrollTop = 0; document.activeElement.blur()")
            time.sleep(0.2)
            audit(t, page, f"{scheme}, {width}")
            picture(page, pictures, f"chat-{scheme}-{width}")
            page.evaluate("document.querySelector('#scroll').scrollTop = 1e6")
            time.sleep(0.2)
            audit(t, page, f"{scheme}, {width}, end")
            picture(page, pictures, f"end-{scheme}-{width}")
            page.click("#engine-toggle")
            page.wait("document.querySelectorAll('#facts dd').length > 5 && document.querySelector('#map').height > 20 && "
                      "document.querySelector('#decode').textContent !== '–'")
            time.sleep(0.2)
            audit(t, page, f"{scheme}, {width}, engine")
            picture(page, pictures, f"engine-{scheme}-{width}")
            page.click("#engine-close")
            if width < 800:
                page.click("#menu")
                page.wait("document.querySelector('#side').getBoundingClientRect().x === 0", "the drawer")
                audit(t, page, f"{scheme}, {width}, list")
                picture(page, pictures, f"list-{scheme}-{width}")
                page.key("Escape")
                page.wait("document.activeElement.id === 'menu'", "the drawer closes")
            page.key(",", CONTROL)
            page.wait("document.querySelector('#settings').open")
            time.sleep(0.2)
            audit(t, page, f"{scheme}, {width}, settings")
            picture(page, pictures, f"settings-{scheme}-{width}")
            page.key("Escape")
    page.size(1280, 800)
    page.media()


def test_thoughts(t, page, url):
    page.open(url)
    page.evaluate("localStorage.clear()")
    page.reload()
    page.wait("document.querySelector('#model').textContent.includes('parameters')")
    set_settings(page, max_tokens=60, seed=3, system="Tell a tale.", thinking="on", thought_tokens=8)
    send(page, "Once upon a time")
    page.wait("document.querySelector('.thoughts:not([hidden]) .thought') && "
              "document.querySelector('.thoughts .thought').textContent.length > 5", "thoughts")
    answered(page)
    t.check(not page.evaluate("document.querySelector('.thoughts').open"), "thoughts are folded")
    page.click(".thoughts summary")
    t.check(page.evaluate("document.querySelector('.thoughts .thought').offsetHeight > 10"), "and unfold")
    t.check(page.evaluate(f"{ANSWER}.length > 0"), "the answer behind them")
    send(page, "And then")
    answered(page)
    t.equal(page.evaluate("document.querySelectorAll('.failure:not([hidden])').length"), 0, "failures in a second turn")
    set_settings(page, thinking="off")
    page.click("#new")
    send(page, "Once upon a time")
    answered(page)
    t.check(page.evaluate("document.querySelector('.thoughts').hidden"), "no thoughts when they are off")


def canned(*deltas, end="data: [DONE]\n\n", finish="tool_calls"):
    """An answer's events; every second one the way another server might write it."""
    chunks = [{"model": "small", "choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    if finish:
        chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
        chunks.append({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 7}})
    text = ": a comment\n\n"
    for i, chunk in enumerate(chunks):
        line = "\r\n" if i % 2 else "\n"
        text += f"event: x{line}data:{' ' if i % 3 else ''}{json.dumps(chunk, ensure_ascii=False)}{line}{line}"
    return text + end


def answer_canned(page, text, status=200):
    """Answers the request that the page makes next; what it asked."""
    end = time.monotonic() + 30
    while not page.paused and time.monotonic() < end:
        page.browser.pump(0.05)
    request = page.paused.pop(0)
    kind = "text/event-stream" if status == 200 else "application/json"
    page.call("Fetch.fulfillRequest", {"requestId": request["requestId"], "responseCode": status,
              "responseHeaders": [{"name": "Content-Type", "value": kind}], "body": base64.b64encode(text.encode()).decode()})
    return json.loads(request["request"]["postData"])


def test_canned(t, page, pictures):
    """What the demo model never says: calls in pieces, failures in the middle, ends without an end."""
    page.call("Fetch.enable", {"patterns": [{"urlPattern": "*/v1/chat/completions"}]})
    set_settings(page, system="Be brief.", temperature=0.5, top_k=7, min_p=0.1, top_p=0.9, max_tokens=99, seed=4, thinking="off")
    page.click("#new")
    send(page, "Weather?")
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "weather", "arguments": ""}}
    body = answer_canned(page, canned(
        {"role": "assistant", "content": ""}, {"reasoning_content": "I look "}, {"reasoning_content": "it up – é."}, {"content": "Let me "},
        {"content": "look: 🌦"}, {"tool_calls": [call]}, {"tool_calls": [{"index": 0, "function": {"arguments": '{"pla'}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": 'ce":"Bonn"}'}}, {"index": 1, "id": "c2", "function": {"name": "time",
         "arguments": "{broken"}}]}, {"tool_calls": [{"index": 10 ** 9}, {"index": -1}, {"index": "x"}, {}]}))
    answered(page)
    t.equal(body["messages"], [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Weather?"}], "messages")
    wanted = {"stream": True, "temperature": 0.5, "top_k": 7, "min_p": 0.1, "top_p": 0.9, "max_tokens": 99, "seed": 4,
              "stream_options": {"include_usage": True}, "chat_template_kwargs": {"enable_thinking": False}}
    del body["messages"]
    t.equal(body, wanted, "the fields of a request")
    t.equal(page.evaluate(ANSWER), "Let me look: 🌦", "content")
    t.equal(page.evaluate("document.querySelector('.thought').textContent"), "I look it up – é.", "thoughts")
    calls = page.evaluate("[...document.querySelectorAll('.call')].map((e) => [e.querySelector('code').textContent,"
                          "e.querySelector('pre').textContent])")
    t.equal(calls, [["weather", '{ "place": "Bonn" }'], ["time", "{broken"]], "calls")
    t.check("7 tokens" in page.evaluate("document.querySelector('.assistant .meta').textContent"), "usage")
    # a failure in the middle; calls without results are not sent back
    send(page, "Again")
    body = answer_canned(page, canned({"content": "<i>half"}, finish=None, end='data: {"error": {"message": "no <b>memory</b>"}}\n\n'))
    t.equal(body["messages"][2:], [{"role": "assistant", "content": "Let me look: 🌦", "reasoning_content": "I look it up – é."},
            {"role": "user", "content": "Again"}], "history")
    answered(page)
    failure = "document.querySelector('.message.assistant:last-child .failure').textContent"
    t.equal(page.evaluate(ANSWER), "<i>half", "what came before the failure")
    t.equal(page.evaluate(failure), "no <b>memory</b>", "the failure")
    for text, status, says in ((canned({"content": "cut"}, end=""), 200, "the connection ended"), ("{not JSON", 502, "status 502"),
                               ('{"error": {"message": "the prompt is too long"}}', 400, "the prompt is too long")):
        page.click(".message.assistant:last-child button[aria-label='Make this answer again']")
        answer_canned(page, text, status)
        answered(page)
        t.check(says in page.evaluate(failure), f"{says}: {page.evaluate(failure)}")
    t.equal(page.evaluate("document.querySelectorAll('#log i, #log b').length"), 0, "markup in failures")
    # tools: what is called gets results by hand
    set_settings(page, tools="[{")
    page.click("#new")
    tool = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
    set_settings(page, tools=json.dumps([tool]))
    send(page, "1 + 2 and 3 + 4?")
    calls = [{"index": i, "id": f"c{i}", "type": "function", "function": {"name": "add", "arguments": f"[{i}]"}} for i in (0, 1)]
    body = answer_canned(page, canned({"tool_calls": calls}))
    t.equal(body["tools"], [tool], "tools")
    answered(page)
    audit(t, page, "fields for results")
    picture(page, pictures, "calls")
    for i in (1, 2):
        page.click(f".call:nth-of-type({i}) textarea")
        page.type(str(4 * i - 1))
    page.click(".result .button")
    body = answer_canned(page, canned({"content": "3 and 7"}, finish="stop"))
    sent = [{"id": f"c{i}", "type": "function", "function": {"name": "add", "arguments": f"[{i}]"}} for i in (0, 1)]
    t.equal(body["messages"][2:], [{"role": "assistant", "content": "", "tool_calls": sent}, {"role": "tool", "content": "3", "tool_call_id": "c0"},
            {"role": "tool", "content": "7", "tool_call_id": "c1"}], "calls and their results")
    answered(page)
    t.equal(page.evaluate(ANSWER), "3 and 7", "the answer to results")
    t.equal(page.evaluate("document.querySelectorAll('.result').length"), 0, "fields for results that were given")
    page.reload()
    page.wait("document.querySelectorAll('.message.tool').length === 2", "results are kept")
    picture(page, pictures, "results")
    page.call("Fetch.disable")
    page.click("#open-settings")
    page.click("#settings-reset")
    t.equal(page.evaluate("document.querySelector('#s-tools').value + document.querySelector('#s-seed').value"), "", "settings reset")
    page.key("Escape")
    page.errors = [e for e in page.errors if "502" not in e and "400" not in e]  # Chromium's own note of the status


def test_key(t, page, url):
    page.open(url)
    page.wait("document.querySelector('#key').open", "the question for a key")
    page.type("wrong")
    page.key("Enter")
    page.wait("document.querySelector('#key').open && document.querySelector('#key-why').textContent.includes('not known')")
    page.type("secret-key")
    page.key("Enter")
    page.wait("document.querySelector('#model').textContent.includes('parameters')", "the model's name")
    set_settings(page, max_tokens=12)
    send(page, "Once upon a time")
    answered(page)
    t.check(page.evaluate(f"{ANSWER}.length > 5"), "an answer by key")
    t.check(page.evaluate("!JSON.stringify(localStorage).includes('secret-key')"), "the key is not kept unasked")
    page.reload()
    page.wait("document.querySelector('#model').textContent.includes('parameters')", "the tab has it still")
    t.check(not page.evaluate("document.querySelector('#key').open"), "it is not asked for again")
    page.evaluate("sessionStorage.setItem('moeflux/key', 'old')")
    page.reload()
    page.wait("document.querySelector('#key').open")
    page.key("Escape")
    send(page, "And then")
    page.wait("document.querySelector('#key').open && document.querySelector('.failure:not([hidden])') !== null")
    page.type("secret-key")
    page.key("Enter")
    page.wait("document.querySelectorAll('.message').length === 4 && document.querySelectorAll('.failure:not([hidden])').length === 0")
    answered(page)
    t.check(page.evaluate(f"{ANSWER}.length > 5"), "what was asked for is answered, once the key is there")
    t.equal(page.evaluate("document.querySelectorAll('.versions').length"), 0, "versions")


def picture(page, folder, name):
    if folder:
        page.screenshot(os.path.join(folder, name + ".png"))


def check_requests(t, page, url):
    elsewhere = [r for r in page.requests if not r.startswith((url + "/", "data:", "blob:" + url + "/", "about:"))]
    t.equal(elsewhere, [], "requests to elsewhere")


def main():
    program, model, thinking = sys.argv[1:4]
    pictures = sys.argv[4] if len(sys.argv) > 4 else None
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if not chromium:
        sys.exit("check_page: there is no chromium; tools/setup.sh --dev installs it")
    t, scratch = Failures(), tempfile.TemporaryDirectory(prefix="moeflux-page-files-")
    folder = scratch.name
    with open(os.path.join(folder, "keys"), "w", encoding="utf-8", opener=lambda p, f: os.open(p, f, 0o600)) as file:
        file.write("secret-key\n")
    browser, servers = Browser(chromium), []
    try:
        servers = [Server(program, model), Server(program, thinking), Server(program, model, "--api-key-file", file.name)]
        page = Page(browser)
        page.size(1280, 800)
        test_answers(t, page, servers[0].url)
        test_versions(t, page)
        test_hostile(t, page, folder)
        test_files(t, page, folder)
        test_canned(t, page, pictures)
        test_bounds(t, page)
        test_scheme(t, page)
        test_engine(t, page)
        test_keyboard(t, page)
        test_audit(t, page, folder, pictures)
        check_requests(t, page, servers[0].url)
        t.equal(page.errors, [], "errors")
        page.close()
        page = Page(browser)
        page.size(1280, 800)
        test_thoughts(t, page, servers[1].url)
        check_requests(t, page, servers[1].url)
        t.equal(page.errors, [], "errors with thoughts")
        page.close()
        page = Page(browser)
        page.size(1280, 800)
        test_key(t, page, servers[2].url)
        t.check(all("401" in error for error in page.errors), f"errors with keys: {page.errors}")
    finally:
        browser.close()
        for server in servers:
            server.close()
        scratch.cleanup()
    print(f"page: {t.n_checks} checks, {len(t.failed)} failed")
    sys.exit(1 if t.failed else 0)


if __name__ == "__main__":
    main()
