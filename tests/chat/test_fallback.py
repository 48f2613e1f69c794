import pytest

from edgellm.chat import default_template
from edgellm.errors import TemplateError


def test_chatml_for_a_vocabulary_that_has_its_marks():
    template = default_template({"a", "<|im_start|>", "<|im_end|>"}, bos_token="<s>", eos_token="<|im_end|>")
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": None}]
    expected = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<|im_end|>\n"
    assert template.render(messages, add_generation_prompt=False) == expected
    assert template.render(messages) == expected + "<|im_start|>assistant\n"
    assert (template.bos_token, template.eos_token) == ("<s>", "<|im_end|>")


@pytest.mark.parametrize("vocabulary", [[], ["<|im_start|>"], ["im_start", "<|im_end|>"]])
def test_otherwise_the_user_is_sent_to_plain_completion(vocabulary):
    with pytest.raises(TemplateError, match=r"no chat template.*generate\(\)"):
        default_template(vocabulary)
