"""Records what TRL 0.24's trainers compute of preference pairs, single answers and rewards: golden/trl.json, which trl_parity.py holds qft
against. It needs an environment of its own, since TRL 0.24 does not run with newer transformers:

    pip install trl==0.24.0 transformers==4.57.1 peft==0.17.1 accelerate==1.11.0 datasets==4.4.1 torch==2.11.0
    python tests/interop/make_trl_goldens.py --build build

Trainers are TRL's as they are; they are given token ids of a pack, and take them in the pack's order."""
import json
import os
import tempfile
from importlib.metadata import version
from pathlib import Path

os.environ.update(CUDA_VISIBLE_DEVICES="", HF_HUB_OFFLINE="1")

import torch  # noqa: E402
from datasets import Dataset  # noqa: E402
from peft import PeftModel  # noqa: E402
from safetensors.torch import load_file  # noqa: E402
from torch.utils.data import SequentialSampler  # noqa: E402
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer  # noqa: E402
from trl import (CPOConfig, CPOTrainer, DPOConfig, DPOTrainer, KTOConfig, KTOTrainer, ORPOConfig, ORPOTrainer, RewardConfig,  # noqa: E402
                 RewardTrainer)

from common import arguments  # noqa: E402
from trl_cases import BATCH, CASES, EPOCHS, EPSILON, GOLDEN, LR, inputs  # noqa: E402


def in_order(trainer):
    """The trainer's class, taking its samples one after the other, and keeping the losses, which its log rounds."""

    class InOrder(trainer):
        def _get_train_sampler(self, dataset=None):
            return SequentialSampler(self.train_dataset)

        def _prepare_dataset(self, dataset, *more):
            return dataset

        def training_step(self, *given, **named):
            loss = super().training_step(*given, **named)
            self.losses = [*getattr(self, "losses", []), loss.item()]
            return loss

    return InOrder


class AnswersOrpo(ORPOTrainer):
    """TRL takes the loss of prompt and answer for the likelihood; the paper and LLaMA-Factory the answer's mean log-probability."""

    def concatenated_forward(self, model, batch):
        chosen, rejected, *logits, _ = super().concatenated_forward(model, batch)
        return chosen, rejected, *logits, -chosen.mean()


def sides(prompt, answer):
    return {"input_ids": prompt + answer, "attention_mask": [1] * len(prompt + answer), "labels": [-100] * len(prompt) + answer}


def pair_rows(pairs):
    """The columns of all trainers of pairs: prompt and answers apart, and joined."""
    rows = []
    for pair in pairs:
        prompt = pair["prompt"]
        rows.append({"prompt_input_ids": prompt, **{f"{side}_{k}": v for side in ("chosen", "rejected") for k, v in sides(prompt, pair[side]).items()}})
    return rows


def answer_rows(answers):
    rows = []
    for a in answers:
        row = {"prompt_input_ids": a["prompt"], "prompt_attention_mask": [1] * len(a["prompt"]), "label": a["liked"]}
        row |= {f"completion_{k}": v for k, v in sides(a["prompt"], a["answer"]).items()}
        rows.append(row | {f"KL_completion_{k}": v for k, v in sides(a["prompt"], a["kl"]).items()})
    return rows


def settings(case, directory):
    accumulation = case.get("accumulation", 1)
    return dict(output_dir=directory, per_device_train_batch_size=BATCH // accumulation, gradient_accumulation_steps=accumulation,
                num_train_epochs=EPOCHS, learning_rate=LR, lr_scheduler_type="constant", weight_decay=0.0, adam_epsilon=EPSILON, max_grad_norm=1.0,
                logging_steps=1, save_strategy="no", report_to=[], use_cpu=True, bf16=False, gradient_checkpointing=False, disable_tqdm=True,
                remove_unused_columns=False, max_length=None, **case["trl"])


def pair_trainer(case, model, tokenizer, data, directory):
    if case["trainer"] == "dpo":
        rows = [{k: r[k] for k in ("prompt_input_ids",)} | {f"{s}_input_ids": r[f"{s}_labels"][len(r["prompt_input_ids"]):] for s in ("chosen", "rejected")}
                for r in pair_rows(data["pairs"])]
        return in_order(DPOTrainer)(model, args=DPOConfig(**settings(case, directory), max_prompt_length=None), processing_class=tokenizer,
                                    train_dataset=Dataset.from_list(rows))
    trainer, config = (CPOTrainer, CPOConfig) if case["trainer"] == "cpo" else (AnswersOrpo, ORPOConfig)
    text = Dataset.from_list([{"prompt": "a", "chosen": "b", "rejected": "c"}])  # for the tokens of which those of the pack are put
    made = in_order(trainer)(model, args=config(**{**settings(case, directory), "max_length": 512}, max_prompt_length=256), processing_class=tokenizer,
                             train_dataset=text)
    made.train_dataset = Dataset.from_list(pair_rows(data["pairs"]))
    return made


def kto_trainer(case, model, tokenizer, data, directory):
    text = Dataset.from_list([{"prompt": "a", "completion": "b", "label": bool(i)} for i in range(2)])
    made = in_order(KTOTrainer)(model, args=KTOConfig(**{**settings(case, directory), "max_length": 512}, max_prompt_length=256),
                                processing_class=tokenizer, train_dataset=text)
    made.train_dataset = Dataset.from_list(answer_rows(data["answers"]))
    return made


def reward_trainer(case, model_dir, head, tokenizer, data, directory):
    model = AutoModelForSequenceClassification.from_pretrained(model_dir, num_labels=1, dtype=torch.float32)
    model.score.weight.data.copy_(load_file(head)["v_head.summary.weight"])
    rows = [{f"{side}_input_ids": r[f"{side}_input_ids"] for side in ("chosen", "rejected")} for r in pair_rows(data["pairs"])]
    return in_order(RewardTrainer)(model, args=RewardConfig(**settings(case, directory)), processing_class=tokenizer,
                                   train_dataset=Dataset.from_list(rows))


def trained(case, made, data):
    """What the trainer logs of each step."""
    tokenizer = AutoTokenizer.from_pretrained(made["model"])
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    with tempfile.TemporaryDirectory() as directory:
        if case["trainer"] == "reward":
            trainer = reward_trainer(case, made["model"], made["head"], tokenizer, data, directory)
        else:
            model = AutoModelForCausalLM.from_pretrained(made["model"], dtype=torch.float32)
            model = PeftModel.from_pretrained(model, made["adapter"], is_trainable=True)
            trainer = (kto_trainer if case["trainer"] == "kto" else pair_trainer)(case, model, tokenizer, data, directory)
        trainer.train()
    each = case.get("accumulation", 1)
    losses = [sum(trainer.losses[i:i + each]) for i in range(0, len(trainer.losses), each)]
    names = [name for name in trainer.state.log_history[0] if name not in ("learning_rate", "epoch", "step", "num_tokens")]
    return {name: losses if name == "loss" else [entry[name] for entry in trainer.state.log_history[:-1]] for name in names}


def main():
    args = arguments()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as tmp:
        made, data = inputs(Path(tmp), args.build)
        steps = {case["name"]: trained(case, made, data) for case in CASES}
    versions = {name: version(name) for name in ("trl", "transformers", "peft", "accelerate", "torch")}
    GOLDEN.write_text(json.dumps({"versions": versions, "data": data, "steps": steps}, separators=(",", ":")).replace(',"', ',\n"') + "\n")
    print(f"{GOLDEN}: {len(steps)} runs")


if __name__ == "__main__":
    main()
