"""How byte-level BPE cuts text into words before merging: one table from ``tokenizer.ggml.pre`` to a rule."""

from __future__ import annotations

from dataclasses import dataclass

from edgellm.tokenizer import patterns as p


@dataclass(frozen=True, slots=True)
class Rule:
    """One way to cut text into words.

    patterns: applied one after the other; each cuts what the earlier ones left into matches and the text between.
    whole_words: a word that is a token is taken whole, even where merges would not build it.
    add_bos: BOS comes first, unless the file says otherwise.
    spaces_kept: merges run over the text itself, with ▁ for spaces, and not over an alphabet of bytes.
    spaced_words: lines are cut at each ▁, and begin with one, as words all do.
    """

    patterns: tuple[str, ...]
    whole_words: bool = False
    add_bos: bool = False
    spaces_kept: bool = False
    spaced_words: bool = False


_ROWS: tuple[tuple[Rule, str], ...] = (
    (Rule(p.DEFAULT), "default"),
    (
        Rule((p.GPT_2,)),
        "gpt-2 phi-2 mpt olmo jais trillion granite-docling exaone4 gigachat a.x-4.0 mellum modern-bert jina-es "
        "jina-de jina-v2-es jina-v2-de jina-v1-en jina-v2-code roberta-bpe",
    ),
    (Rule((r"\p{N}", p.GPT_2)), "smollm starcoder refact command-r codeshell exaone minerva-7b mellum2"),
    (
        Rule((p.LLAMA_3,), whole_words=True, add_bos=True),
        "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
    ),
    (Rule((p.LLAMA_3,)), "dbrx smaug-bpe glm4 chatglm-bpe"),
    (
        Rule((p.QWEN_2,)),
        "qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2",
    ),
    (Rule((p.QWEN_35,)), "qwen35"),
    (Rule((p.WITHOUT_CONTRACTIONS,)), "ufakzeka"),
    (Rule((p.SEED_CODER,)), "seed-coder"),
    (Rule((p.BAILING,)), "bailingmoe bailingmoe2 llada-moe"),
    (Rule((p.EXAONE_MOE,)), "exaone-moe"),
    (Rule((p.JAIS_2,)), "jais-2"),
    (Rule((p.K2_HORIZON,)), "k2-horizon"),
    (Rule((p.NEWLINES_APART, p.QWEN_2)), "laguna"),
    (Rule((r"\p{N}{1,3}", p.MINICPM), whole_words=True), "minicpm5"),
    (Rule((p.GPT_4O,)), "gpt-4o llama4 kanana2 talkie minimax-m2"),
    (Rule((p.GPT_4O,), whole_words=True), "granite-embed-multi-97m"),
    (Rule((p.TEKKEN,), whole_words=True, add_bos=True), "tekken"),
    (Rule((p.KIMI_2,)), "kimi-k2"),
    (Rule(p.YOUTU_ALL, whole_words=True), "youtu"),
    (Rule(p.DEEPSEEK_LLM), "deepseek-llm"),
    (Rule(p.DEEPSEEK_CODER), "deepseek-coder"),
    (Rule(p.DEEPSEEK_3), "deepseek-v3 hunyuan-dense joyai-llm hy_v4"),
    (Rule(p.SPARK), "spark2_5"),
    (Rule(p.FALCON), "falcon"),
    (Rule((p.BLOOM,)), "bloom poro-chat gpt3-finnish"),
    (Rule((p.BLOOM, r"\p{N}")), "viking"),
    (Rule(p.CHAMELEON, add_bos=True), "chameleon"),
    (Rule(p.AFMOE), "afmoe"),
    (Rule(p.SUPERBPE), "superbpe"),
    (Rule(p.TINY_AYA), "tiny_aya cohere2moe"),
    (Rule((), spaces_kept=True), "sarvam-moe"),
    (Rule((), spaces_kept=True, spaced_words=True), "mmbert"),
    (Rule((), add_bos=True, spaces_kept=True), "gemma4 granite-embed-multi-311m"),
)

RULES: dict[str, Rule] = {name: rule for rule, names in _ROWS for name in names.split()}
