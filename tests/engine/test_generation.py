"""Text as it comes: chunks, stops, the end, and waiting for it in threads and event loops."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading

import pytest

from edgellm.textstream import TextStream
from edgellm.tokenizer import load_tokenizer
from tests.support.fake import hashed, script
from tests.support.tiny import BOS, END, EOS, TURN, first_piece, vocabulary

PROMPT = [BOS, 300]


def spoken(bench, pieces: list[str], *, stop: list[str] = (), max_tokens: int | None = None, end=(EOS,), delay=0.0):
    """A generation of a model that says the pieces, then `end`, then the pieces again."""
    metadata = vocabulary(sorted(set(pieces)))
    tokenizer = load_tokenizer(metadata)
    ids = [first_piece() + sorted(set(pieces)).index(piece) for piece in pieces] + list(end)
    b = bench(script(ids, len(PROMPT)), n_vocab=tokenizer.n_vocab)
    b.fake.delay = delay
    text = TextStream(tokenizer, PROMPT[-1], stop)
    return b.generate(PROMPT, max_tokens, text=text, stop_ids=tokenizer.eog_ids)


@pytest.mark.parametrize(
    ("pieces", "stop", "expected"),
    [
        (["DEF", "G", "HI", "J", "more"], ["DEFGHIJ"], ""),
        (["ok", "\nUser", ":", "x"], ["\nUser:"], "ok"),
        ([" br", "own", " fox", " jumps"], ["own fox"], " br"),
        (["?", "\n", "x"], ["\n"], "?"),
        (["a", "ab", "x"], ["aab"], ""),
        (["one", "two", "three"], ["three", "two"], "one"),
    ],
)
def test_nothing_of_a_stop_string_gets_out_and_all_before_it_does(bench, pieces, stop, expected):
    generation = spoken(bench, pieces, stop=stop)
    chunks = list(generation)
    assert "".join(chunks) == generation.text == expected
    assert "" not in chunks
    assert generation.finish_reason == "stop"


@pytest.mark.parametrize(
    ("pieces", "stop", "max_tokens", "expected", "reason"),
    [
        (["ple", "as"], ["assistant"], None, "pleas", "stop"),
        (["DEF"], ["DEFGHIJ"], None, "DEF", "stop"),
        (["x", "DEF", "G"], ["DEFGHIJ"], 3, "xDEFG", "length"),
    ],
)
def test_text_held_back_is_delivered_at_the_end(bench, pieces, stop, max_tokens, expected, reason):
    generation = spoken(bench, pieces, stop=stop, max_tokens=max_tokens)
    assert "".join(generation) == expected
    assert generation.finish_reason == reason


def test_half_a_character_at_the_end_is_one_replacement(bench):
    metadata = vocabulary()
    tokenizer = load_tokenizer(metadata)
    b = bench(script([5 + 0xF0, 5 + 0x9F], len(PROMPT)), n_vocab=tokenizer.n_vocab)
    text = TextStream(tokenizer, PROMPT[-1], ["stop"])
    assert list(b.generate(PROMPT, 2, text=text)) == ["�"]


def test_an_emoji_in_four_tokens_comes_out_whole(bench):
    tokenizer = load_tokenizer(vocabulary())
    b = bench(script([5 + byte for byte in "😀".encode()], len(PROMPT)), n_vocab=tokenizer.n_vocab)
    assert list(b.generate(PROMPT, 8, text=TextStream(tokenizer, PROMPT[-1], []))) == ["😀", "😀"]


@pytest.mark.parametrize("end", [EOS, END])
def test_the_models_own_end_is_counted_but_not_shown(bench, end):
    generation = spoken(bench, ["one", " two"], end=[end])
    assert generation.text == "one two"
    assert generation.finish_reason == "stop"
    assert generation.token_ids[-1] == end
    assert generation.usage.completion_tokens == 3


def test_a_control_token_that_ends_nothing_is_not_shown(bench):
    generation = spoken(bench, ["one", " two"], end=[TURN, EOS])
    assert generation.text == "one two"
    assert generation.token_ids[-2:] == [TURN, EOS]


def test_ids_beyond_the_vocabulary_have_no_text(bench):
    tokenizer = load_tokenizer(vocabulary())
    b = bench(script([tokenizer.n_vocab + 3, first_piece() - 30], len(PROMPT)), n_vocab=tokenizer.n_vocab + 8)
    generation = b.generate(PROMPT, 4, text=TextStream(tokenizer, None, ["zz"]))
    assert len(generation.text) == 2
    assert len(generation.token_ids) == 4


def test_zero_tokens_only_read_the_prompt(bench):
    b = bench(hashed())
    generation = b.generate([1] * 40, 0)
    assert generation.text == ""
    assert (generation.finish_reason, generation.token_ids) == ("length", [])
    assert sum(n for rows in b.fake.rows for _, n in rows) == 40
    warm = b.generate([1] * 40, 1)
    assert warm.text == ""
    assert warm.usage.cached_tokens == 32


@pytest.mark.parametrize(("n_prompt", "max_tokens", "made", "truncated"), [(8, None, 248, False), (8, 999, 248, True)])
def test_until_the_context_is_full(bench, n_prompt, max_tokens, made, truncated):
    b = bench(hashed(), n_ctx=256)
    generation = b.generate([1] * n_prompt, max_tokens)
    assert generation.text == ""
    assert len(generation.token_ids) == made
    assert (generation.finish_reason, generation.truncated) == ("length", truncated)


def test_text_after_some_chunks_is_the_whole_text(bench):
    generation = spoken(bench, ["one", " two", " three"])
    first = next(generation)
    assert first == "one"
    assert generation.text == "one two three"
    assert list(generation) == []
    assert generation.text == "one two three"


def test_the_figures_add_up(bench):
    generation = spoken(bench, ["one", " two"])
    assert generation.timings.prefill_tps == 0.0
    assert generation.text
    usage, timings = generation.usage, generation.timings
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (2, 3, 5)
    assert 0 <= timings.queue_s <= timings.first_token_s
    assert timings.first_token_s == pytest.approx(timings.queue_s + timings.prefill_s)
    assert timings.decode_tps == pytest.approx(2 / timings.decode_s)
    assert timings.prefill_tps == pytest.approx(2 / timings.prefill_s)
    assert repr(generation) == "<Generation: stop, 3 tokens>"


def test_leaving_a_with_block_cancels(bench):
    b = bench(hashed(), n_ctx=100_000)
    with b.generate([1], None) as generation:
        assert not generation.done
        assert generation.finish_reason is None
    assert generation.finish_reason == "cancelled"


def test_async_iteration_gives_the_same_chunks_and_leaves_the_loop_free(bench):
    pieces = ["one", " two", " three"] * 20
    expected = list(spoken(bench, pieces))

    async def main() -> tuple[list[str], int]:
        generation = spoken(bench, pieces, delay=0.001)
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while not generation.done:
                ticks += 1
                await asyncio.sleep(0)

        ticking = asyncio.create_task(tick())
        chunks = [chunk async for chunk in generation]
        await ticking
        return chunks, ticks

    chunks, ticks = asyncio.run(main())
    assert chunks == expected
    assert ticks > 60


def test_many_async_consumers_share_one_loop(bench):
    b = bench(hashed(), n_ctx=1024)

    async def consume(i: int) -> list[int]:
        generation = b.generate([i] * 5, 20)
        async for _ in generation:
            pass
        return generation.token_ids

    async def main() -> list[list[int]]:
        return await asyncio.gather(*(consume(i) for i in range(12)))

    assert asyncio.run(main()) == [b.ids([i] * 5, 20) for i in range(12)]


def test_an_async_task_can_be_cancelled_while_it_waits(bench):
    b = bench(hashed())
    b.fake.gate.clear()

    async def main() -> None:
        generation = b.generate([1], 5)
        waiting = asyncio.ensure_future(generation.__anext__())
        await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        b.fake.gate.set()
        with pytest.raises(StopAsyncIteration):
            await generation.__anext__()
        assert len(generation.token_ids) == 5

    asyncio.run(main())


def test_an_error_reaches_an_async_consumer(bench):
    b = bench(hashed())

    def fail(batch) -> None:
        raise ZeroDivisionError

    b.fake.fail = fail

    async def main() -> None:
        async for _ in b.generate([1], 5):
            pass

    from edgellm.errors import BackendError

    with pytest.raises(BackendError):
        asyncio.run(main())


def test_a_loop_that_is_gone_does_no_harm(bench):
    b = bench(hashed())
    b.fake.gate.clear()
    generation = b.generate([1], 5)

    async def give_up() -> None:
        waiting = asyncio.ensure_future(generation.__anext__())
        await asyncio.sleep(0.01)
        assert not waiting.done()

    asyncio.run(give_up())
    b.fake.gate.set()
    assert generation.text == ""
    assert len(generation.token_ids) == 5


def test_two_threads_that_wait_for_one_generation_both_see_its_end(bench):
    b = bench(hashed())
    b.fake.gate.clear()
    generation = b.generate([1], 5)
    texts: list[str] = []
    threads = [threading.Thread(target=lambda: texts.append(generation.text)) for _ in range(3)]
    for thread in threads:
        thread.start()
    b.fake.gate.set()
    for thread in threads:
        thread.join(5)
    assert texts == ["", "", ""]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot send a signal to one thread")
def test_ctrl_c_interrupts_a_wait(bench):
    b = bench(hashed())
    b.fake.gate.clear()
    generation = b.generate([1], 5)
    main = threading.get_ident()
    timer = threading.Timer(0.05, lambda: signal.pthread_kill(main, signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        next(generation)
    timer.join()
    generation.cancel()
    b.fake.gate.set()
    assert generation.finish_reason == "cancelled"
    assert len(b.ids([2], 3)) == 3
