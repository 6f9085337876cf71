# SPDX-License-Identifier: MIT
"""Answers: texts, conversations, grammars, calls, streams; held against the program."""
import asyncio
import gc
import json
import os
import subprocess
import sys
import threading
import unittest
from pathlib import Path
from typing import Any

import numpy as np

import moeflux
from support import CALLS, DEMO, GREEDY, ONCE, RAM, THINKS, ModelTest, open_model, program

NOON = {
    "type": "function",
    "function": {
        "name": "noon",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "number"}, "b": {"type": "integer"}},
            "required": ["a"],
        },
    },
}
#: what the test's models say for " was": the end of a thought, a call
SAYS: Any = {"logit_bias": {316: 300.0}, **GREEDY}
#: digits and blanks of JSON that never end are not likely
BRIEF: Any = {"seed": 3, "frequency_penalty": 2.0}
#: after some words there are more ways to read them than a guide follows
AMBIGUOUS = """root ::= a
a ::= [a-z ] a b | [a-z ] a c | [a-z ] a d | ""
b ::= "x"
c ::= "y"
d ::= "z"
"""
SCHEMA = {
    "type": "object",
    "properties": {"name": {"enum": ["king", "queen"]}, "old": {"type": "boolean"}},
    "required": ["name", "old"],
    "additionalProperties": False,
}


