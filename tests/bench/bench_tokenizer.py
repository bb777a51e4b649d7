#!/usr/bin/env python3
"""Sluice's tokenizer beside Hugging Face's `tokenizers`: the same tokenizer.json, the same megabyte of mixed text, one thread each,
in turns. What counts is the processor time of the best round of each. Both must give the same ids.

  bench_tokenizer.py --tokbench build/bench/tokbench [--rounds 5] [NAME=PATH ...]

NAME=PATH: a tokenizer.json, or a folder with one. Without any, those of ../shared and models/vocabularies that are here."""
import argparse
import gzip
import json
import os
import random
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
from tokenizers import Tokenizer  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
GOLDEN = os.path.join(os.environ.get("SLUICE_SHARED") or os.path.join(ROOT, "..", "shared"), "golden", "tokenizer", "files")
FETCHED = os.path.join(ROOT, "models", "vocabularies")


def mixed_text(size):
    """English, code, Chinese, other scripts, emoji, digits and runs of white space; the same for everyone."""
    rng = random.Random(20250309)
    syllables = "an be co de er fi ga ho in ju ka lo me no or pa qui re sta tion un ver wa xi yo ze ing the and for".split()
    words = ["".join(rng.choice(syllables) for _ in range(rng.randint(1, 4))) for _ in range(6000)]
    weights = [1 / (i + 2) for i in range(len(words))]
    han = [chr(rng.randint(0x4E00, 0x9FA0)) for _ in range(1200)]
    scripts = ["ελληνικά κείμενα", "русский текст для проверки", "مرحبا بالعالم", "नमस्ते दुनिया", "안녕하세요 세계", "こんにちは世界", "naïve café façade"]
    emoji = ["😀", "👍🏽", "👨‍👩‍👧‍👦", "🚀", "❤️", "🇩🇪"]
    out, n = [], 0

    def english():
        s = " ".join(rng.choices(words, weights, k=rng.randint(5, 25)))
        return s[0].upper() + s[1:] + rng.choice([". ", "? ", "! ", ", it's said. ", ".\n\n"])

    def code():
        name, other = rng.choice(words), rng.choice(words)
        return "\tif (%s->%s[i] != %d) {\n\t\treturn %s(\"%s\", 0x%x);\n\t}\n    for i in range(%d):\n        %s += %s\n" % (
            name, other, rng.randint(0, 9999), name, other, rng.randint(0, 65535), rng.randint(1, 99), name, other)

    def chinese():
        return "".join(rng.choices(han, k=rng.randint(5, 40))) + rng.choice("。，！\n")

    def digits():
        return " ".join(str(rng.randint(0, 10 ** rng.randint(1, 12))) for _ in range(6)) + "\n"

    def spaces():
        return rng.choice([" ", "\n", "\t", "  \n"]) * rng.randint(2, 40)

    kinds = [english, code, chinese, digits, spaces, lambda: rng.choice(scripts) + " ", lambda: rng.choice(emoji) + " "]
    while n < size:
        s = rng.choices(kinds, [50, 14, 10, 6, 6, 8, 6])[0]()
        out.append(s)
        n += len(s.encode())
    return "".join(out)


def find_all(tmp):
    found = []
    for name in ("smollm2", "qwen2", "spm-tiny"):
        path = os.path.join(GOLDEN, name, "tokenizer.json")
        if not os.path.exists(path) and not os.path.exists(path + ".gz"):
            path = os.path.join(ROOT, "tests", "data", "golden", "tokenizer", "files", name, "tokenizer.json")
        if os.path.exists(path + ".gz"):
            packed, path = path + ".gz", os.path.join(tmp, name + ".json")
            with gzip.open(packed) as src, open(path, "wb") as dst:
                dst.write(src.read())
        if os.path.exists(path):
            found.append((name, path))
    for name in ("llama3", "deepseek"):
        path = os.path.join(FETCHED, name, "tokenizer.json")
        if os.path.exists(path):
            found.append((name, path))
    return found


def peer(tokenizer, text):
    """The faster of its two ways: with offsets, and without."""
    best, ids = 1e9, None
    for way in (lambda: tokenizer.encode(text, add_special_tokens=False),
                lambda: tokenizer.encode_batch_fast([text], add_special_tokens=False)[0]):
        start = time.process_time()
        encoding = way()
        best = min(best, time.process_time() - start)
        ids = encoding.ids
    return best, ids


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--tokbench", default="build/bench/tokbench")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--bytes", type=int, default=1 << 20)
    p.add_argument("--at-least", type=float, default=0, help="fail when a ratio is below")
    p.add_argument("names", nargs="*", metavar="NAME=PATH")
    args = p.parse_args()
    failed = False
    text = mixed_text(args.bytes)
    with tempfile.TemporaryDirectory() as tmp:
        text_path = os.path.join(tmp, "text")
        with open(text_path, "w", newline="") as f:
            f.write(text)
        size = os.path.getsize(text_path)
        print("%-10s %12s %12s %8s" % ("", "Sluice", "tokenizers", "ratio"))
        for name, path in [n.split("=", 1) for n in args.names] or find_all(tmp):
            hf = Tokenizer.from_file(os.path.join(path, "tokenizer.json") if os.path.isdir(path) else path)
            ours = theirs = 1e9
            for _ in range(args.rounds):
                run = json.loads(subprocess.run([args.tokbench, path, text_path, "2"], check=True, capture_output=True).stdout)
                ours = min([ours] + run["seconds"])
                seconds, ids = peer(hf, text)
                theirs = min(theirs, seconds)
            value = 0
            for i in ids:
                value = (value * 31 + i) & 0xFFFFFFFFFFFF
            same = (len(ids), value) == (run["ids"], run["hash"])
            failed |= not same or theirs / ours < args.at_least
            print("%-10s %8.1f MB/s %7.1f MB/s %8.2f  %s" % (name, size / ours / 1e6, size / theirs / 1e6, theirs / ours,
                                                             "same ids" if same else "OTHER IDS: %d, %d" % (run["ids"], len(ids))))
    return failed


if __name__ == "__main__":
    sys.exit(main())
