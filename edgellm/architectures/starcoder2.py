"""Decoders with layer norms and a rotation: StarCoder 2, CodeShell, GPT-NeoX, Nemotron 4, Jais 2, Orion, StableLM."""

from edgellm.architectures.blocks import Style, embed, head, layer, layers, parallel_layer
from edgellm.architectures.params import Params
from edgellm.architectures.registry import register
from edgellm.architectures.rope import rope_spec
from edgellm.program import ProgramBuilder, Value
from edgellm.program.ops import RopeStyle


@register("starcoder2", "codeshell")
def starcoder2(p: Params, b: ProgramBuilder) -> Value:
    """StarCoder 2 and CodeShell."""
    return _layer_normed(p, b, Style(layer_norm=True, gated=False, activation="gelu"))


@register("nemotron", "jais2")
def nemotron(p: Params, b: ProgramBuilder) -> Value:
    """Nemotron 4 and Jais 2: squared ReLU."""
    return _layer_normed(p, b, Style(layer_norm=True, gated=False, activation="relu2"))


@register("orion")
def orion(p: Params, b: ProgramBuilder) -> Value:
    """Orion: Llama with layer norms."""
    return _layer_normed(p, b, Style(layer_norm=True, out_bias=False))


@register("pockettts")
def pockettts(p: Params, b: ProgramBuilder) -> Value:
    """The language model of Pocket TTS."""
    style = Style(layer_norm=True, gated=False, activation="gelu", out_bias=False)
    return _layer_normed(p, b, style, "norm")


@register("gptneox")
def gptneox(p: Params, b: ProgramBuilder) -> Value:
    """GPT-NeoX and Pythia: attention and feed-forward may read the same stream."""
    style = Style(layer_norm=True, gated=False, activation="gelu")
    if not p.flag("use_parallel_residual", True):
        return _layer_normed(p, b, style)
    rope = rope_spec(p, "neox")
    x = embed(p, b)
    for i in layers(p, b):
        x = parallel_layer(p, b, x, i, rope=rope, style=style, norms=("attn_norm", "ffn_norm"))
    return head(p, b, x, style=style)


@register("stablelm")
def stablelm(p: Params, b: ProgramBuilder) -> Value:
    """StableLM 2 12B has no norm before the feed-forward, which then reads attention's."""
    rope = rope_spec(p, "neox")
    style = Style(layer_norm=True, head_norms=b.has("blk.0.attn_q_norm.weight"), out_bias=False)
    x = embed(p, b)
    for i in layers(p, b):
        make = layer if b.has(f"blk.{i}.ffn_norm.weight") else parallel_layer
        x = make(p, b, x, i, rope=rope, style=style)
    return head(p, b, x, style=style)


def _layer_normed(p: Params, b: ProgramBuilder, style: Style, turn: RopeStyle = "neox") -> Value:
    rope = rope_spec(p, turn)
    x = embed(p, b)
    for i in layers(p, b):
        x = layer(p, b, x, i, rope=rope, style=style)
    return head(p, b, x, style=style)
