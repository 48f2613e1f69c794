"""Show a text while it is written, stop when it takes too long, and say where the time went.

python examples/stream.py 5        (at most about 5 seconds)
"""

import sys
import time

import edgellm

seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0

with edgellm.Model("smollm2-135m-instruct") as model:
    deadline = time.monotonic() + seconds
    generation = model.generate("Once upon a time", max_tokens=200)
    for chunk in generation:
        print(chunk, end="", flush=True)
        if time.monotonic() > deadline:
            generation.cancel()  # from this thread or any other; chunks that are ready still come
    print()

    usage, timings = generation.usage, generation.timings
    print(f"ended: {generation.finish_reason}", file=sys.stderr)
    print(f"prompt: {usage.prompt_tokens} tokens, first token after {timings.first_token_s:.3f} s", file=sys.stderr)
    print(f"text: {usage.completion_tokens} tokens, {timings.decode_tps:.1f} tokens/s", file=sys.stderr)
