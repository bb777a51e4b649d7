#!/usr/bin/env python3
"""Records what Hugging Face's tokenizers (0.23.3) does with each step of tokenizer.json, for tests/unit/test_tokfile.c; run by hand
when a step is added: tokenizer_steps.py | gzip -9n >golden/tokenizer/steps.jsonl.gz"""
import json
import sys

from tokenizers import Tokenizer

M = "\u2581"


def byte_chars():
    bs=list(range(33,127))+list(range(161,173))+list(range(174,256)); cs=bs[:]; n=0
    for b in range(256):
        if b not in bs: bs.append(b); cs.append(256+n); n+=1
    return {b:chr(c) for b,c in zip(bs,cs)}
BC=byte_chars()
def bl(s): return "".join(BC[b] for b in s.encode())
def bytelevel_model():
    vocab={}
    for b in range(256): vocab[BC[b]]=len(vocab)
    merges=[]
    def add(a,b):
        a,b=bl(a),bl(b)
        if a+b not in vocab: vocab[a+b]=len(vocab)
        merges.append([a,b])
    for a,b in [("t","h"),("th","e"),(" ","the"),(" ","t"),("i","n"),("in","g"),("a","a"),("aa","aa"),(" "," "),("  ","  "),("1","2"),("12","3"),("e","r"),("o","u"),("H","e"),("l","l"),("He","ll"),("Hell","o"),(" ","w"),("\n","\n"),("a","b")]: add(a,b)
    return {"type":"BPE","dropout":None,"unk_token":None,"continuing_subword_prefix":None,"end_of_word_suffix":None,"fuse_unk":False,"byte_fallback":False,"ignore_merges":False,"vocab":vocab,"merges":merges}
def spm_model(fallback=True, fuse=True):
    vocab={"<unk>":0,"<s>":1,"</s>":2}
    if fallback:
        for b in range(256): vocab["<0x%02X>"%b]=len(vocab)
    for c in M+"abcdefghijklmnopqrstuvwxyzHW.,!123\n": vocab[c]=len(vocab)
    merges=[]
    def add(a,b):
        if a+b not in vocab: vocab[a+b]=len(vocab)
        merges.append([a,b])
    for a,b in [(M,"t"),("h","e"),(M+"t","he"),("i","n"),("in","g"),(M,M),(M+M,M+M),("l","l"),("he","ll"),("hell","o"),(M,"hello"),("o","r"),(M,"w"),("a","b"),("1","2")]: add(a,b)
    return {"type":"BPE","dropout":None,"unk_token":"<unk>","continuing_subword_prefix":None,"end_of_word_suffix":None,"fuse_unk":fuse,"byte_fallback":fallback,"ignore_merges":False,"vocab":vocab,"merges":merges}
def tok(id,content,**kw):
    d={"id":id,"content":content,"single_word":False,"lstrip":False,"rstrip":False,"normalized":False,"special":True}; d.update(kw); return d
BLV={"type":"ByteLevel","add_prefix_space":False,"trim_offsets":True,"use_regex":True}
BLN=dict(BLV,use_regex=False)
def T(model,norm=None,pre=None,post=None,dec=None,added=()):
    return {"version":"1.0","truncation":None,"padding":None,"added_tokens":list(added),"normalizer":norm,"pre_tokenizer":pre,"post_processor":post,"decoder":dec,"model":model}
