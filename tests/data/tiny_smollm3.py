#!/usr/bin/env python3
"""Makes a tiny SmolLM3 checkpoint with random weights and what transformers (5.24, torch CPU, fp32, eager) computes with it, in the format
of the golden data's tiny/ folders (../shared/golden/README.md), for tests/unit/test_golden_tiny.c; run by hand:

  tiny_smollm3.py TOKENIZER_FOLDER OUT_FOLDER   # the first: one of golden/tiny, whose tokenizer files are taken
  tar -cJf golden/tiny/smollm3.tar.xz -C OUT_FOLDER ."""
import json
import os
import random
import shutil
import sys

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

STEPS = 48
CONFIG = {
    "architectures": ["SmolLM3ForCausalLM"], "model_type": "smollm3", "vocab_size": 512, "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 5, "num_attention_heads": 8, "num_key_value_heads": 4, "hidden_act": "silu", "max_position_embeddings": 512,
    "rms_norm_eps": 1e-06, "rope_theta": 5000000.0, "rope_scaling": None, "tie_word_embeddings": True, "bos_token_id": 0, "eos_token_id": 2,
    "pad_token_id": 0, "torch_dtype": "bfloat16", "initializer_range": 0.02, "use_cache": True, "attention_bias": False, "mlp_bias": False,
    "attention_dropout": 0.0, "pretraining_tp": 2, "use_sliding_window": False, "sliding_window": None, "max_window_layers": 28,
    "no_rope_layer_interval": 4, "no_rope_layers": [1, 1, 1, 0, 1], "layer_types": ["full_attention"] * 5,
}


def weights():
    """Scaled so that attention and logits are far from flat."""
    g = torch.Generator().manual_seed(2307)
    d, f, q, kv = 64, 128, 64, 32
    out = {"model.embed_tokens.weight": torch.randn(512, d, generator=g) * 0.35, "model.norm.weight": 1 + torch.randn(d, generator=g) * 0.1}
    for i in range(CONFIG["num_hidden_layers"]):
        p = "model.layers.%d." % i
        for name, rows, cols, scale in [("self_attn.q_proj", q, d, 2.5), ("self_attn.k_proj", kv, d, 2.5), ("self_attn.v_proj", kv, d, 1.2),
                                        ("self_attn.o_proj", d, q, 1.2), ("mlp.gate_proj", f, d, 1.5), ("mlp.up_proj", f, d, 1.2),
                                        ("mlp.down_proj", d, f, 1.2)]:
            out[p + name + ".weight"] = torch.randn(rows, cols, generator=g) * scale / cols ** 0.5
        for name in ("input_layernorm", "post_attention_layernorm"):
            out[p + name + ".weight"] = 1 + torch.randn(d, generator=g) * 0.1
    return {k: v.to(torch.bfloat16) for k, v in out.items()}


def number(x):
    return float("%.7g" % x)


def case(model, name, prompt):
    ids, top8, margins, logprobs = list(prompt), [], [], []
    with torch.no_grad():
        for step in range(STEPS):
            logits = model(torch.tensor([ids])).logits[0, -1]
            best = torch.topk(logits, 8)
            if step < 9:
                top8.append([[int(i), number(v)] for v, i in zip(best.values, best.indices)])
            if step == 0:
                stats = {"mean": number(logits.mean()), "std": number(logits.std()), "max": number(logits.max()), "min": number(logits.min()),
                         "lse": number(torch.logsumexp(logits, 0)), "n": len(logits)}
            margins.append(float("%.5g" % (best.values[0] - best.values[1])))
            logprobs.append(number(torch.log_softmax(logits, 0)[best.indices[0]]))
            ids.append(int(best.indices[0]))
    return {"id": name, "prompt_ids": list(prompt), "greedy_ids": ids[len(prompt):], "top8": top8, "stats": stats, "margins": margins,
            "logprobs": logprobs, "low_margin_steps": [i for i, m in enumerate(margins) if m < 0.05]}


def hidden(model, prompt):
    with torch.no_grad():
        states = model(torch.tensor([prompt]), output_hidden_states=True).hidden_states
    return [[float("%.6g" % s[0, -1].pow(2).mean().sqrt())] + [float("%.6g" % v) for v in s[0, -1, :8]] for s in states]


def make(config, tensors, name, note, seed):
    """Arguments of the command as above."""
    source, out = sys.argv[1:]
    torch.set_num_threads(1)
    os.makedirs(out, exist_ok=True)
    for file in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copyfile(os.path.join(source, file), os.path.join(out, file))
    with open(os.path.join(out, "config.json"), "w") as f:
        json.dump(config, f, indent=1)
    save_file(tensors, os.path.join(out, "model.safetensors"), metadata={"format": "pt"})
    model = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32, attn_implementation="eager").eval()
    rng = random.Random(seed)
    prompts = [("%s-rand%d" % (name, n), [rng.randrange(3, 512) for _ in range(n)]) for n in (1, 3, 9, 17, 40, 70, 130)]
    with open(os.path.join(out, "golden.jsonl"), "w") as f:
        for name_of, prompt in prompts:
            f.write(json.dumps(case(model, name_of, prompt), separators=(",", ":")) + "\n")
    info = {"name": name, "note": note, "seed": seed, "dtype": "bfloat16", "params": sum(v.numel() for v in tensors.values()),
            "hidden": {"prompt_ids": prompts[2][1], "layers": hidden(model, prompts[2][1])}}
    with open(os.path.join(out, "info.json"), "w") as f:
        json.dump(info, f)


if __name__ == "__main__":
    make(CONFIG, weights(), "smollm3", "every fourth layer does not rotate", 2307)
