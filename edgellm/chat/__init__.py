"""Conversations to prompts: chat templates in a sandbox."""

from edgellm.chat.fallback import default_template
from edgellm.chat.limits import Limits
from edgellm.chat.options import ChatOptions
from edgellm.chat.template import ChatTemplate

__all__ = ["ChatOptions", "ChatTemplate", "Limits", "default_template"]
