#!/usr/bin/env python3
"""Makes a tiny checkpoint of Qwen2 with experts, as tiny_smollm3.py (which see) makes its own: biases of q, k and v, weights of experts that
are not normalised, a shared expert with a gate, one dense layer, and a window in some layers.

  tar --sort=name --owner=0 --group=0 --mtime=2026-01-01 -cJf golden/tiny/qwen2-moe.tar.xz -C OUT_FOLDER ."""
import torch

from tiny_smollm3 import make

CONFIG = {
    "architectures": ["Qwen2MoeForCausalLM"], "model_type": "qwen2_moe", "vocab_size": 512, "hidden_size": 64, "intermediate_size": 96,
    "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 4, "hidden_act": "silu", "max_position_embeddings": 512,
    "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "tie_word_embeddings": True, "bos_token_id": 0, "eos_token_id": 2, "torch_dtype": "bfloat16",
    "initializer_range": 0.02, "use_cache": True, "attention_dropout": 0.0, "use_sliding_window": True, "sliding_window": 24,
    "max_window_layers": 3, "decoder_sparse_step": 1, "mlp_only_layers": [1], "num_experts": 6, "num_experts_per_tok": 2,
    "moe_intermediate_size": 16, "shared_expert_intermediate_size": 40, "norm_topk_prob": False, "output_router_logits": False,
    "router_aux_loss_coef": 0.001,
}


def weights():
    """Scaled so that attention, routing and logits are far from flat."""
    g = torch.Generator().manual_seed(1957)
    d, q, kv, out = 64, 64, 32, {}

    def matrix(name, rows, cols, scale):
        out[name + ".weight"] = torch.randn(rows, cols, generator=g) * scale / cols ** 0.5

    def glu(name, width):
        matrix(name + "gate_proj", width, d, 1.5)
        matrix(name + "up_proj", width, d, 1.5)
        matrix(name + "down_proj", d, width, 1.5)

    out["model.embed_tokens.weight"] = torch.randn(512, d, generator=g) * 0.35
    out["model.norm.weight"] = 1 + torch.randn(d, generator=g) * 0.1
    for i in range(CONFIG["num_hidden_layers"]):
        p = "model.layers.%d." % i
        for name, rows, scale in (("q", q, 2.0), ("k", kv, 2.0), ("v", kv, 1.2)):
            matrix(p + "self_attn.%s_proj" % name, rows, d, scale)
            out[p + "self_attn.%s_proj.bias" % name] = torch.randn(rows, generator=g) * 0.3
        matrix(p + "self_attn.o_proj", d, q, 1.2)
        for name in ("input_layernorm", "post_attention_layernorm"):
            out[p + name + ".weight"] = 1 + torch.randn(d, generator=g) * 0.1
        if i in CONFIG["mlp_only_layers"]:
            glu(p + "mlp.", CONFIG["intermediate_size"])
            continue
        matrix(p + "mlp.gate", CONFIG["num_experts"], d, 2.0)
        for e in range(CONFIG["num_experts"]):
            glu(p + "mlp.experts.%d." % e, CONFIG["moe_intermediate_size"])
        glu(p + "mlp.shared_expert.", CONFIG["shared_expert_intermediate_size"])
        matrix(p + "mlp.shared_expert_gate", 1, d, 2.0)
    return {k: v.to(torch.bfloat16) for k, v in out.items()}


if __name__ == "__main__":
    make(CONFIG, weights(), "qwen2-moe", "Qwen2 with experts, a gated shared one, a dense layer, windows in two layers", 1957)
