"""What to do for a model file without a chat template."""

from collections.abc import Container

from edgellm.chat.template import ChatTemplate
from edgellm.errors import TemplateError

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + (message['content'] or '') + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def default_template(vocabulary: Container[str], *, bos_token: str = "", eos_token: str = "") -> ChatTemplate:
    """ChatML, if the vocabulary has its two marks: a model that has them was trained on it.

    Args:
        vocabulary: the texts of the model's tokens.

    Raises:
        TemplateError: nothing tells how this model wants conversations written.
    """
    if "<|im_start|>" in vocabulary and "<|im_end|>" in vocabulary:
        return ChatTemplate(CHATML, bos_token=bos_token, eos_token=eos_token, name="<ChatML>")
    raise TemplateError(
        "this model has no chat template, so it was probably not trained for conversations; "
        "use generate() with plain text, or give chat() a template of your own as chat_template="
    )
