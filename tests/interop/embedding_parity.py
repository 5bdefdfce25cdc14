"""Stages embedding and reranker over 9 steps on one to four ranks, packed without padding, beside a plain loop over transformers' models with
the losses of embedding_losses.py, in fp64. Texts become tokens here and there on their own. What qft leaves is loaded by transformers, PEFT
and sentence-transformers, which must give the judge's vectors and scores; so must qft score."""
import hashlib
import json
import shutil
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch.nn.functional import normalize

import embedding_losses as losses
from common import Report, arguments, mpirun, run, worst
from models import in_double, train_on
from preferences import copy_tokenizer, log_of, make, with_lora, write

ROWS, BATCH, EPOCHS, LR = 12, 4, 3, 5e-3
TOLERANCE, IN_FP32 = 1e-8, 1e-5
END = "<|endoftext|>"
POSITIVE, NEGATIVE = "a", "is"  # of the tokens that the tiny tokenizer has
WIDTHS = {8: 1.0, 16: 0.5, 32: 2.0}
INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
JUDGED = ('<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. Note that the '
          'answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {document}'
          '<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n')


def row(i, negatives):
    """A row of the data: its texts and two labels."""
    return {"anchor": f"What is the number {i} {'again ' * (i % 5)}?", "positive": f"It is {i}, {'one more ' * (i % 3)}or so.",
            "negatives": [f"The number {i + k + 1} {'is not ' * k}there." for k in range(negatives)], "score": (i % 5) / 4, "label": int(i % 3 > 0)}


EVEN, UNEVEN = [row(i, 2) for i in range(ROWS)], [row(i, i % 4) for i in range(ROWS)]
PAIRS = [row(i, 0) for i in range(ROWS)]


def swift_record(r, label, role):
    """ms-swift's form; `role`: of documents."""
    record = {"messages": [{"role": "user", "content": r["anchor"]}], "positive_messages": [[{"role": role, "content": r["positive"]}]],
              "negative_messages": [[{"role": role, "content": text}] for text in r["negatives"]]}
    return record if label is None else {**record, "label": r[label]}


def columns_record(r, label, _role):
    """sentence-transformers' form: a column a text."""
    if label:
        return {"sentence1": r["anchor"], "sentence2": r["positive"], label: r[label]}
    return {"anchor": r["anchor"], "positive": r["positive"], **{f"negative_{k + 1}": text for k, text in enumerate(r["negatives"])}}


def listed_record(r, _label, _role):
    """A CrossEncoder's lists: a query, its documents and a label for each."""
    return {"query": r["anchor"], "docs": [r["positive"], *r["negatives"]], "labels": [1] + [0] * len(r["negatives"])}


def add_data(directory, name, rows, form, label, role):
    path = directory / f"{name}.jsonl"
    path.write_text("".join(json.dumps(form(r, label, role)) + "\n" for r in rows))
    return str(path)


