# SPDX-License-Identifier: MIT
"""What the tests share: the demo model, as it is and as one that chats, and the program."""
import os
import subprocess
import unittest
from typing import Any

import moeflux

DEMO = os.environ["MOEFLUX_DEMO"]
#: the demo with a chat template: it thinks, and it calls a tool
THINKS = os.environ.get("MOEFLUX_THINKS", "")
CALLS = os.environ.get("MOEFLUX_CALLS", "")
PROGRAM = os.environ["MOEFLUX_PROGRAM"]
RAM = "400M"
ONCE = "Once upon a time"
GREEDY: dict[str, Any] = {"temperature": 0.0}


def open_model(path: str = DEMO, **options: Any) -> moeflux.Model:
    chosen: Any = {"ram_bytes": RAM, "device": "cpu", **options}
    return moeflux.Model(path, **chosen)


def program(*arguments: str) -> str:
    """What the program writes."""
    command = [PROGRAM, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


class ModelTest(unittest.TestCase):
    """Tests of one model, which each begins without sessions."""

    options: dict[str, Any] = {"n_sessions": 4}
    path = DEMO
    model: moeflux.Model

    @classmethod
    def setUpClass(cls) -> None:
        cls.model = open_model(cls.path, **cls.options)

    @classmethod
    def tearDownClass(cls) -> None:
        cls.model.close()
