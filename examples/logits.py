"""The model's own numbers: how likely it finds each token of a text, and what it would write next.

python examples/logits.py "The capital of France is Paris"
"""

import sys

import numpy as np

import edgellm

text = " ".join(sys.argv[1:]) or "The capital of France is Paris"

with edgellm.Model("smollm2-135m-instruct") as model:
    ids = model.tokenize(text)
    logits = model.logits(ids).astype(np.float64)  # [tokens, n_vocab]; row i is what follows token i
    logprobs = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)

    for i in range(1, len(ids)):
        print(f"{model.detokenize([ids[i]])!r:>12}  {np.exp(logprobs[i - 1, ids[i]]):7.2%}")
    mean = -np.mean(logprobs[np.arange(len(ids) - 1), ids[1:]])
    print(f"perplexity {np.exp(mean):.2f}")

    print("next:", ", ".join(repr(model.detokenize([token])) for token in np.argsort(-logprobs[-1])[:5].tolist()))
