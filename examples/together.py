"""Many requests at once from asyncio: they share the model's steps, so together they are faster than in turn.

python examples/together.py
"""

import asyncio
import time

import edgellm

PROMPTS = ["The sky is", "Water boils at", "My favourite animal is", "In the year 2000"]


async def complete(model: edgellm.Model, prompt: str) -> tuple[str, int]:
    """Return the whole text, and how many tokens it took; the event loop stays free meanwhile."""
    generation = model.generate(prompt, max_tokens=24, temperature=0)
    text = prompt
    async for chunk in generation:
        text += chunk
    return text, generation.usage.completion_tokens


async def main() -> None:
    with edgellm.Model("smollm2-135m-instruct", n_ctx=1024) as model:
        start = time.perf_counter()
        results = await asyncio.gather(*(complete(model, prompt) for prompt in PROMPTS))
        tokens, seconds = sum(n for _, n in results), time.perf_counter() - start
        for text, _ in results:
            print(repr(text))
        print(f"{tokens} tokens, {tokens / seconds:.0f} tokens/s together")

        # A task that is cancelled, here by a timeout, lets go of its generation, which ends it.
        try:
            async with asyncio.timeout(0.2):
                async for _ in model.generate("An endless story:", max_tokens=1000):
                    pass
        except TimeoutError:
            print("stopped after 0.2 seconds")


if __name__ == "__main__":
    asyncio.run(main())
