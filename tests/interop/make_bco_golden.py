"""Records what LLaMA-Factory's own code computes with pref_bco_weight: golden/bco.json, which bco_parity.py holds qft against.

    git clone https://github.com/hiyouga/LLaMA-Factory; git clone https://github.com/huggingface/trl
    python tests/interop/make_bco_golden.py --build build --llama_factory LLaMA-Factory --trl trl

Of LLaMA-Factory get_batch_logps, and bco_loss and compute_preference_loss of CustomDPOTrainer, and of TRL RunningMoments, are taken out of
the checkouts and run as they are, over transformers' and PEFT's model in fp32: a micro-batch is a step, on one rank. What the trainer has
from TRL besides, dpo_loss with loss_type sigmoid, hinge and ipo, is said here."""
import ast
import json
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import torch
import torch.nn.functional as F

from bco_cases import BATCH, CASES, EPOCHS, EPSILON, GOLDEN, LR, inputs
from common import arguments
from preferences import SAMPLES

IGNORED = -100


def parts_of(path, names):
    """Functions and classes of a Python file, those of a class's methods too, run without what is around them."""
    tree = ast.parse(path.read_text())
    found = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name in names]
    for node in found:
        node.decorator_list = [d for d in node.decorator_list if getattr(d, "id", "") != "override"]
    scope = {"torch": torch, "F": F, "Optional": __import__("typing").Optional, "IGNORE_INDEX": IGNORED, "Accelerator": object, "dataclass": dataclass,
             "get_global_statistics": None}
    exec(compile(ast.fix_missing_locations(ast.Module(found, [])), str(path), "exec"), scope)  # noqa: S102
    return [scope[name] for name in names]


def dpo_loss(self, chosen, rejected, reference_chosen, reference_rejected):
    margin = (chosen - reference_chosen) - (rejected - reference_rejected)
    losses = {"sigmoid": lambda: -F.logsigmoid(self.beta * margin), "hinge": lambda: torch.relu(1 - self.beta * margin),
              "ipo": lambda: (margin - 1 / (2 * self.beta))**2}[self.loss_type]()
    return losses, self.beta * (chosen - reference_chosen).detach(), self.beta * (rejected - reference_rejected).detach()


def padded(sequences):
    longest = max(len(s["ids"]) for s in sequences)
    ids, mask = torch.zeros(len(sequences), longest, dtype=torch.long), torch.zeros(len(sequences), longest, dtype=torch.long)
    labels = torch.full((len(sequences), longest), IGNORED)
    for row, s in enumerate(sequences):
        n = len(s["ids"])
        ids[row, :n], mask[row, :n] = torch.tensor(s["ids"]), 1
        for begin, end in s["label_spans"]:
            labels[row, begin:end] = ids[row, begin:end]
    return ids, mask, labels


def steps_of(case, made, pairs, llama_factory, trl):
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    get_batch_logps, = parts_of(llama_factory / "src/llamafactory/train/trainer_utils.py", ["get_batch_logps"])
    bco_loss, compute_preference_loss = parts_of(llama_factory / "src/llamafactory/train/dpo/trainer.py", ["bco_loss", "compute_preference_loss"])
    moments, = parts_of(trl / "trl/experimental/bco/bco_trainer.py", ["RunningMoments"])
    accelerator = SimpleNamespace(device=torch.device("cpu"), use_distributed=False)
    trainer = SimpleNamespace(accelerator=accelerator, finetuning_args=SimpleNamespace(use_ref_model=True), beta=case["pref_beta"],
                              loss_type=case["pref_loss"], bco_gemma=case["pref_bco_weight"], running=moments(accelerator))
    trainer.bco_loss = lambda *given: bco_loss(trainer, *given)
    trainer.dpo_loss = lambda *given: dpo_loss(trainer, *given)

    torch.manual_seed(0)
    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(made["model"], dtype=torch.float32), made["adapter"], is_trainable=True)
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=LR, weight_decay=0.0, eps=EPSILON)

    def logps(sequences, policy):
        ids, mask, labels = padded(sequences)
        sums, lengths = get_batch_logps(model(input_ids=ids, attention_mask=mask).logits.float(), labels,
                                        ld_alpha=case.get("ld_alpha") if policy else None)
        return (sums / lengths if case["pref_loss"] == "ipo" else sums).chunk(2)

    steps = []
    for step in range(EPOCHS * SAMPLES // BATCH):
        batch = pairs[step * BATCH % SAMPLES:][:BATCH]
        sequences = [p["chosen"] for p in batch] + [p["rejected"] for p in batch]
        policy = logps(sequences, True)
        with torch.no_grad(), model.disable_adapter():
            reference = logps(sequences, False)
        losses, chosen, rejected = compute_preference_loss(trainer, *policy, *reference)
        losses.mean().backward()
        norm = torch.nn.utils.clip_grad_norm_(parameters, 1.0).item()
        optimizer.step()
        optimizer.zero_grad()
        steps.append({"loss": losses.mean().item(), "grad_norm": norm, "rewards/chosen": chosen.mean().item(), "rewards/rejected": rejected.mean().item()})
    return steps


def main():
    args = arguments(llama_factory=None, trl=None)
    torch.set_num_threads(1)
    commit = lambda path: subprocess.run(["git", "-C", path, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    with tempfile.TemporaryDirectory() as tmp:
        made, pairs = inputs(Path(tmp), args.build)
        steps = {case["name"]: steps_of(case, made, pairs, Path(args.llama_factory), Path(args.trl)) for case in CASES}
    GOLDEN.write_text(json.dumps({"llama_factory": commit(args.llama_factory), "trl": commit(args.trl), "data": pairs, "steps": steps}) + "\n")


if __name__ == "__main__":
    main()
