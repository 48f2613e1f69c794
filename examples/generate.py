"""Continue a text.

python examples/generate.py "The capital of France is"
"""

import sys

import edgellm

prompt = " ".join(sys.argv[1:]) or "The capital of France is"

with edgellm.Model("smollm2-135m-instruct") as model:
    generation = model.generate(prompt, max_tokens=40)
    print(prompt + generation.text)
