# SPDX-License-Identifier: MIT
"""Models and sessions: what they hold, what they refuse, who may use and close them when."""
import copy
import gc
import os
import pickle
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import moeflux
from moeflux._native import ffi
from support import DEMO, GREEDY, ONCE, RAM, ModelTest, open_model, program


class Holding(ModelTest):
    def setUp(self) -> None:
        self.tokens = self.model.tokenizer.prompt(ONCE)

    def test_logits_are_the_librarys_own_memory(self) -> None:
        with self.model.session() as session:
            self.assertIsNone(session.logits)
            session.eval(self.tokens)
            first, second = session.logits, session.logits
            assert first is not None and second is not None
            self.assertEqual((first.dtype, first.shape), (np.float32, (self.model.info.n_vocab,)))
            self.assertEqual(
                first.__array_interface__["data"], second.__array_interface__["data"]
            )
            self.assertFalse(first.flags.owndata or first.flags.writeable)
            self.assertTrue(np.isfinite(first).all())

    def test_ways_to_the_same_tokens_give_the_same_bits(self) -> None:
        with self.model.session() as whole, self.model.session() as single:
            whole.eval(np.array(self.tokens, dtype=np.int32))
            for token in self.tokens:
                single.eval([token])
            np.testing.assert_array_equal(whole.logits, single.logits)
            self.assertEqual((whole.tokens, len(whole)), (self.tokens, len(self.tokens)))
            with whole.fork() as fork:
                np.testing.assert_array_equal(whole.logits, fork.logits)
                fork.eval(self.tokens[:1])
                self.assertEqual(whole.position, len(self.tokens))
            found = single.sync(self.tokens)
            self.assertEqual((found.source, found.n_evaluated), ("self", 0))

    def test_a_step_evaluates_several_sessions(self) -> None:
        sessions = [self.model.session() for _ in range(3)]
        items = [moeflux.StepItem(s, self.tokens[: i + 1]) for i, s in enumerate(sessions)]
        items.append(moeflux.StepItem(self.model.session(), [10**6]))
        self.model.step(items)
        self.assertEqual([item.n_done for item in items], [1, 2, 3, 0])
        self.assertIsInstance(items[3].error, moeflux.ArgumentError)
        self.assertEqual([item.error for item in items[:3]], [None] * 3)
        with self.assertRaises(moeflux.BudgetError):  # a fifth session
            self.model.session()
        items[3].session.eval(self.tokens[:3])
        np.testing.assert_array_equal(sessions[2].logits, items[3].session.logits)
        self.model.eval([(session, self.tokens) for session in sessions])
        self.assertEqual([s.position for s in sessions], [len(self.tokens) + n for n in (1, 2, 3)])
        cancel = moeflux.Cancel()
        cancel.request()
        item = moeflux.StepItem(sessions[0], self.tokens, cancel)
        self.model.step([item])
        self.assertIsInstance(item.error, moeflux.CancelledError)
        self.assertEqual(item.error.code if item.error else 0, moeflux.Status.CANCELLED)
        for session in sessions + [items[3].session]:
            session.close()

    def test_marks_and_snapshots(self) -> None:
        with self.model.session() as session, self.model.session() as other:
            session.eval(self.tokens[:3])
            at_three = np.array(session.logits)
            self.assertEqual((session.mark(), session.marks), (3, [3]))
            session.eval(self.tokens[3:])
            at_end, snapshot = np.array(session.logits), session.save()
            session.restore(3)
            np.testing.assert_array_equal(session.logits, at_three)
            other.load(snapshot)
            np.testing.assert_array_equal(other.logits, at_end)
            self.assertEqual(other.tokens, self.tokens)
            with tempfile.TemporaryFile() as file:
                other.save_to(file.fileno())
                file.seek(0)
                session.load_from(file.fileno())
                self.assertEqual(file.tell(), len(snapshot))
            np.testing.assert_array_equal(session.logits, at_end)
            snapshot[len(snapshot) // 2] ^= 1
            with self.assertRaises(moeflux.FormatError):
                session.load(snapshot)
            self.assertEqual(session.tokens, self.tokens)
            with self.assertRaises(moeflux.NotFoundError):
                session.restore(1)
            with self.assertRaises(moeflux.NotFoundError):  # it has recurrent layers, and no mark
                session.truncate(2)
            session.mark()
            session.eval([1, 2])
            self.assertEqual(session.truncate(len(self.tokens) + 1), len(self.tokens))

    def test_a_store_serves_another_model(self) -> None:
        prompt = self.model.tokenizer.encode(" ".join([ONCE] * 20))
        with tempfile.TemporaryDirectory() as directory:
            store = moeflux.Store(directory)
            with self.model.session() as session:
                session.eval(prompt)
                store.put(session)
            del store
            with open_model() as model, model.session() as session:
                model.set_store(moeflux.Store(directory))
                gc.collect()
                found = session.sync(prompt)
                self.assertEqual((found.source, found.n_reused), ("store", len(prompt)))

    def test_what_is_refused_says_so(self) -> None:
        with self.model.session() as session:
            wrong_tokens: Any = ([-1], [10**6], ["x"], [2**40])
            for tokens in wrong_tokens:
                with self.assertRaises(moeflux.ArgumentError):
                    session.eval(tokens)
            with self.assertRaises(moeflux.ContextError) as caught:
                session.eval([1] * (self.model.info.n_context_tokens + 1))
            self.assertIs(caught.exception.code, moeflux.Status.CONTEXT)
            again = pickle.loads(pickle.dumps(caught.exception))
            self.assertEqual((type(again), again.code), (moeflux.ContextError, -7))
            self.assertEqual(session.position, 0)
        with self.assertRaises(moeflux.MoefluxError) as nothing:
            moeflux.Model("/nonexistent")
        self.assertIn("/nonexistent", str(nothing.exception))
        self.assertNotEqual(nothing.exception.os_errno, 0)
        with self.assertRaises(moeflux.BudgetError):
            moeflux.Model(DEMO, ram_bytes="1M")
        wrong_options: Any = {
            "io": "fast", "ram_bytes": "much", "state_bytes": 1e9, "n_sessions": -1, "device": 0,
            "cpu_tier": "a\0b", "cache_dir": 5, "mirrors": [None], "log": "stderr",
        }
        for name, value in wrong_options.items():
            with self.assertRaisesRegex(moeflux.ArgumentError, f"^{name} is "):
                moeflux.inspect(DEMO, **{name: value})
        sizes: Any = {"ram_bytes": np.int64(400 << 20)}
        self.assertEqual(moeflux.inspect(DEMO, **sizes).ram_bytes, 400 << 20)
        with self.assertRaises(TypeError):
            moeflux.inspect(DEMO, memory=1)  # type: ignore[call-arg]

    def test_what_c_would_misread_is_refused(self) -> None:
        """Text that ends in the middle, digits and bytes for ids, numbers that do not fit."""
        model: Any = self.model
        session = model.session()
        calls: list[Any] = [
            lambda: open_model(DEMO + "\0x"),
            lambda: open_model("\ud800"),
            lambda: open_model(device="cpu\0x"),
            lambda: moeflux.Store("/nonexistent\0x"),
            lambda: model.generate(ONCE, stop="a\0b"),
            lambda: model.generate(ONCE, stop=[5]),
            lambda: model.generate(ONCE, stop="\ud800"),
            lambda: model.generate(ONCE, dry_breakers=["a\0b"]),
            lambda: model.generate(ONCE, dry_breakers="ab"),
            lambda: model.generate(ONCE, dry_breakers=1),
            lambda: open_model(mirrors="/nowhere"),
            lambda: model.generate(ONCE, logit_bias={2**40: 1.0}),
            lambda: model.generate(ONCE, logit_bias={"a": 1.0}),
            lambda: model.generate(b"Once"),
            lambda: model.generate_batch(ONCE),  # each letter would be a prompt
            lambda: model.chat_batch('[{"role": "user", "content": ""}]'),
            lambda: model.generate(ONCE, max_tokens=1.5),
            lambda: model.generate(ONCE, max_tokens="3"),
            lambda: model.generate(ONCE, stop=5),
            lambda: model.generate(ONCE, stop=b"ab"),
            lambda: model.generate(ONCE, gbnf=5),
            lambda: model.generate(ONCE, gbnf='root ::= "\ud800"'),
            lambda: model.generate(ONCE, json_schema='"\ud800"'),
            lambda: model.tokenizer.encode(b"Once"),
            lambda: model.tokenizer.encode("Once\ud800"),
            lambda: model.generate("\udcff"),  # a byte that os.fsdecode could not read
            lambda: model.chat([], thinking="off"),
            lambda: model.generate([1.5]),
            lambda: session.generate(["1"]),
            lambda: session.eval("12"),
            lambda: session.truncate(-1),
            lambda: session.restore(2**70),
            lambda: session.mark_every(-1),
            lambda: model.tokenizer.decode("12"),
            lambda: model.tokenizer.decode([2**40]),
            lambda: model.tokenizer.piece(2**40),
            lambda: model.tokenizer.is_end(2**40),
            lambda: model.tokenizer.is_special(-(2**40)),
            lambda: model.tokenizer.chat_text([], moeflux.ChatTemplate(now=2**70)),
            lambda: moeflux.Sampler(5).accept(2**40),
            lambda: moeflux.Store("/nonexistent", min_tokens=-1),
            lambda: model.grammar(json_object=True).guide().begin_after("a\0b"),
        ]
        for i, call in enumerate(calls):
            with self.subTest(i), self.assertRaises(moeflux.ArgumentError):
                call()
        self.assertEqual(session.position, 0)
        with self.assertRaises(moeflux.FormatError):  # which nothing satisfies
            model.generate(ONCE, json_schema=False)
        model.generate(ONCE, json_object=False, stop=None, max_tokens=1)
        open_model(predict_depth=2).close()

    def test_what_it_is(self) -> None:
        info = moeflux.inspect(DEMO, ram_bytes=RAM, n_threads=1, kv_type="bf16")
        self.assertIn(info.family, program("info", DEMO, "--ram", RAM))
        self.assertEqual((info.ram_bytes, info.n_sessions), (400 << 20, 1))
        self.assertEqual(info.left_out, [])
        sees = Path(__file__).resolve().parents[1] / "model/data/glm4v_moe_bf16"
        self.assertEqual(
            moeflux.inspect(sees, ram_bytes=RAM).left_out,
            [moeflux.LeftOut("vision tower", "model.visual.", 20, 60224)],
        )
        self.assertGreater(self.model.stats.n_tokens, 0)
        cpu = moeflux.devices()[0][0]
        self.assertEqual(cpu.id, "cpu")
        self.assertTrue(cpu.name.endswith(cpu.tiers.split(", ")[-1]))
        self.assertGreaterEqual(cpu.n_nodes, 1)
        self.assertIn(cpu.numa_use, ("one-node", "used", "given", "forbidden", "uneven"))
        self.assertIn(moeflux.version(), program("--version"))

    def test_nothing_that_the_library_says_is_left_out(self) -> None:
        kinds: Any = {
            "mf_model_info": moeflux.ModelInfo, "mf_stats": moeflux.Stats,
            "mf_device_info": moeflux.DeviceInfo, "mf_left_out": moeflux.LeftOut,
        }
        for kind, data in kinds.items():
            names = {name for name, _ in ffi.typeof(kind).fields} - {"struct_bytes", "n_left_out"}
            self.assertEqual(names, set(data.__dataclass_fields__), kind)


class Named(unittest.TestCase):
    """Models by their names, in a cache as huggingface_hub lays it out."""

    COMMIT = "0123456789abcdef0123456789abcdef01234567"

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.cache = Path(folder.name)
        changed = mock.patch.dict(os.environ, {"HF_HUB_CACHE": folder.name})
        changed.start()
        self.addCleanup(changed.stop)

    def keep(self, org: str, name: str) -> Path:
        folder = self.cache / f"models--{org}--{name}"
        (folder / "refs").mkdir(parents=True)
        (folder / "refs" / "main").write_text(self.COMMIT)
        snapshot = folder / "snapshots" / self.COMMIT
        snapshot.mkdir(parents=True)
        return snapshot

    def test_a_name_is_found(self) -> None:
        snapshot = self.keep("org", "tiny")
        for file in Path(DEMO).iterdir():
            (snapshot / file.name).symlink_to(file)
        for name in ("org/tiny", "org/tiny@main", f"org/tiny@{self.COMMIT}"):
            self.assertEqual(moeflux.find(name), snapshot)
        self.assertEqual(moeflux.inspect("org/tiny").n_vocab, moeflux.inspect(DEMO).n_vocab)
        with open_model("org/tiny") as model:
            should = program("run", DEMO, "-p", ONCE, "-n", "4", "--temp", "0")
            reply = model.generate(ONCE, max_tokens=4, **GREEDY)
            self.assertEqual(reply.content.strip(), should.strip())

    def test_one_of_several_files(self) -> None:
        snapshot = self.keep("org", "forms")
        for name in ("m-Q4_K_M", "m-Q8_0-00001-of-00002", "m-Q8_0-00002-of-00002"):
            (snapshot / f"{name}.gguf").touch()
        self.assertEqual(moeflux.find("org/forms:q4_k_m").name, "m-Q4_K_M.gguf")
        self.assertEqual(moeflux.find("org/forms:Q8_0").name, "m-Q8_0-00001-of-00002.gguf")
        with self.assertRaisesRegex(moeflux.NotFoundError, "0 GGUF models"):
            moeflux.find("org/forms:Q5_0")
        # as the program has it: the usual one, a word anywhere, any part, and models alone
        (snapshot / "BF16").mkdir()
        for name in ("mmproj-F16", "BF16/m-x"):
            (snapshot / f"{name}.gguf").touch()
        self.assertEqual(moeflux.find("org/forms").name, "m-Q4_K_M.gguf")
        self.assertEqual(moeflux.find("org/forms:bf16").name, "m-x.gguf")
        self.assertEqual(
            moeflux.find("org/forms:m-Q8_0-00002-of-00002.gguf").name, "m-Q8_0-00001-of-00002.gguf"
        )
        with self.assertRaisesRegex(moeflux.NotFoundError, "0 GGUF models"):
            moeflux.find("org/forms:F16")
        (snapshot / "m-Q4_K_M.gguf").unlink()
        with self.assertRaisesRegex(moeflux.NotFoundError, "2 GGUF models"):
            moeflux.find("org/forms")
        (snapshot / "model.safetensors").touch()
        self.assertEqual(moeflux.find("org/forms"), snapshot)

    def test_what_is_not_there_says_how_to_get_it(self) -> None:
        self.keep("org", "half")
        cases = {
            "org/none": "neither a path nor a model.*moeflux pull org/none",
            "org/half@dev": "not all of it",
            "org/half@../x": "neither a path",
        }
        for name, said in cases.items():
            with self.subTest(name), self.assertRaisesRegex(moeflux.NotFoundError, said):
                moeflux.Model(name)
        with self.assertRaises(moeflux.MoefluxError):
            moeflux.Model("a/b/c")


class Closing(unittest.TestCase):
    """Any order, any thread."""

    def test_any_order(self) -> None:
        for order in ((0, 1, 2), (2, 1, 0), (1, 0, 2), (0, 2, 1)):
            model = open_model(n_sessions=2)
            first = model.session()
            first.eval([1, 2, 3])
            second = first.fork()
            things: list[Any] = [model, first, second]
            for i in order:
                things[i].close()
                things[i].close()
            with self.assertRaisesRegex(moeflux.StateError, "closed"):
                first.eval([4])
            with self.assertRaisesRegex(moeflux.StateError, "closed"):
                model.session()
            self.assertTrue(first.is_closed and second.is_closed)

    def test_logits_outlive_their_model(self) -> None:
        model = open_model()
        session = model.session()
        session.eval([1, 2, 3])
        logits = session.logits
        assert logits is not None
        copy = logits.copy()
        session.close()
        model.close()
        del session, model
        gc.collect()
        for _ in range(3):  # others may use what memory was given back
            open_model().close()
        np.testing.assert_array_equal(logits, copy)

    def test_dropped_without_closing(self) -> None:
        for _ in range(3):
            model = open_model(n_sessions=2)
            stream = model.stream(ONCE, max_tokens=50)
            next(stream)
            grammar = model.grammar(json_object=True)
            guide = grammar.guide()
            del model, grammar
            gc.collect()
            self.assertTrue(next(stream))  # it keeps what it needs
            self.assertIsNotNone(guide.mask(5000))
            del stream, guide
            gc.collect()

    def test_what_the_library_owns_is_not_copied(self) -> None:
        with open_model() as model, mock.patch.object(sys, "unraisablehook") as unraisable:
            grammar = model.grammar(json_object=True)
            for what in (
                *(model, model.session(), model.tokenizer, moeflux.Decoder(model.tokenizer)),
                *(grammar, grammar.guide(), moeflux.Cancel()),
            ):
                for copied in (copy.copy, copy.deepcopy, pickle.dumps):
                    name = type(what).__name__
                    with self.assertRaisesRegex(TypeError, f"^{name} cannot be copied or pickled"):
                        copied(what)
            gc.collect()
            unraisable.assert_not_called()

    def test_dropped_in_a_cycle(self) -> None:
        """The collector finalizes what is in it in any order: an engine not before its sessions."""
        for _ in range(4):
            model = open_model(n_sessions=2)
            with tempfile.TemporaryDirectory() as folder:
                model.set_store(moeflux.Store(folder))
            session = model.session()
            session.eval([1, 2, 3])
            guide = model.grammar(json_object=True).guide()
            held: list[object] = [model, session, guide, moeflux.Sampler(9, None, model.tokenizer)]
            held.append(held)
            del model, session, guide, held
            gc.collect()

    def test_a_fork_leaves_it_to_the_process_that_opened_it(self) -> None:
        """In the child it is refused, and neither closing nor exiting waits for threads that are not
        there; the parent's goes on."""
        script = f"""if True:
            import os, signal, sys, moeflux
            model = moeflux.Model({DEMO!r}, ram_bytes={RAM!r}, device="cpu", n_sessions=2)
            session = model.session()
            session.eval([1, 2, 3])
            for closes in (True, False):
                child = os.fork()
                if child == 0:
                    signal.alarm(20)
                    for call in (lambda: session.eval([4]), model.session, lambda: session.logits):
                        try:
                            call()
                        except moeflux.StateError as refused:
                            assert "fork" in str(refused), refused
                        else:
                            os._exit(1)
                    if closes:
                        session.close()
                        model.close()
                    sys.exit(0)
                assert os.waitpid(child, 0)[1] == 0
                session.eval([4])
                assert session.logits is not None
        """
        subprocess.run([sys.executable, "-c", script], check=True)

    def test_left_to_the_end_of_the_process(self) -> None:
        lines = [
            "import moeflux, threading, time",
            f"model = moeflux.Model({DEMO!r}, ram_bytes={RAM!r}, n_sessions=3, device='cpu')",
            "held = [model, model.session(), model.stream('Once', max_tokens=9)]",
            "next(held[2])",
            "held.append(held)",
        ]
        busy = [
            "loop = lambda: [model.generate('Once', max_tokens=200) for _ in range(99)]",
            "threading.Thread(target=loop, daemon=True).start()",
            "time.sleep(0.05)",
        ]
        for whole in (lines, lines + busy):
            done = subprocess.run([sys.executable, "-c", "\n".join(whole)], capture_output=True)
            self.assertEqual((done.returncode, done.stderr), (0, b""))

    def test_a_stream_that_is_left_gives_its_session_back(self) -> None:
        """At once, and not when the collector comes."""
        gc.disable()
        self.addCleanup(gc.enable)
        with open_model(n_sessions=1) as model:
            stream = model.stream(ONCE, max_tokens=9)
            del stream
            for _ in model.stream(ONCE, max_tokens=9):
                break
            stream = model.stream(ONCE, max_tokens=9)
            next(stream)
            del stream
            model.generate(ONCE, max_tokens=1)

    def test_what_failed_holds_no_session(self) -> None:
        with open_model(n_sessions=1) as model:
            try:
                model.stream([10**6])
            except moeflux.ArgumentError as error:  # is there, and its frames
                model.generate(ONCE, max_tokens=1)
                self.assertIn("outside the vocabulary", str(error))

    def test_a_stream_is_one_threads(self) -> None:
        with open_model() as model, model.session() as session:
            stream = session.stream([1] * 4000, max_tokens=2)
            caught: list[moeflux.MoefluxError] = []

            def read() -> None:
                try:
                    next(stream)
                except moeflux.MoefluxError as error:
                    caught.append(error)

            thread = threading.Thread(target=read)
            thread.start()
            with self.assertRaisesRegex(moeflux.StateError, "session is being used"):
                while thread.is_alive():
                    session.marks
            for call in (stream.__next__, stream.close):
                with self.assertRaisesRegex(moeflux.StateError, "stream is being used"):
                    call()
            while thread.is_alive():  # once may be between two chunks
                session.cancel()
                thread.join(0.01)
            self.assertEqual([type(e) for e in caught], [moeflux.CancelledError])
            stream.close()

    def test_a_model_closed_under_a_stream_raises_in_it(self) -> None:
        model = open_model()
        stream = model.stream(ONCE, max_tokens=50)
        next(stream)
        model.close()
        with self.assertRaises(moeflux.StateError) as caught:
            next(stream)
        self.assertEqual(caught.exception.code, moeflux.Status.STATE)

    def test_closing_while_it_evaluates_is_refused(self) -> None:
        """And another thread's Python runs meanwhile: the GIL is let go."""
        with open_model(n_sessions=2) as model, model.session() as session:
            began = threading.Event()
            caught: list[moeflux.MoefluxError] = []

            def progress(_n_done: int, _n_total: int) -> bool:
                began.set()
                return False

            def evaluate() -> None:
                try:
                    session.eval([1] * 4000, progress=progress)
                except moeflux.MoefluxError as error:
                    caught.append(error)

            thread = threading.Thread(target=evaluate)
            thread.start()
            began.wait()
            refused = 0
            for call in (model.close, session.close, lambda: session.position, session.clear):
                with self.assertRaisesRegex(moeflux.StateError, "used by another call"):
                    call()
                refused += 1
            self.assertTrue(thread.is_alive())
            with model.session() as other:  # another session of it is another's business
                self.assertEqual(other.position, 0)
            session.cancel()
            thread.join()
            self.assertEqual([type(e) for e in caught], [moeflux.CancelledError])
            self.assertEqual(refused, 4)

    def test_a_progress_that_raises_or_stops(self) -> None:
        with open_model() as model, model.session() as session:

            def fails(n_done: int, n_total: int) -> bool:
                raise KeyError(n_total >= n_done)

            with self.assertRaises(KeyError):
                session.eval([1, 2, 3], progress=fails)
            with self.assertRaises(moeflux.CancelledError):
                session.eval([1, 2, 3], progress=lambda n_done, n_total: True)
            self.assertEqual(session.position, 0)
            session.eval([1, 2, 3])
            self.assertEqual(session.position, 3)

    def test_an_interrupt_ends_an_evaluation(self) -> None:
        import signal

        with open_model() as model, model.session() as session:
            # Whoever is started in the background ignores it.
            before = signal.signal(signal.SIGINT, signal.default_int_handler)
            self.addCleanup(signal.signal, signal.SIGINT, before)
            timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
            timer.start()
            with self.assertRaises(KeyboardInterrupt):
                while True:
                    session.clear()
                    session.eval([1] * 2000)
            timer.join()
            session.clear()
            session.eval([1])

    def test_many_threads_many_sessions(self) -> None:
        with open_model(n_sessions=4) as model:
            should = model.generate(ONCE, max_tokens=12, **GREEDY).content
            got: list[str] = []

            def run() -> None:
                for _ in range(3):
                    got.append(model.generate(ONCE, max_tokens=12, **GREEDY).content)

            threads = [threading.Thread(target=run) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(got, [should] * 12)
            self.assertEqual(model.stats.n_sessions, 0)

    def test_notes_are_told(self) -> None:
        lines: list[tuple[str, str]] = []

        def log(level: str, line: str) -> None:
            lines.append((level, line))

        with tempfile.NamedTemporaryFile() as file:  # no directory: told, and no error
            with open_model(hot_dir=file.name, log=log):
                pass
        self.assertTrue(lines and all(level in ("info", "warning") for level, _ in lines))


if __name__ == "__main__":
    unittest.main()
