"""Choosing tokens: greedy, with a seed, until a stop text, and with a token forbidden.

python examples/sampling.py
"""

import math

import edgellm

PROMPT = "The best thing about the sea is"

with edgellm.Model("smollm2-135m-instruct") as model:
    greedy = model.generate(PROMPT, max_tokens=12, temperature=0)
    print("greedy:   ", repr(greedy.text))

    # Every generation has a seed; the same arguments and seed give the same text, also beside other requests.
    free = model.generate(PROMPT, max_tokens=12, temperature=1.2, top_k=0, top_p=0.9, min_p=0.0)
    again = model.generate(PROMPT, max_tokens=12, temperature=1.2, top_k=0, top_p=0.9, min_p=0.0, seed=free.seed)
    print("free:     ", repr(free.text))
    print("repeated: ", repr(again.text))

    # The text ends before a stop text, however the tokens cut it.
    sentence = model.generate(PROMPT, max_tokens=60, temperature=0, stop=[".", "\n"])
    print("sentence: ", repr(sentence.text), sentence.finish_reason)

    # A bias of minus infinity forbids a token.
    forbidden = greedy.token_ids[0]
    other = model.generate(PROMPT, max_tokens=12, temperature=0, logit_bias={forbidden: -math.inf})
    print(f"without {model.detokenize([forbidden])!r}:", repr(other.text))
