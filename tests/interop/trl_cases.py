"""What make_trl_goldens.py has TRL train, and trl_parity.py qft: the same model, adapter, token ids and settings."""
from pathlib import Path

from preferences import items_of, make_adapter, make_head, settings_of

GOLDEN = Path(__file__).parent / "golden/trl.json"
BATCH, EPOCHS, LR = 4, 2, 2e-3
EPSILON = 1e-3  # of AdamW: a small one would make steps of the rounding errors of gradients that are almost 0

# name; TRL's trainer and what it is told; what qft is told.
CASES = [dict(zip(("name", "trainer", "trl", "qft"), row)) for row in (
    ("sigmoid", "dpo", {"loss_type": "sigmoid", "beta": 0.1}, {"pref_loss": "sigmoid", "pref_beta": 0.1}),
    ("smoothed", "dpo", {"loss_type": "sigmoid", "beta": 0.5, "label_smoothing": 0.2}, {"pref_beta": 0.5, "dpo_label_smoothing": 0.2}),
    ("hinge", "dpo", {"loss_type": "hinge", "beta": 0.3}, {"pref_loss": "hinge", "pref_beta": 0.3}),
    ("ipo", "dpo", {"loss_type": "ipo", "beta": 0.2}, {"pref_loss": "ipo", "pref_beta": 0.2}),
    ("orpo", "orpo", {"beta": 0.4}, {"pref_loss": "orpo", "pref_beta": 0.4}),
    ("simpo", "cpo", {"loss_type": "simpo", "beta": 2.0, "simpo_gamma": 0.9, "cpo_alpha": 0.0}, {"pref_loss": "simpo", "pref_beta": 2.0, "simpo_gamma": 0.9}),
    ("cpo", "cpo", {"loss_type": "sigmoid", "beta": 0.3, "cpo_alpha": 0.7, "label_smoothing": 0.1},
     {"pref_loss": "cpo", "pref_beta": 0.3, "rpo_alpha": 0.7, "dpo_label_smoothing": 0.1}),
    ("simpo and cpo_alpha", "cpo", {"loss_type": "simpo", "beta": 2.0, "simpo_gamma": 1.0, "cpo_alpha": 1.0},
     {"pref_loss": "simpo", "pref_beta": 2.0, "simpo_gamma": 1.0, "rpo_alpha": 1.0}),
    ("rpo", "dpo", {"loss_type": "sigmoid", "beta": 0.2, "rpo_alpha": 0.5}, {"pref_beta": 0.2, "rpo_alpha": 0.5}),
    ("kto", "kto", {"beta": 0.5, "desirable_weight": 1.3, "undesirable_weight": 0.8},
     {"stage": "kto", "dataset": "answers", "pref_beta": 0.5, "kto_chosen_weight": 1.3, "kto_rejected_weight": 0.8}),
    ("precomputed", "dpo", {"loss_type": "ipo", "beta": 0.3, "precompute_ref_log_probs": True},
     {"pref_loss": "ipo", "pref_beta": 0.3, "precompute_ref_log_probs": True}),
    ("precomputed kto", "kto", {"beta": 0.4, "precompute_ref_log_probs": True},
     {"stage": "kto", "dataset": "answers", "pref_beta": 0.4, "precompute_ref_log_probs": True}),
    ("reward", "reward", {}, {"stage": "rm", "finetuning_type": "full"}))]
CASES.append({**CASES[0], "name": "accumulated", "accumulation": 2})


def parts(sequence):
    """Prompt and answer: all that follows the first label is learned."""
    (begin, end), = sequence["label_spans"]
    if end != len(sequence["ids"]):
        raise SystemExit(f"an answer ends at {end} of {len(sequence['ids'])} tokens: TRL learns all behind the prompt")
    return sequence["ids"][:begin], sequence["ids"][begin:]


def inputs(directory, build):
    """The files that both train from, and the token ids."""
    settings = settings_of(directory, stage="dpo", dataset="pairs", compute_dtype="float32", learning_rate=LR, adam_epsilon=EPSILON,
                           num_train_epochs=EPOCHS, global_batch_size=BATCH)
    model = settings["model_name_or_path"]
    made = {"settings": settings, "model": model, "adapter": str(make_adapter(directory / "adapter", model))}
    make_head(Path(model), 32, bias=0.0)  # TRL's has none; a pair's loss leaves it at 0
    made["head"] = str(Path(model) / "value_head.safetensors")
    pairs, answers = (items_of(build, directory, settings, stage, data) for stage, data in (("dpo", "pairs"), ("kto", "answers")))
    data = {"pairs": [{"prompt": parts(p["chosen"])[0], "chosen": parts(p["chosen"])[1], "rejected": parts(p["rejected"])[1]} for p in pairs],
            "answers": [{"prompt": parts(a)[0], "answer": parts(a)[1], "kl": parts(a["kl"])[1], "liked": a["kto_tag"]} for a in answers]}
    return made, data
