"""A conversation: you keep the messages, the model's chat template writes them out.

python examples/chat.py            (type, or pipe lines into it; an empty line ends it)
"""

import edgellm

# With overflow="shift" a conversation that outgrows the context loses its oldest turns instead of ending.
with edgellm.Model("smollm2-135m-instruct", n_ctx=2048, overflow="shift") as model:
    messages = [{"role": "system", "content": "You answer in one short sentence."}]
    while True:
        try:
            question = input("> ")
        except EOFError:
            break
        if not question:
            break
        messages.append({"role": "user", "content": question})
        reply = model.chat(messages, max_tokens=100, temperature=0.3)
        for chunk in reply:
            print(chunk, end="", flush=True)
        # What was said before is not computed again: the next request finds it in the prefix cache.
        print(f"   [{reply.usage.cached_tokens} of {reply.usage.prompt_tokens} prompt tokens remembered]")
        messages.append({"role": "assistant", "content": reply.text})
