"""LLaMA-Factory's usual LoRA SFT run file runs as it is after changing the model path."""
import shutil
import sys
import tempfile
from pathlib import Path

import torch

from common import ROOT, Report, arguments, mpirun
from models import make_model
from tiny import log_of

RUN = """
model_name_or_path: MODEL
stage: sft
do_train: true
finetuning_type: lora
lora_target: all
lora_rank: 64
lora_alpha: 128
lora_dropout: 0.05
dataset: identity
dataset_dir: DATA
template: qwen
cutoff_len: 2048
preprocessing_num_workers: 8
output_dir: OUT
logging_steps: 1
save_steps: 500
save_total_limit: 3
per_device_train_batch_size: 1
gradient_accumulation_steps: 8
learning_rate: 2.0e-5
num_train_epochs: 3.0
lr_scheduler_type: cosine
warmup_ratio: 0.1
bf16: true
gradient_checkpointing: true
val_size: 0.0
per_device_eval_batch_size: 1
eval_strategy: "no"
"""


def main():
    args = arguments()
    shared = ROOT.parent / "shared"
    if not shared.exists():
        print("skipped: no shared test data")
        sys.exit(77)
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, Qwen2Config

    report = Report()
    with tempfile.TemporaryDirectory() as tmp:
        tmp = Path(tmp)
        config = Qwen2Config(hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
                             num_key_value_heads=2, vocab_size=151936, tie_word_embeddings=True)
        make_model(config, tmp / "model", torch.bfloat16)
        for f in (shared / "tokenizers/qwen2.5").iterdir():
            shutil.copy(f, tmp / "model")
        run_file = tmp / "run.yaml"
        run_file.write_text(RUN.replace("MODEL", str(tmp / "model")).replace("DATA", str(shared / "data")).replace("OUT", str(tmp / "out")))
        mpirun(2, [args.build / "bin/qft", "train", run_file])
        log = log_of(tmp / "out")
        # 91 samples, 16 a step: six steps an epoch, the last one short.
        report.equal("steps", log[-1]["current_steps"], 18)
        report.equal("total_steps", log[-1]["total_steps"], 18)
        report.check("last epoch", abs(log[-1]["epoch"] - 3.0), 1e-9)
        model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(tmp / "model"), tmp / "out")
        report.equal("rank of the adapter in PEFT", model.peft_config["default"].r, 64)
        dropout = abs(model.peft_config["default"].lora_dropout - 0.05)
        report.check("its dropout", dropout, 1e-12)
        expected = {"adapter_config.json", "adapter_model.safetensors", "tokenizer.json", "tokenizer_config.json", "trainer_log.jsonl",
                    "trainer_state.json", "train_results.json", "all_results.json", "training_loss.svg", "checkpoint-18"}
        missing = expected - {f.name for f in (tmp / "out").iterdir()}
        report.equal("files that are missing", sorted(missing), [])
    report.finish()


main()
