"""Scores against those of LLaMA-Factory's own means: nltk's BLEU-4 over characters with smoothing method 3, and
rouge-chinese over the words of jieba; then, by a program that has no dictionary beside it, over those that jieba cuts without its
dictionary and its model of unknown words: each Han character one."""
import argparse
import json
import logging
import random
import shutil
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")  # old escapes in jieba's sources
try:
    import jieba
    from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu
    from rouge_chinese import Rouge
except ImportError as missing:
    print(f"skipped: {missing}: scripts/setup.sh test installs it")
    sys.exit(77)

SENTENCES = [
    "The capital of France is Paris.",
    "What's 3.14 * 2? It is 6.28, i.e. 100% sure!",
    "C++ and c# (not C#) at AT&T: a_b-c+d & e.f%",
    "Costs rose 12.5% to $1,234.56 in Q3-2024; see v1.2.3 or x+=1...",
    "\"Well?\" she said. \"No!\" “Quite?” he asked... ‘Why?’ And......then...... what?",
    "naïve café ÀÉÎ Привет мир é ひらがな カタカナ 한국어 🙂🙂 \u00a0\u3000\u2028end",
    "def f(x):\n\treturn x ** 2  # square\n\n\nprint(f(3))\r\n\r\nok",
    "1. First\n2. Second\n\n? \n! \n\n- a\n- b",
]
HAN = ["今天天气很好。我们去公园吧！", "他说：“为什么？”然后走了……真的。", "我用C++和3.5%的数据，T恤100元。", "你好，世界！AT&T和Qwen2.5模型？ 是的。\n\n好", "《红楼梦》，作者曹雪芹。"]
ALPHABET = list("aab C+#&%._- 09?!\n\r.”’\"'…。！？，\t") + ["......", "……", "C++", "AT&T", "1.5%", "\r\n", "\n\n"]


def texts(generator, sentences, extra):
    """Pairs of a text and a changed copy of it, or of another one."""
    for _ in range(250):
        words = [w for s in generator.sample(sentences, generator.randint(1, 3)) for w in (s.split(" ") if " " in s else list(s))]
        label = generator.choice([" ", " ", "", "\n"]).join(words)
        changed = [w for w in words if generator.random() > generator.choice([0.0, 0.2, 0.6])]
        generator.random() < 0.3 and generator.shuffle(changed)
        yield " ".join(changed), label
        yield ("".join(generator.choices(ALPHABET + extra, k=generator.randint(0, 40))),
               "".join(generator.choices(ALPHABET + extra, k=generator.randint(0, 40))))


def expected(cut, prediction, label):
    """LLaMA-Factory's ComputeSimilarity, in percent, rounded to four decimals."""
    hypothesis, reference = " ".join(cut(prediction)), " ".join(cut(label))
    rouge = {name: {"f": 0.0} for name in ("rouge-1", "rouge-2", "rouge-l")}
    if hypothesis.split() and reference.split():
        rouge = Rouge().get_scores(hypothesis, reference)[0]
    bleu = sentence_bleu([list(label)], list(prediction), smoothing_function=SmoothingFunction().method3)
    return [round(v * 100, 4) for v in (bleu, *(rouge[n]["f"] for n in ("rouge-1", "rouge-2", "rouge-l")))]


def ours(probe, pairs):
    lines = "".join(json.dumps({"predict": p, "label": l}) + "\n" for p, l in pairs)
    result = subprocess.run([probe], input=lines, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in result.stdout.splitlines()]


def compare(name, probe, cut, pairs):
    worst, at = 0.0, None
    positive = 0
    for pair, mine in zip(pairs, ours(probe, pairs), strict=True):
        theirs = expected(cut, *pair)
        positive += min(theirs) > 0
        error = max(abs(a - b) for a, b in zip(mine, theirs))
        if error > worst:
            worst, at = error, (*pair, mine, theirs)
    good = worst <= 1.001e-4 and positive > len(pairs) / 10  # the last of the four decimals
    print(f"{'ok' if good else 'FAILED':6}  {name}: {len(pairs)} pairs, {positive} with all scores above 0, largest difference {worst:.1e} {'' if good else at}")
    return good


def without_dictionary():
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as words:
        words.write("".join(f"{w} 100 nz\n" for w in ("AT&T", "C++", "c++", "C#", "c#")))
        words.flush()
        tokenizer = jieba.Tokenizer(words.name)
        tokenizer.cache_file = words.name + ".cache"
        tokenizer.initialize()
        Path(tokenizer.cache_file).unlink(missing_ok=True)
    vars(jieba.finalseg)["__cut"] = iter  # a Han character a word
    return tokenizer


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=Path, required=True)
    build = parser.parse_args().build
    jieba.setLogLevel(logging.ERROR)
    generator = random.Random(5)
    pairs = list(texts(generator, HAN + SENTENCES, list("天地人，。")))
    probe = build / "tests/score_probe"
    good = compare("words of jieba", probe, lambda text: list(jieba.cut(text)), list(texts(generator, SENTENCES, [])) + pairs)
    with tempfile.TemporaryDirectory() as elsewhere:
        bare, alone = without_dictionary(), shutil.copy(probe, elsewhere)
        good &= compare("a Han character a word", alone, lambda text: list(bare.cut(text)), pairs)
    sys.exit(0 if good else 1)


main()
