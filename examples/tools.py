"""Tools: a model asks for functions to be called, and answers with what they return.

python examples/tools.py           (a larger model chooses better; this one only shows how it goes)
"""

from typing import Literal

import edgellm


def temperature(town: str, unit: Literal["celsius", "fahrenheit"] = "celsius") -> dict[str, object]:
    """Tell the temperature in a town.

    Args:
        town: its name, without the country.
        unit: of the answer.
    """
    return {"town": town, "temperature": 21 if unit == "celsius" else 70}


question = [{"role": "user", "content": "How warm is it in Paris?"}]

with edgellm.Model("smollm2-135m-instruct", n_ctx=2048) as model:
    # By hand: what the model wants called, with arguments that fit the function for certain. "auto" would leave it to
    # the model whether to call; one as small as this would rather guess.
    reply = model.chat(question, tools=[temperature], tool_choice="temperature", max_tokens=200, temperature=0)
    (call,) = reply.tool_calls
    print("asked for:", call.name, call.arguments)
    result = {"role": "tool", "tool_call_id": call.id, "content": str(temperature(**call.arguments))}
    print(model.chat([*question, reply.message, result], max_tokens=60, temperature=0).text)

    # Or let it run: calls are answered until the model has none left, or the rounds are used up.
    run = model.chat(
        question,
        tools=[temperature],
        tool_choice="temperature",
        run_tools=True,
        max_tool_rounds=1,
        max_tokens=200,
        temperature=0,
    )
    for event in run.events():
        match event:
            case edgellm.ToolCallStart():
                print(f"[calls {event.name}]")
            case edgellm.ToolResult():
                print(f"[{event.name} returned {event.text}]")
            case edgellm.ContentDelta():
                print(event.text, end="", flush=True)
    print("\nadded to the conversation:", [message["role"] for message in run.messages])
