# SPDX-License-Identifier: MIT
"""Chromium without a window, driven over its DevTools pipe: what a test of a page wants of it, and nothing but
Python's own library."""
import base64
import json
import os
import select
import subprocess
import tempfile
import time

FLAGS = [
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]
KEYS = {
    "Enter": ("Enter", 13, "\r"),
    "Escape": ("Escape", 27, ""),
    "Tab": ("Tab", 9, ""),
    "Backspace": ("Backspace", 8, ""),
    "ArrowUp": ("ArrowUp", 38, ""),
    "ArrowDown": ("ArrowDown", 40, ""),
    "Space": ("Space", 32, " "),
}
ALT, CONTROL, SHIFT = 1, 2, 8


class Browser:
    def __init__(self, program):
        self.folder = tempfile.TemporaryDirectory(prefix="moeflux-page-")
        from_us, to_browser = os.pipe()
        from_browser, to_us = os.pipe()
        # The browser reads from 3 and writes to 4: out of the way first.
        moved = [os.dup(from_us), os.dup(to_us)]
        while min(moved) < 5:
            moved = [os.dup(fd) for fd in moved]

        def arrange():
            os.dup2(moved[0], 3)
            os.dup2(moved[1], 4)

        flags = FLAGS + ["--user-data-dir=" + self.folder.name]
        if os.geteuid() == 0:
            flags.append("--no-sandbox")
        self.process = subprocess.Popen(
            [program, *flags],
            preexec_fn=arrange,
            pass_fds=(3, 4),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for fd in (from_us, to_us, *moved):
            os.close(fd)
        self.out, self.inward = to_browser, from_browser
        self.rest, self.number, self.answers, self.events = b"", 0, {}, []
        self.listeners = []

    def close(self):
        try:
            self.call("Browser.close", {}, None, 5)
        except (OSError, TimeoutError, RuntimeError):
            pass
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.out)
        os.close(self.inward)
        for _ in range(20):
            try:
                self.folder.cleanup()
                return
            except OSError:
                time.sleep(0.1)

    def pump(self, seconds):
        """Takes in what the browser says within so many seconds, at least one message if there is one."""
        ready, _, _ = select.select([self.inward], [], [], max(0, seconds))
        if not ready:
            return
        data = os.read(self.inward, 1 << 20)
        if not data:
            raise RuntimeError("the browser has gone")
        *whole, self.rest = (self.rest + data).split(b"\0")
        for text in whole:
            message = json.loads(text)
            if "id" in message:
                self.answers[message["id"]] = message
            else:
                for listener in self.listeners:
                    listener(message)

    def call(self, method, params=None, session=None, timeout=60):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params or {}}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.out, data) :]
        number, end = self.number, time.monotonic() + timeout
        while number not in self.answers:
            if time.monotonic() > end:
                raise TimeoutError(method)
            self.pump(end - time.monotonic())
        answer = self.answers.pop(number)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["result"]


class Page:
    """A tab. errors: what went to the console as an error, was thrown or refused by the policy; requests: all URLs;
    paused: requests that Fetch.enable holds."""

    def __init__(self, browser):
        self.browser = browser
        self.errors, self.requests, self.paused = [], [], []
        context = browser.call("Target.createBrowserContext")["browserContextId"]
        target = browser.call("Target.createTarget", {"url": "about:blank", "browserContextId": context})["targetId"]
        self.session = browser.call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        self.target, self.context = target, context
        browser.listeners.append(self.listen)
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")

    def close(self):
        self.browser.listeners.remove(self.listen)
        self.browser.call("Target.closeTarget", {"targetId": self.target})

    def call(self, method, params=None):
        return self.browser.call(method, params, self.session)

    def listen(self, message):
        if message.get("sessionId") != self.session:
            return
        method, params = message["method"], message["params"]
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.errors.append(str([a.get("value", a.get("description")) for a in params["args"]]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.errors.append(params["entry"]["text"] + " " + params["entry"].get("url", ""))
        elif method == "Fetch.requestPaused":
            self.paused.append(params)
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    def evaluate(self, script):
        result = self.call("Runtime.evaluate", {"expression": script, "awaitPromise": True, "returnByValue": True})
        if "exceptionDetails" in result:
            details = result["exceptionDetails"]
            raise RuntimeError(details.get("exception", {}).get("description") or details["text"])
        return result["result"].get("value")

    def wait(self, script, what=None, timeout=60):
        """Until the script is true; its value."""
        end = time.monotonic() + timeout
        while True:
            value = self.evaluate(script)
            if value:
                return value
            if time.monotonic() > end:
                raise TimeoutError(f"{what or script}: not within {timeout} s")
            self.browser.pump(0.03)

    def open(self, url):
        self.call("Page.navigate", {"url": url})
        self.wait("document.readyState === 'complete'")

    def reload(self):
        self.evaluate("window.wasBefore = true")
        self.call("Page.reload")
        self.wait("!window.wasBefore && document.readyState === 'complete'")

    def size(self, width, height, is_phone=False, scale=1):
        params = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": is_phone}
        self.call("Emulation.setDeviceMetricsOverride", params)

    def media(self, **features):
        """prefers_color_scheme="dark", prefers_reduced_motion="reduce" """
        wanted = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        self.call("Emulation.setEmulatedMedia", {"features": wanted})

    def key(self, name, modifiers=0):
        code, number, text = KEYS.get(name) or ("Key" + name.upper() if name.isalpha() else name, ord(name.upper()), name)
        named = name if name in KEYS and name != "Space" else text
        params = {"key": named, "code": code, "windowsVirtualKeyCode": number, "modifiers": modifiers}
        if text and not modifiers & (CONTROL | ALT):
            self.call("Input.dispatchKeyEvent", {"type": "keyDown", "text": text, **params})
        else:
            self.call("Input.dispatchKeyEvent", {"type": "rawKeyDown", **params})
        self.call("Input.dispatchKeyEvent", {"type": "keyUp", **params})

    def type(self, text):
        self.call("Input.insertText", {"text": text})

    def click(self, selector):
        box = self.evaluate(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); if (!e) return null;"
            "e.scrollIntoView({block: 'nearest'}); const b = e.getBoundingClientRect();"
            "return [b.x + b.width / 2, b.y + b.height / 2, b.width]; })()"
        )
        if not box or box[2] == 0:
            raise RuntimeError(f"{selector} is not there to be clicked")
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            params = {"type": kind, "x": box[0], "y": box[1], "button": "left", "clickCount": 1}
            self.call("Input.dispatchMouseEvent", params if kind != "mouseMoved" else {**params, "button": "none"})

    def screenshot(self, path):
        data = self.call("Page.captureScreenshot", {"format": "png"})["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))

    def choose_file(self, selector, path):
        document = self.call("DOM.getDocument")["root"]["nodeId"]
        node = self.call("DOM.querySelector", {"nodeId": document, "selector": selector})["nodeId"]
        self.call("DOM.setFileInputFiles", {"nodeId": node, "files": [path]})