class Text(ModelTest):
    def test_the_program_writes_the_same(self) -> None:
        cases: Any = (
            (GREEDY, ["--temp", "0"]),
            ({"seed": 7}, ["--seed", "7"]),
            ({"seed": 7, "top_k": 5, "top_p": 0.9, "temperature": 1.2},
             ["--seed", "7", "--top-k", "5", "--top-p", "0.9", "--temp", "1.2"]),
        )  # fmt: skip
        for options, arguments in cases:
            should = program("run", DEMO, "-p", ONCE, "-n", "40", "--ram", RAM, *arguments)
            reply = self.model.generate(ONCE, max_tokens=40, **options)
            self.assertEqual(reply.content.strip(), should.strip())
            self.assertEqual((reply.finish_reason, len(reply.tokens)), ("length", 40))

    def test_tokens_are_the_programs(self) -> None:
        text = "The king's daughter — said: 'Söll ich?' 🙂"
        tokens = self.model.tokenizer.encode(text)
        listed = program("tokenize", DEMO, "-p", text)
        self.assertEqual([int(line.split()[0]) for line in listed.splitlines()], tokens)
        self.assertEqual(self.model.tokenizer.decode(tokens), text)
        decoder = self.model.tokenizer.decoder()
        self.assertEqual("".join(map(decoder.push, tokens)) + decoder.finish(), text)
        with self.assertRaises(moeflux.NotFoundError):  # it has no template
            self.model.tokenizer.chat_text([{"role": "user", "content": "x"}])

    def test_streams_batches_and_turns_agree(self) -> None:
        whole = self.model.generate(ONCE, max_tokens=30, **GREEDY)
        with self.model.stream(ONCE, max_tokens=30, **GREEDY) as stream:
            pieces = list(stream)
        self.assertEqual("".join(pieces), whole.content)
        self.assertGreater(len(pieces), 10)
        self.assertEqual(stream.reply, whole)
        prompts = [ONCE, "The king", "A cat", "The old woman said", "Far away", ONCE]
        together = self.model.generate_batch(prompts, max_tokens=30, **GREEDY)
        self.assertEqual([together[0].content, together[5].content], [whole.content] * 2)
        alone = self.model.generate("A cat", max_tokens=30, **GREEDY)
        self.assertEqual(together[2].content, alone.content)
        with self.model.session() as session:
            first = session.generate(ONCE, max_tokens=11, **GREEDY).content
            second = session.generate([], max_tokens=19, **GREEDY).content
        self.assertEqual(first + second, whole.content)

    def test_what_is_meant_is_said(self) -> None:
        reply = self.model.generate(ONCE, max_tokens=4, **GREEDY)
        self.assertEqual(str(reply), reply.content)
        cases: Any = (
            ({"max_new_tokens": 4}, TypeError, "did you mean 'max_tokens'"),
            ({"topp": 0.9}, TypeError, "did you mean 'top_p'"),
            ({"sing": 1}, TypeError, "unexpected option 'sing'$"),
            ({"grammar": 'root ::= "a"'}, moeflux.ArgumentError, "gbnf= and json_schema="),
        )
        for options, error, said in cases:
            with self.subTest(options), self.assertRaisesRegex(error, said):
                self.model.generate(ONCE, **options)
        of_chats: Any = {
            "thinking": False, "documents": [], "variables": {}, "template_name": "rag",
            "tool_choice": "none",
        }
        for name, value in of_chats.items():
            with self.assertRaisesRegex(moeflux.ArgumentError, f"^{name} is of conversations"):
                self.model.generate(ONCE, **{name: value})
        with self.assertRaisesRegex(TypeError, "did you mean 'n_threads'"):
            open_model(nthreads=2)

    def test_the_publishers_options_stay_wherever_the_process_goes(self) -> None:
        """A relative path is of the folder that the model was opened in."""
        script = f"""if True:
            import os, moeflux
            os.chdir({os.path.dirname(DEMO)!r})
            with moeflux.Model({os.path.basename(DEMO)!r}, ram_bytes={RAM!r}, device="cpu") as model:
                there = model.generate({ONCE!r}, max_tokens=12, seed=1).tokens
                os.chdir("/")
                assert model.generate({ONCE!r}, max_tokens=12, seed=1).tokens == there
        """
        subprocess.run([sys.executable, "-c", script], check=True)

    def test_the_last_token_of_an_answer_is_not_lost(self) -> None:
        """Nobody has evaluated it: what comes behind it begins with it, and nothing else does."""
        prompt = self.model.tokenizer.prompt(ONCE)

        def held(session: moeflux.Session) -> list[int]:
            session.generate([1, 2], max_tokens=1, **GREEDY)
            return session.tokens

        with self.model.session() as session:
            said = session.generate(ONCE, max_tokens=5, **GREEDY).tokens
            with session.fork() as fork:
                self.assertEqual(held(fork), [*prompt, *said, 1, 2])
            session.truncate(len(session))
            self.assertEqual(held(session), [*prompt, *said, 1, 2])
            session.clear()
            stream = session.stream(ONCE, max_tokens=5, **GREEDY)
            for _ in range(2):
                next(stream)
            stream.close()
            said = stream.reply.tokens
            self.assertEqual(held(session), [*prompt, *said, 1, 2])
            # of another sequence of as many tokens none is left
            for _ in range(2):
                n, snapshot = len(session), session.save()
                session.clear()
                session.eval([5] * n)
                self.assertEqual(held(session), [5] * n + [1, 2])
                session.generate([3], max_tokens=1, **GREEDY)
                session.load(snapshot)
                session.sync([6] * len(session))
                self.assertEqual(held(session), [6] * n + [1, 2])

    def test_of_several_answers_one_may_fail(self) -> None:
        """Wherever it stands, and however many are evaluated with it."""
        n_most = self.model.info.n_context_tokens
        prompts: Any = [ONCE, [10**6], "Two", [1] * (n_most + 1)]
        held = [self.model.session() for _ in range(3)]
        for _ in range(2):
            replies = self.model.generate_batch(prompts, max_tokens=2, **GREEDY)
            self.assertEqual(
                [(r.finish_reason, type(r.error).__name__) for r in replies],
                [("length", "NoneType"), ("error", "ArgumentError")]
                + [("length", "NoneType"), ("error", "ContextError")],
            )
            for session in held:
                session.close()
        with self.assertRaises(moeflux.ContextError):
            self.model.generate_batch(prompts[3:], max_tokens=2, **GREEDY)
        replies = self.model.generate_batch([ONCE, "Two"], gbnf=AMBIGUOUS, max_tokens=60, **GREEDY)
        for reply in replies:
            self.assertIsInstance(reply.error, moeflux.UnsupportedError)
            self.assertEqual(reply.finish_reason, "error")
        with self.assertRaises(moeflux.UnsupportedError):
            self.model.generate(ONCE, gbnf=AMBIGUOUS, max_tokens=60, **GREEDY)

    def test_stop_texts_end_it_and_are_not_given_out(self) -> None:
        whole = self.model.generate(ONCE, max_tokens=60, **GREEDY).content
        for stop in (whole[30:36], whole[41:42]):
            reply = self.model.generate(ONCE, max_tokens=60, stop=["zzzz", stop], **GREEDY)
            self.assertEqual(reply.content, whole[: whole.index(stop)])
            self.assertEqual(reply.finish_reason, "stop")

    def test_a_schema_holds(self) -> None:
        for seed in range(5):
            reply = self.model.generate(ONCE, json_schema=SCHEMA, max_tokens=200, seed=seed)
            self.assertEqual(reply.finish_reason, "stop")
            value = json.loads(reply.content)
            self.assertEqual(set(value), {"name", "old"})
            self.assertIn(value["name"], ("king", "queen"))
        grammar = self.model.grammar(gbnf='root ::= "yes" | "no"')
        answers = self.model.generate_batch([ONCE, "The king"], grammar=grammar)
        self.assertTrue(all(a.content in ("yes", "no") for a in answers))
        cases: Any = ({"json_schema": "{"}, {"gbnf": "root ::= x"}, {"json_schema": {"not": {}}})
        for wrong in cases:
            with self.assertRaises((moeflux.FormatError, moeflux.UnsupportedError)):
                self.model.generate(ONCE, **wrong)
        with self.assertRaises(moeflux.ArgumentError):
            self.model.generate(ONCE, json_object=True, gbnf='root ::= "x"')

    def test_a_grammar_of_another_vocabulary_is_refused(self) -> None:
        """Its masks forbid and allow other tokens than they say."""
        other = Path(__file__).resolve().parents[1] / "text/data/several"
        foreign = moeflux.Grammar(moeflux.Tokenizer(other), gbnf='root ::= "yes"')
        with self.assertRaisesRegex(moeflux.ArgumentError, "another vocabulary"):
            self.model.generate(ONCE, grammar=foreign)
        own = moeflux.Grammar(moeflux.Tokenizer(DEMO), gbnf='root ::= "yes"')
        self.assertEqual(self.model.generate(ONCE, grammar=own).content, "yes")

    def test_a_guide_by_hand(self) -> None:
        guide = self.model.grammar(gbnf='root ::= "a" [bc]').guide()
        tokens = self.model.tokenizer.encode("ab")
        mask = guide.mask(self.model.info.n_vocab)
        assert mask is not None
        bits = np.unpackbits(np.frombuffer(mask, dtype=np.uint8), bitorder="little")
        self.assertTrue(bits[tokens[0]])
        copy = guide.clone()
        for token in tokens:
            guide.accept(token)
        self.assertTrue(guide.is_done and guide.may_end and not copy.may_end)
        with self.assertRaises(moeflux.ArgumentError):
            guide.accept(tokens[0])

    def test_a_sampler_by_hand(self) -> None:
        n = self.model.info.n_vocab
        with self.model.session() as session:
            session.eval(self.model.tokenizer.prompt(ONCE))
            logits = session.logits
            assert logits is not None
            sampler = moeflux.Sampler(n, temperature=0.0)
            self.assertEqual(sampler.sample(logits), int(logits.argmax()))
            banned = moeflux.Sampler(n, temperature=0.0, logit_bias={int(logits.argmax()): -1e9})
            self.assertEqual(banned.sample(logits), int(logits.argsort()[-2]))
            only = np.zeros((n + 31) // 32, dtype=np.uint32)
            only[77 // 32] = 1 << (77 % 32)
            self.assertEqual(sampler.sample(logits, only), 77)
            with self.assertRaisesRegex(moeflux.ArgumentError, "no bit is set"):
                sampler.sample(logits, np.zeros_like(only))
            wrong_masks: Any = (np.ones(n, bool), np.ones(n // 32, np.int64), [1] * n, bytearray(4))
            for wrong in wrong_masks:
                with self.assertRaises(moeflux.ArgumentError):
                    sampler.sample(logits, wrong)
            wrong_logits: Any = (logits[:-1], logits.astype(np.float64), list(logits), logits[::-1])
            for wrong in wrong_logits:
                with self.assertRaises(moeflux.ArgumentError):
                    sampler.sample(wrong)
            with self.assertRaises(moeflux.ArgumentError):
                moeflux.Sampler(n, temperature=-1.0)


class Chat(ModelTest):
    path = THINKS

    def test_a_thought_and_its_answer(self) -> None:
        messages = [{"role": "user", "content": "Tell me a story."}]
        text = self.model.tokenizer.chat_text(messages)
        self.assertIn("<|im_start|>user\nTell me a story.<|im_end|>", text)
        with self.model.session() as session:
            reply = session.chat(messages, max_tokens=20, **GREEDY)
            self.assertEqual((bool(reply.thought), reply.content), (True, ""))
            messages += [reply.message(), {"role": "user", "content": "Another one."}]
            again = session.chat(messages, max_tokens=8, **GREEDY)
            self.assertGreater(again.n_reused_tokens, 10)
        fresh = self.model.chat(messages, max_tokens=8, **GREEDY)
        self.assertEqual(fresh.tokens, again.tokens)
        events = list(self.model.stream_chat(messages, max_tokens=8, **GREEDY))
        self.assertEqual({e.kind for e in events}, {moeflux.EventKind.THOUGHT})
        quick = self.model.chat(messages, thinking=False, max_tokens=8, **GREEDY)
        self.assertEqual((quick.thought, bool(quick.content)), ("", True))

    def test_a_schema_stands_behind_the_thought(self) -> None:
        reply = self.model.chat(
            [{"role": "user", "content": "Who?"}], json_schema=SCHEMA, max_tokens=400, **SAYS
        )
        self.assertEqual(reply.tokens[0], 316)
        self.assertEqual(set(json.loads(reply.content)), {"name", "old"})

    def test_a_session_cleared_under_its_answer_is_said_to_be(self) -> None:
        """Where the whole prompt was held nothing is evaluated first: there are no logits."""
        messages = [{"role": "user", "content": "Hello"}]
        with self.model.session() as session:
            session.eval(self.model.tokenizer.chat_encode(messages))
            stream = session.stream_chat(messages, max_tokens=4)
            self.assertEqual(stream.reply.n_reused_tokens, stream.reply.n_prompt_tokens)
            session.clear()
            with self.assertRaisesRegex(moeflux.StateError, "no logits"):
                next(stream)

    def test_what_a_user_writes_is_text(self) -> None:
        tokens = self.model.tokenizer.chat_encode([{"role": "user", "content": "<|im_end|>"}])
        end = self.model.tokenizer.encode("<|im_end|>")
        self.assertEqual(len(end), 1)
        self.assertEqual(tokens.count(end[0]), 1)


class Calls(ModelTest):
    path = CALLS
    messages = [{"role": "user", "content": "When is noon?"}]

    def test_a_call_is_taken_apart(self) -> None:
        reply = self.model.chat(self.messages, [NOON], max_tokens=1, **SAYS)
        self.assertEqual((reply.thought, reply.finish_reason), ("Hm.", "length"))
        self.assertTrue(reply.tool_calls[0].is_whole)
        function: Any = NOON["function"]
        bound: dict[str, Any] = {**function, "strict": True}
        reply = self.model.chat(self.messages, [bound], max_tokens=2, **SAYS)
        self.assertEqual(len(reply.tool_calls), 2)
        self.assertNotEqual(reply.tool_calls[0].id, reply.tool_calls[1].id)
        call = reply.tool_calls[0]
        self.assertEqual((call.name, call.parsed()), ("noon", {"b": 2, "a": 1.0}))
        self.assertEqual(reply.message()["tool_calls"][0]["function"]["name"], "noon")
        plain = self.model.chat(self.messages, [NOON], tool_choice="none", max_tokens=1, **SAYS)
        self.assertEqual(plain.tool_calls, [])

    def test_a_call_that_must_come(self) -> None:
        for choice in ("required", "noon"):
            reply = self.model.chat(
                self.messages, [NOON], tool_choice=choice, max_tokens=900, **BRIEF
            )
            self.assertEqual(reply.finish_reason, "tool_calls")
            self.assertLessEqual({"a"}, set(reply.tool_calls[0].parsed()))
        with self.assertRaises(moeflux.ArgumentError):
            self.model.chat(self.messages, [NOON], tool_choice="midnight")
        with self.assertRaisesRegex(moeflux.ArgumentError, "there are no tools"):
            self.model.chat(self.messages, tool_choice="required")


class Async(unittest.TestCase):
    def test_requests_are_answered_together(self) -> None:
        async def run(model: moeflux.Model) -> None:
            should = model.generate(ONCE, max_tokens=20, **GREEDY).content
            async with moeflux.AsyncModel(model, n_waiting=16) as served:
                options: Any = {"max_tokens": 20, **GREEDY}
                replies = await asyncio.gather(
                    *[served.generate(ONCE, **options) for _ in range(9)]
                )
                self.assertEqual([r.content for r in replies], [should] * 9)
                pieces = [p async for p in await served.stream(ONCE, max_tokens=20, **GREEDY)]
                self.assertEqual("".join(pieces), should)
                with self.assertRaises(moeflux.ContextError):
                    await served.generate([1] * 10000)
                with self.assertRaises(moeflux.ArgumentError):
                    await served.generate(ONCE, max_tokens=0)
                await self._leave(served, model)
            with self.assertRaises(moeflux.StateError):
                await served.generate(ONCE)
            self.assertEqual(model.stats.n_sessions, 0)

        with open_model(n_sessions=4) as model:
            asyncio.run(run(model))

    def test_one_that_fails_ends_alone(self) -> None:
        """What fails between two steps, too: a grammar of one that cannot be followed."""

        async def run(model: moeflux.Model) -> None:
            options: Any = {"max_tokens": 60, **GREEDY}
            should = model.generate(ONCE, **options).content
            async with moeflux.AsyncModel(model) as served:
                whole, refused = await asyncio.gather(
                    served.generate(ONCE, **options),
                    served.generate(ONCE, gbnf=AMBIGUOUS, **options),
                    return_exceptions=True,
                )
                assert isinstance(whole, moeflux.Reply), whole
                self.assertEqual((whole.content, whole.finish_reason), (should, "length"))
                self.assertIsInstance(refused, moeflux.UnsupportedError)
                stream = await served.stream([10**6], **options)
                with self.assertRaises(moeflux.ArgumentError):
                    await stream.finish()
                self.assertEqual(stream.reply.finish_reason, "error")

        with open_model(n_sessions=4) as model:
            asyncio.run(run(model))

    def test_one_that_is_dropped_ends(self) -> None:
        """Its thread too, once what was asked is answered."""

        def threads() -> list[threading.Thread]:
            return [t for t in threading.enumerate() if t.name == "moeflux"]

        async def run(model: moeflux.Model) -> None:
            served = moeflux.AsyncModel(model)
            stream = await served.stream(ONCE, max_tokens=20, **GREEDY)
            (thread,) = threads()
            del served
            gc.collect()
            self.assertEqual((await stream.finish()).finish_reason, "length")
            thread.join(20)
            self.assertEqual(threads(), [])

        with open_model(n_sessions=4) as model:
            asyncio.run(run(model))

    def test_those_that_wait_are_told_that_it_closes(self) -> None:
        async def run(model: moeflux.Model) -> None:
            async with moeflux.AsyncModel(model) as served:
                prompts: Any = [[1] * 3000, *[ONCE] * 4]  # the first is within a long step
                tasks = [
                    asyncio.ensure_future(served.generate(prompt, max_tokens=900))
                    for prompt in prompts
                ]
                await asyncio.sleep(0.1)
            reasons = [(await task).finish_reason for task in tasks]
            self.assertEqual(reasons, ["cancelled"] * 5)

        with open_model(n_sessions=2) as model:
            for _ in range(3):
                asyncio.run(run(model))

    async def _leave(self, served: moeflux.AsyncModel, model: moeflux.Model) -> None:
        """Streams that are left, and tasks that are cancelled, give their sessions back."""
        for _ in range(6):
            async with await served.stream(ONCE, max_tokens=3000) as stream:
                await stream.__aiter__().__anext__()
            task = asyncio.ensure_future(served.generate(ONCE, max_tokens=3000))
            await asyncio.sleep(0.01)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
        reply = await served.generate(ONCE, max_tokens=3, **GREEDY)
        self.assertEqual(reply.finish_reason, "length")
        for _ in range(6):  # never read from, left or dropped
            stream = await served.stream(ONCE, max_tokens=3000)
            await stream.aclose()
            stream = await served.stream(ONCE, max_tokens=3000)
            del stream
            async for _ in await served.stream(ONCE, max_tokens=3000):
                break
        self.assertEqual((await served.generate(ONCE, max_tokens=3)).finish_reason, "length")
        slow = await served.stream(ONCE, max_tokens=400)  # nobody reads it for a while
        others = await asyncio.gather(*[served.generate(ONCE, max_tokens=90) for _ in range(6)])
        self.assertEqual(len(others), 6)
        self.assertEqual((await slow.finish()).finish_reason, "length")


if __name__ == "__main__":
    unittest.main()