def seq(k,*l): return {"type":"Sequence",k:list(l)}
def split(pat,beh="Isolated",inv=False): return {"type":"Split","pattern":{"Regex":pat},"behavior":beh,"invert":inv}
def splits(pat,beh="Isolated",inv=False): return {"type":"Split","pattern":{"String":pat},"behavior":beh,"invert":inv}
B=bytelevel_model(); N=len(B["vocab"]); BD={"type":"ByteLevel","add_prefix_space":True,"trim_offsets":True,"use_regex":True}
S=spm_model(); NS=len(S["vocab"])
SN=seq("normalizers",{"type":"Prepend","prepend":M},{"type":"Replace","pattern":{"String":" "},"content":M})
SD=seq("decoders",{"type":"Replace","pattern":{"String":M},"content":" "},{"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0})
CL="(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
cases={}
sp=[tok(N,"<s>"),tok(N+1,"<x>",special=False)]
cases["gpt2"]=T(B,pre=BLV,dec=BD,added=sp)
cases["prefix_space"]=T(B,pre=dict(BLV,add_prefix_space=True),dec=BD,added=sp)
cases["digits_each"]=T(B,pre=seq("pretokenizers",{"type":"Digits","individual_digits":True},BLV),dec=BD)
cases["digits"]=T(B,pre=seq("pretokenizers",{"type":"Digits","individual_digits":False},BLV),dec=BD)
cases["falcon"]=T(B,pre=seq("pretokenizers",{"type":"Punctuation","behavior":"Contiguous"},BLV,{"type":"Digits","individual_digits":False},split("[0-9][0-9][0-9]")),dec=BD)
for beh in ("Isolated","Removed","MergedWithPrevious","MergedWithNext","Contiguous"):
    for inv in (False,True):
        cases["split_%s_%s"%(beh,inv)]=T(B,pre=seq("pretokenizers",split("[th ]",beh,inv),BLN),dec=BD)
cases["split_string"]=T(B,pre=seq("pretokenizers",splits("th","MergedWithPrevious"),BLN),dec=BD)
cases["split_string_special"]=T(B,pre=seq("pretokenizers",splits(".","Isolated"),BLN),dec=BD)
cases["cl100k_removed_inverted"]=T(B,pre=seq("pretokenizers",split(CL,"Removed",True),BLN),dec=BD,added=sp)
cases["cl100k"]=T(dict(B,ignore_merges=True),pre=seq("pretokenizers",split(CL),BLN),dec=BD,added=sp)
cases["white"]=T(B,pre=seq("pretokenizers",split("\\s+|\\S"),BLN),dec=BD)
cases["words"]=T(B,pre=seq("pretokenizers",split("\\w+|[^\\w\\s]+|\\d","Isolated"),BLN),dec=BD)
cases["lines"]=T(B,pre=seq("pretokenizers",split("^.|.$"),BLN),dec=BD)
cases["whitespace"]=T(B,pre=seq("pretokenizers",{"type":"Whitespace"},BLN),dec=BD)
cases["whitespace_split"]=T(B,pre=seq("pretokenizers",{"type":"WhitespaceSplit"},BLN),dec=BD)
cases["punctuation"]=T(B,pre=seq("pretokenizers",{"type":"Punctuation","behavior":"MergedWithPrevious"},BLN),dec=BD)
for f in ("NFC","NFD","NFKC","NFKD","Lowercase"):
    cases[f]=T(B,norm={"type":f},pre=BLV,dec=BD,added=[tok(N,"<S>",normalized=True,special=False),tok(N+1,"<E\u0301>",special=False)])
cases["strip"]=T(B,norm={"type":"Strip","strip_left":True,"strip_right":False},pre=BLV,dec=BD,added=sp)
cases["strip_right"]=T(B,norm={"type":"Strip","strip_left":False,"strip_right":True},pre=BLV,dec=BD,added=sp)
cases["replace"]=T(B,norm=seq("normalizers",{"type":"Replace","pattern":{"Regex":" {2,}"},"content":"_"},{"type":"Replace","pattern":{"String":"th"},"content":"TH!"},{"type":"Lowercase"}),pre=BLV,dec=BD,added=sp)
cases["added_flags"]=T(B,pre=BLV,dec=BD,added=[tok(N,"<l>",lstrip=True),tok(N+1,"<r>",rstrip=True),tok(N+2,"<b>",lstrip=True,rstrip=True,special=False),tok(N+3,"word",single_word=True,special=False),tok(N+4,"<l><r>",special=False),tok(N+5,"tha",normalized=True,special=False)])
cases["llama2"]=T(S,norm=SN,dec=SD,added=[tok(0,"<unk>"),tok(1,"<s>"),tok(2,"</s>"),tok(NS,"<t>",special=False)])
cases["llama2_normalized"]=T(S,norm=SN,dec=SD,added=[tok(1,"<s>",normalized=True),tok(NS,"<t>",normalized=True,special=False)])
for sch in ("always","first","never"):
    for spl in (True,False):
        cases["metaspace_%s_%s"%(sch,spl)]=T(S,pre={"type":"Metaspace","replacement":M,"prepend_scheme":sch,"split":spl},dec=seq("decoders",{"type":"ByteFallback"},{"type":"Metaspace","replacement":M,"prepend_scheme":sch,"split":spl}),added=[tok(1,"<s>"),tok(2,"</s>")])
G=spm_model()
cases["gemma"]=T(G,norm={"type":"Replace","pattern":{"String":" "},"content":M},pre=splits(" ","MergedWithPrevious"),dec=seq("decoders",{"type":"Replace","pattern":{"String":M},"content":" "},{"type":"ByteFallback"},{"type":"Fuse"}),added=[tok(1,"<s>"),tok(NS,"\n\n",special=False),tok(NS+1,"<t>",special=False)])
cases["unk"]=T(spm_model(False,False),norm=SN,dec=SD)
cases["unk_fused"]=T(spm_model(False,True),norm=SN,dec=SD)
cases["no_unk"]=T(dict(spm_model(False,False),unk_token=None),norm=SN,dec=SD)
texts=["","Hello world","the thing in there","  the  the   the ","a\n\nb\r\n c","123 12345 1 2","Hi! it's, DON'T... (ok)","caf\u00e9 cafe\u0301 \ufb01x \u2460 \u0130I","\u4e2d\u6587 \U0001f600","<s>the<s> the","x <x>y<x> ","a <l> b <r>  c <b> d<l><r>","word words wordy a.word word_","  "," \u3000the\u00a0th\u2003e ","aaaaaaaa aaa","<S> <s> <E\u0301> <e\u0301> <\u00c9>",M+"the"+M+M+"hello "+M,"<t> the<t>hello <t>","hello hello  hello\n\nhello","<unk></s>\u0414\u0415\u0416 x\u0414","_th TH! th.th","line one\nline two\n","abababab12 12","\u1e9b\u0323 \u2126 \uac00\u1100\u1161","ing\u180ething x\u0085y"]
for name, t in cases.items():
    h = Tokenizer.from_str(json.dumps(t))
    results = []
    for x in texts:
        ids = h.encode(x, add_special_tokens=False).ids
        # Left out: tokens whose content tokenizers normalises, and a first piece of several spaces, which Metaspace drops whole.
        unlike = name in ("Lowercase", "llama2_normalized") or name.startswith("metaspace") and x.startswith("  ")
        results.append([x, ids, None if unlike else h.decode(ids, skip_special_tokens=False)])
    json.dump({"name": name, "tokenizer": t, "results": results}, sys.stdout)
    print()
