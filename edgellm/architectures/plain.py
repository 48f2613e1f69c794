"""Families that are Llama but for the rotation, a name or a bias."""

from edgellm.architectures.blocks import Style, embed, head, layer, layers
from edgellm.architectures.params import Params
from edgellm.architectures.registry import register
from edgellm.architectures.rope import rope_spec
from edgellm.program import ProgramBuilder, RopeSpec, Value


def _plain(p: Params, b: ProgramBuilder, rope: RopeSpec | None, style: Style) -> Value:
    x = embed(p, b)
    for i in layers(p, b):
        x = layer(p, b, x, i, rope=rope, style=style)
    return head(p, b, x)


@register("internlm2")
def internlm2(p: Params, b: ProgramBuilder) -> Value:
    """InternLM 2."""
    return _plain(p, b, rope_spec(p, "norm"), Style())


@register("xverse")
def xverse(p: Params, b: ProgramBuilder) -> Value:
    """XVERSE."""
    return _plain(p, b, rope_spec(p, "norm"), Style(out_bias=False))


@register("exaone")
def exaone(p: Params, b: ProgramBuilder) -> Value:
    """EXAONE 3."""
    return _plain(p, b, rope_spec(p, "neox", factors="rope_freqs.weight"), Style())


@register("seed_oss")
def seed_oss(p: Params, b: ProgramBuilder) -> Value:
    """Seed-OSS: the feed-forward's norm has the name of another."""
    return _plain(p, b, rope_spec(p, "neox"), Style(ffn_norm="post_attention_norm"))


@register("pangu-embedded")
def pangu(p: Params, b: ProgramBuilder) -> Value:
    """Pangu Embedded."""
    b.ignore("rope_freqs.weight")
    return _plain(p, b, rope_spec(p, "neox"), Style())


@register("paddleocr", experts=True)
def paddleocr(p: Params, b: ProgramBuilder) -> Value:
    """The text model of PaddleOCR-VL, dense whatever a key says; for text the axes of its rotation turn alike."""
    return _plain(p, b, rope_spec(p, "neox"), Style())


@register("arcee")
def arcee(p: Params, b: ProgramBuilder) -> Value:
    """AFM: a feed-forward network without a gate, of squared ReLU."""
    style = Style(gated=False, activation="relu2", ffn_bias=False)
    return _plain(p, b, rope_spec(p, "norm", factors="rope_freqs.weight"), style)


@register("cogvlm")
def cogvlm(p: Params, b: ProgramBuilder) -> Value:
    """The text model of CogVLM: its experts for images play no part."""
    b.ignore("blk.*.vis_*", "rope_freqs.weight")
    return _plain(p, b, rope_spec(p, "neox"), Style(bare=True, out_bias=False))


@register("maincoder")
def maincoder(p: Params, b: ProgramBuilder) -> Value:
    """Maincoder: heads normalised after their rotation."""
    return _plain(p, b, rope_spec(p, "norm"), Style(head_norms=True, norm_after_rope=True))


@register("chatglm")
def chatglm(p: Params, b: ProgramBuilder) -> Value:
    """ChatGLM 3 and GLM 4 of 2024: a part of each head turns, gate and upward matrix are one."""
    b.ignore("rope_freqs.weight")
    return _plain(p, b, rope_spec(p, "norm"), Style(fused=True, out_bias=False))