class Judge:
    """A model of transformers in fp64, with PEFT's adapter if one is given."""

    def __init__(self, base, adapter, kind, pad, dtype=torch.float64):
        from peft import PeftModel
        from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

        self.kind, self.pad, self.tokenizer, self.chats = kind, pad, AutoTokenizer.from_pretrained(base), False
        if kind == "classification":
            more = {"num_labels": 1} if adapter else {}
            self.model = AutoModelForSequenceClassification.from_pretrained(base, dtype=dtype, **more)
        else:
            self.model = AutoModelForCausalLM.from_pretrained(base, dtype=dtype)
        if adapter:
            self.model = PeftModel.from_pretrained(self.model, adapter, is_trainable=True).to(dtype)
        self.model.config.pad_token_id = pad
        if kind == "vectors" and not adapter and not self.model.config.tie_word_embeddings:
            self.model.lm_head.weight.requires_grad_(False)

    def ids(self, text):
        return self.tokenizer(text, add_special_tokens=False).input_ids

    def shown(self, text):
        if not self.chats:
            return text + END
        return self.tokenizer.apply_chat_template([{"role": "user", "content": text}], add_generation_prompt=True, tokenize=False)

    def batch(self, sequences):
        longest = max(map(len, sequences))
        ids, mask = torch.full((len(sequences), longest), self.pad), torch.zeros(len(sequences), longest, dtype=torch.long)
        for i, s in enumerate(sequences):
            ids[i, :len(s)], mask[i, :len(s)] = torch.tensor(s), 1
        return ids, mask

    def vectors(self, texts):
        """The hidden state of each text's last token, of length 1: behind the end token or a prompt of the chat template."""
        ids, mask = self.batch([self.ids(self.shown(text)) for text in texts])
        with in_double():
            hidden = self.model(input_ids=ids, attention_mask=mask, output_hidden_states=True).hidden_states[-1]
        return normalize(hidden[torch.arange(len(ids)), mask.sum(1) - 1], dim=1)

    def groups(self, rows, prompts=("", "")):
        texts = [[prompts[0] + r["anchor"], *(prompts[1] + text for text in (r["positive"], *r["negatives"]))] for r in rows]
        return list(self.vectors(sum(texts, [])).split([len(t) for t in texts]))

    def prompt(self, query, document):
        if self.kind == "generative":
            return self.ids(JUDGED.format(instruction=INSTRUCTION, query=query, document=document))
        messages = [{"role": "user", "content": query}, {"role": "assistant", "content": document}]
        return self.ids(self.tokenizer.apply_chat_template(messages, tokenize=False))

    def scores(self, rows):
        """A tensor for each row: of its positive document, then of the negative ones."""
        prompts = [[self.prompt(r["anchor"], d) for d in (r["positive"], *r["negatives"])] for r in rows]
        ids, mask = self.batch(sum(prompts, []))
        with in_double():
            logits = self.model(input_ids=ids, attention_mask=mask).logits
        if self.kind == "generative":
            last = logits[torch.arange(len(ids)), mask.sum(1) - 1]
            positive, negative = map(self.tokenizer.convert_tokens_to_ids, (POSITIVE, NEGATIVE))
            logits = (last[:, positive] - last[:, negative])[:, None]
        return list(logits[:, 0].split([len(p) for p in prompts]))

    def train(self, items, loss_of):
        parameters = [p for p in self.model.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(parameters, lr=LR, weight_decay=0.0, eps=1e-3)
        return train_on(items, loss_of, parameters, optimizer, BATCH, EPOCHS)[0]


def labels_of(rows, label):
    return torch.tensor([r[label] for r in rows], dtype=torch.float64)


# Name, rows of the data, their form, the label's column, keys of the run file, the loss of groups and rows.
EMBEDDING = [
    ("infonce", UNEVEN, swift_record, None, {}, lambda g, _: losses.info_nce(g)),
    ("infonce of columns", EVEN, columns_record, None, {"infonce_temperature": 0.05}, lambda g, _: losses.info_nce(g, 0.05)),
    ("infonce, prompts", UNEVEN, swift_record, None, {"query_prompt": "Instruct: Find the number\nQuery:", "document_prompt": "A text: "},
     lambda g, _: losses.info_nce(g)),
    ("infonce, all blocks", UNEVEN, swift_record, None,
     {"infonce_include_qq": True, "infonce_include_dd": True, "infonce_mask_fake_negative": True, "infonce_fake_neg_margin": 0.01},
     lambda g, _: losses.info_nce(g, include_qq=True, include_dd=True, fake_negative_margin=0.01)),
    ("infonce, own negatives", EVEN, swift_record, None, {"infonce_use_batch": False}, lambda g, _: losses.info_nce(g, use_batch=False)),
    ("infonce, one negative", EVEN, swift_record, None, {"infonce_hard_negatives": 1}, lambda g, _: losses.info_nce(g, hard_negatives=1)),
    ("infonce, widths", UNEVEN, swift_record, None, {"mrl_dims": {str(w): x for w, x in WIDTHS.items()}},
     lambda g, _: losses.matryoshka(losses.info_nce, g, WIDTHS)),
    ("cosine_similarity", PAIRS, columns_record, "score", {"embedding_loss": "cosine_similarity"},
     lambda g, rows: losses.cosine_error(g, labels_of(rows, "score"))),
    ("contrastive", PAIRS, swift_record, "label", {"embedding_loss": "contrastive"},
     lambda g, rows: losses.contrastive(g, labels_of(rows, "label"))),
    ("online_contrastive", PAIRS, columns_record, "label", {"embedding_loss": "online_contrastive", "contrastive_margin": 0.8},
     lambda g, rows: losses.online_contrastive(g, labels_of(rows, "label"), 0.8)),
    ("infonce, chat template", UNEVEN, swift_record, None, {"template": "own", "query_prompt": "Find: "}, lambda g, _: losses.info_nce(g))]


def documents_of(rows):
    return [torch.tensor([1.0] + [0.0] * len(r["negatives"])) for r in rows]


def pointwise(scores, rows):
    return losses.pointwise(scores, documents_of(rows))


# Name, rows, form, the kind of model, keys of the run file, the loss of scores and rows.
RERANKER = [
    ("pointwise", UNEVEN, swift_record, "classification", {}, pointwise),
    ("listwise", UNEVEN, listed_record, "classification", {"reranker_loss": "listwise", "listwise_temperature": 0.5},
     lambda s, _: losses.listwise(s, 0.5)),
    ("generative pointwise", EVEN, listed_record, "generative", {}, pointwise),
    ("generative listwise", UNEVEN, swift_record, "generative", {"reranker_loss": "listwise"}, lambda s, _: losses.listwise(s))]

# Method, strategy, ranks, rows of a micro-batch. Each case takes the next one; with --layouts 2 also a second one on another number of ranks.
LAYOUTS = [("full", "ddp", 1, 2), ("lora", "zero2", 2, 1), ("full", "zero3", 3, 1), ("lora", "ddp", 4, 1)]

UNTIED_NUMBER = 21  # takes a layout with LoRA


def layouts_of(number, count):
    return [LAYOUTS[number % 4], LAYOUTS[(number + 2) % 4]][:count]


def start_from(base, directory, method, kind):
    """An adapter, or a classifier with a head of its own, as PEFT and transformers save them; what training names: model, adapter."""
    from peft import TaskType
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

    if method == "full" and kind != "classification":
        return base, None
    torch.manual_seed(5)
    if kind == "classification":
        model = AutoModelForSequenceClassification.from_pretrained(base, num_labels=1, dtype=torch.float32)
        torch.nn.init.normal_(model.score.weight, std=0.2)
    else:
        model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    if method == "lora":
        task = {"classification": TaskType.SEQ_CLS, "generative": TaskType.CAUSAL_LM, "vectors": None}[kind]
        model = with_lora(model, task)
    model.save_pretrained(directory)
    if method == "lora":
        return base, directory
    copy_tokenizer(base, directory)
    return directory, None


BESIDE_WEIGHTS = {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja", "modules.json",
                  "config_sentence_transformers.json", "sentence_bert_config.json", "1_Pooling/config.json", "1_LogitScore/config.json"}


def files_of(directory, only=None):
    """Checksums of a folder's files, also in subfolders, by their names; `only`: of these."""
    files = {str(path.relative_to(directory)): path for path in sorted(directory.rglob("*")) if path.is_file()}
    return {name: hashlib.sha256(path.read_bytes()).hexdigest()[:8] for name, path in files.items() if only is None or name in only}


class Run:
    """A run of qft and its judge on one case and layout."""

    def __init__(self, report, qft, directory, settings, what, layout, kind):
        self.report, self.qft, self.kind = report, qft, kind
        self.method, strategy, self.ranks, each = layout
        self.what = f"{what}, {self.method} {strategy} on {self.ranks}"
        self.directory = Path(tempfile.mkdtemp(dir=directory))
        self.base = Path(settings["model_name_or_path"])
        self.model, self.adapter = start_from(self.base, self.directory / "start", self.method, kind)
        self.out = self.directory / "out"
        named = {"adapter_name_or_path": str(self.adapter)} if self.adapter else {"model_name_or_path": str(self.model)}
        self.settings = {**settings, **named, "finetuning_type": self.method, "strategy": strategy, "per_device_train_batch_size": each,
                         "output_dir": str(self.out)}
        self.file = write(self.directory / "run.yaml", self.settings)
        self.judge = Judge(self.model, self.adapter, kind, pad=1023)
        self.trained = f"{'adapter' if self.adapter else 'model'}_name_or_path={self.out}"

    def check(self, what, error, limit):
        self.report.check(f"{self.what}: {what}", error, limit)

    def equal(self, what, ours, expected):
        self.report.equal(f"{self.what}: {what}", ours, expected)

    def train(self, rows, loss_of):
        def seen(items):
            loss = loss_of(items)
            return loss, {"loss": loss.item()}

        with torch.no_grad():
            before = loss_of(rows).item()
        mpirun(self.ranks, [self.qft, "train", self.file])
        steps = self.judge.train(rows, seen)
        log = [entry for entry in log_of(self.out) if "loss" in entry]
        self.equal("steps", len(log), len(steps))
        for key in steps[0]:
            self.check(key, worst([e[key] for e in log], [s[key] for s in steps]), TOLERANCE)
        with torch.no_grad():
            after = loss_of(rows).item()
        self.report.holds(f"{self.what}: it learns", after < before, (before, after))

    def evaluated(self):
        return json.loads(mpirun(2, [self.qft, "eval", self.file, self.trained, "compute_dtype=float64", "--json"]).stdout)

    def scored(self, file=None):
        mpirun(2, [self.qft, "score", file or self.file, self.trained, "per_device_eval_batch_size=2", "--output", self.directory / "scores.jsonl"])
        lines = [json.loads(line) for line in (self.directory / "scores.jsonl").read_text().splitlines()]
        self.equal("qft score, records", [line["index"] for line in lines], list(range(ROWS)))
        return lines

    def whole(self):
        """The folder of the whole model: what full training left, or an export with the adapter merged. Also exports it in another way, which
        must keep the files beside the weights."""
        other = self.directory / "other"
        if not self.adapter:
            run([self.qft, "export", self.file, self.trained, "infer_dtype=bfloat16", f"export_dir={other}"])
            self.equal("files of a copy in bf16", files_of(other, BESIDE_WEIGHTS), files_of(self.out, BESIDE_WEIGHTS))
            return self.out
        merged = self.directory / "merged"
        run([self.qft, "export", self.file, self.trained, f"export_dir={merged}"])
        run([self.qft.parent / "qft-ckpt", "merge", self.out, "--output", other])
        self.equal("files of qft-ckpt merge", files_of(other), files_of(merged))
        return merged


def check_embedding(report, qft, tmp, settings, number, case, layouts):
    name, rows, form, label, keys, formula = case
    data = add_data(tmp, f"embedding{number}", rows, form, label, "user")
    for layout in layouts_of(number, layouts):
        r = Run(report, qft, tmp, {**settings, "stage": "embedding", "template": "qwen3_emb", "dataset": data, "eval_dataset": data, **keys},
                f"embedding, {name}", layout, "vectors")
        r.judge.chats = keys.get("template") == "own"
        prompts = keys.get("query_prompt", ""), keys.get("document_prompt", "")
        r.train(rows, lambda items: formula(r.judge.groups(items, prompts), items))
        with torch.no_grad():
            groups = r.judge.groups(rows, prompts)
            parts = [formula(groups[i:i + BATCH], rows[i:i + BATCH]).item() for i in range(0, ROWS, BATCH)]
            metrics = losses.info_nce_metrics(groups, keys.get("infonce_use_batch", True)) if label is None else losses.pair_metrics(
                groups, labels_of(rows, label))
        found = r.evaluated()
        r.check("qft eval, loss", abs(found["eval_loss"] - sum(parts) / len(parts)), IN_FP32)
        if "infonce_hard_negatives" not in keys:
            r.check("qft eval, metrics", worst([found[f"eval_{k}"] for k in metrics], list(metrics.values())), IN_FP32)
        lines = r.scored()
        r.check("qft score, vectors", max((torch.tensor(line["embeddings"], dtype=torch.float64) - g).abs().max().item() for line, g in zip(lines, groups)),
                IN_FP32)
        check_vectors(r, rows, prompts[0], groups)
        if number == 0:
            check_anchors_alone(r, rows, groups)


def check_anchors_alone(r, rows, groups):
    """do_predict, like qft score, needs no documents."""
    anchors, out = r.directory / "anchors.jsonl", r.directory / "predicted"
    anchors.write_text("".join(json.dumps({"text": row["anchor"]}) + "\n" for row in rows))
    mpirun(2, [r.qft, "train", r.file, r.trained, "do_train=false", "do_predict=true", f"eval_dataset={anchors}", f"output_dir={out}"])
    lines = [json.loads(line) for line in (out / "generated_predictions.jsonl").read_text().splitlines()]
    r.equal("do_predict of anchors alone, vectors", [len(line["embeddings"]) for line in lines], [1] * len(rows))
    r.check("do_predict of anchors alone", max((torch.tensor(line["embeddings"][0], dtype=torch.float64) - g[0]).abs().max().item()
                                               for line, g in zip(lines, groups)), IN_FP32)


def check_vectors(r, rows, query_prompt, groups):
    """By transformers and by sentence-transformers, which put the template's tokens themselves."""
    from peft import AutoPeftModel
    from sentence_transformers import SentenceTransformer
    from transformers import AutoModel, AutoTokenizer

    anchors, positives = [row["anchor"] for row in rows], [row["positive"] for row in rows]
    expected, documents = torch.stack([g[0] for g in groups]), torch.stack([g[1] for g in groups])
    folders = [r.whole()]
    if r.adapter:
        folders.append(r.out)
        config = json.loads((r.out / "adapter_config.json").read_text())
        r.equal("the adapter's kind", (config["task_type"], config.get("modules_to_save")), (None, None))
        r.equal("class by PEFT's AutoPeftModel", type(AutoPeftModel.from_pretrained(r.out).get_base_model()).__name__, "Qwen3ForCausalLM")
        r.report.holds(f"{r.what}: the adapter's tensors", all(n.startswith("base_model.model.model.layers.")
                                                              for n in load_file(r.out / "adapter_model.safetensors")))
    for folder in folders:
        what = "transformers" if folder is not r.out or not r.adapter else "transformers, of the adapter"
        tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder, dtype=torch.float32)
        found = []
        for text in anchors:
            ids = tokenizer(query_prompt + text, return_tensors="pt").input_ids
            with torch.no_grad():
                found.append(normalize(model(input_ids=ids).last_hidden_state[0, -1], dim=0))
        r.check(f"vectors by {what}", (torch.stack(found) - expected).abs().max().item(), IN_FP32)
        st = SentenceTransformer(str(folder), device="cpu", model_kwargs={"dtype": torch.float32})
        r.equal(f"modules of sentence-transformers ({what})", [type(m).__name__ for m in st], ["Transformer", "Pooling", "Normalize"])
        r.equal(f"similarity and default prompt of sentence-transformers ({what})", (st.similarity_fn_name, st.default_prompt_name), ("cosine", None))
        r.check(f"vectors by sentence-transformers ({what})", (torch.tensor(st.encode_query(anchors)) - expected).abs().max().item(), IN_FP32)
        r.check(f"documents by sentence-transformers ({what})", (torch.tensor(st.encode_document(positives)) - documents).abs().max().item(), IN_FP32)
        for width in (8, 16):
            cut = torch.tensor(st.encode_query(anchors, truncate_dim=width, normalize_embeddings=True))
            r.check(f"{width} numbers of them ({what})", (cut - normalize(expected[:, :width], dim=1)).abs().max().item(), IN_FP32)


