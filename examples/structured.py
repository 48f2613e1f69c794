"""Text that follows a schema, a choice, an expression or a grammar without fail.

python examples/structured.py
"""

from dataclasses import dataclass
from typing import Literal

import edgellm


@dataclass
class City:
    name: str
    country: str
    size: Literal["small", "large"]


SUM = 'root ::= number (" + " number)* " = " number\nnumber ::= [1-9] [0-9]?'

with edgellm.Model("smollm2-135m-instruct") as model:
    question = [{"role": "user", "content": "Describe Paris in JSON: its name, its country and its size."}]
    reply = model.chat(question, schema=City, max_tokens=120, temperature=0)
    print("json:   ", reply.text)
    print("object: ", reply.parsed)

    print("choice: ", model.generate("The capital of France is", choices=[" Paris", " Rome"], temperature=0).text)
    print("regex:  ", model.generate("My telephone number is ", regex=r"\d{3}-\d{4}", seed=1).text)
    print("grammar:", model.generate("A simple sum: ", grammar=SUM, seed=1, max_tokens=40).text)

    # A text that is cut has no value.
    cut = model.chat(question, schema=City, max_tokens=5)
    try:
        print(cut.parsed)
    except edgellm.IncompleteOutputError as error:
        print("cut:    ", repr(cut.text), error)