def write_untied(base, directory):
    """The layout of Qwen3-Embedding-8B: no prefix, untied by config.json, but no lm_head; with a default prompt that training does not put."""
    shutil.copytree(base, directory)
    tensors = load_file(base / "model.safetensors")
    save_file({name.removeprefix("model."): tensor for name, tensor in tensors.items()}, directory / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((base / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": False}))
    modules = [{"idx": i, "name": str(i), "path": f"{i}_{kind}" if i else "", "type": f"sentence_transformers.models.{kind}"}
               for i, kind in enumerate(("Transformer", "Pooling", "Normalize"))]
    (directory / "modules.json").write_text(json.dumps(modules))
    (directory / "1_Pooling").mkdir()
    (directory / "1_Pooling/config.json").write_text(json.dumps({"word_embedding_dimension": config["hidden_size"], "pooling_mode": "lasttoken"}))
    (directory / "config_sentence_transformers.json").write_text(json.dumps({"prompts": {"web": "Search: "}, "default_prompt_name": "web"}))
    return directory


def check_reranker(report, qft, tmp, settings, number, case, layouts):
    name, rows, form, kind, keys, formula = case
    data = add_data(tmp, f"reranker{number}", rows, form, None, "assistant")
    own = {"reranker_type": kind, "template": "own" if kind == "classification" else "qwen3_reranker"}
    if kind == "generative":
        own |= {"reranker_positive_token": POSITIVE, "reranker_negative_token": NEGATIVE}
    for layout in layouts_of(number, layouts):
        r = Run(report, qft, tmp, {**settings, "stage": "reranker", "dataset": data, "eval_dataset": data, **own, **keys}, f"reranker, {name}", layout, kind)
        r.train(rows, lambda items: formula(r.judge.scores(items), items))
        with torch.no_grad():
            scores = r.judge.scores(rows)
            loss = formula(scores, rows).item()
        labels = documents_of(rows)
        acc = losses.listwise_accuracy(scores) if "listwise" in name else losses.pointwise_accuracy(scores, labels)
        expected = {"loss": loss, "acc": acc, **losses.ranking_metrics(scores)}
        found = r.evaluated()
        r.check("qft eval", worst([found[f"eval_{k}"] for k in expected], list(expected.values())), IN_FP32)
        for line, s in zip(r.scored(), scores):
            r.check(f"qft score, record {line['index']}", max((torch.tensor(line["scores"], dtype=torch.float64) - s).abs().max().item(),
                                                             (torch.tensor(line["probabilities"], dtype=torch.float64) - s.sigmoid()).abs().max().item()), IN_FP32)
        if kind == "generative":
            check_tokens(r, scores)
        check_cross_encoder(r, rows, torch.cat(scores))


def check_tokens(r, scores):
    """The folder tells the answers, unless the run file names them; then they must agree."""
    bare = {key: value for key, value in r.settings.items() if key not in ("reranker_positive_token", "reranker_negative_token")}
    for line, s in zip(r.scored(write(r.directory / "bare.yaml", bare)), scores):
        r.check(f"qft score by the folder's tokens, record {line['index']}", (torch.tensor(line["scores"], dtype=torch.float64) - s).abs().max().item(),
                IN_FP32)
    result = run([r.qft, "eval", r.file, r.trained, f"reranker_positive_token={NEGATIVE}", f"reranker_negative_token={POSITIVE}"], check=False)
    r.report.holds(f"{r.what}: other tokens are refused", result.returncode != 0 and "1_LogitScore" in result.stderr, result.stderr)


def check_cross_encoder(r, rows, expected):
    """The folder by transformers, with this file's prompts, and by sentence-transformers, with the folder's own."""
    from sentence_transformers import CrossEncoder

    folder = r.whole()
    with torch.no_grad():
        found = torch.cat(Judge(folder, None, r.kind, r.judge.pad).scores(rows))
    r.check("scores by transformers", (found - expected).abs().max().item(), IN_FP32)
    if r.adapter:
        with torch.no_grad():
            found = torch.cat(Judge(r.base, r.out, r.kind, r.judge.pad).scores(rows))
        r.check("scores by PEFT", (found - expected).abs().max().item(), IN_FP32)
        config = json.loads((r.out / "adapter_config.json").read_text())
        r.equal("the adapter's kind", (config["task_type"], config.get("modules_to_save")),
                ("SEQ_CLS", ["score"]) if r.kind == "classification" else ("CAUSAL_LM", None))
    pairs = [(row["anchor"], document) for row in rows for document in (row["positive"], *row["negatives"])]
    for folder in [folder, r.out] if r.adapter and r.kind == "classification" else [folder]:
        what = "of the adapter" if folder is r.out and r.adapter else "of the whole model"
        model = CrossEncoder(str(folder), device="cpu", model_kwargs={"dtype": torch.float32})
        r.equal(f"modules of sentence-transformers, {what}", [type(m).__name__ for m in model],
                ["Transformer"] if r.kind == "classification" else ["Transformer", "LogitScore"])
        found = torch.tensor(model.predict(pairs, activation_fn=torch.nn.Identity()))
        r.check(f"scores by sentence-transformers, {what}", (found - expected).abs().max().item(), IN_FP32)
        r.check(f"its probabilities, {what}", (torch.tensor(model.predict(pairs)) - expected.sigmoid()).abs().max().item(), IN_FP32)


def main():
    args = arguments(only="", layouts=1)
    qft = args.build / "bin/qft"
    report = Report()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as tmp:
        tmp = Path(tmp)
        settings = {**make(tmp, "qwen3"), "lora_dropout": 0.0, "disable_shuffling": True, "lr_scheduler_type": "constant", "warmup_ratio": 0.0,
                    "learning_rate": LR, "adam_epsilon": 1e-3, "num_train_epochs": EPOCHS, "global_batch_size": BATCH, "cutoff_len": 256}
        for key in ("lora_rank", "lora_alpha"):
            settings.pop(key, None)
        for number, case in enumerate(EMBEDDING):
            if f"embedding {case[0]}".startswith(args.only):
                check_embedding(report, qft, tmp, settings, number, case, args.layouts)
        if "embedding untied without lm_head".startswith(args.only):
            untied = {**settings, "model_name_or_path": str(write_untied(Path(settings["model_name_or_path"]), tmp / "untied"))}
            check_embedding(report, qft, tmp, untied, UNTIED_NUMBER, ("untied, without lm_head", *EMBEDDING[0][1:]), args.layouts)
        for number, case in enumerate(RERANKER):
            if f"reranker {case[0]}".startswith(args.only):
                check_reranker(report, qft, tmp, settings, number, case, args.layouts)
    report.finish()


if __name__ == "__main__":
    main()
