"""What make_bco_golden.py has LLaMA-Factory's code train, and bco_parity.py qft: the same model, adapter, token ids and settings."""
from pathlib import Path

from preferences import items_of, make_adapter, settings_of

GOLDEN = Path(__file__).parent / "golden/bco.json"
BATCH, EPOCHS, LR = 4, 2, 2e-3
EPSILON = 1e-3  # of AdamW: a small one would make steps of the rounding errors of gradients that are almost 0
CASES = [{"name": "sigmoid", "pref_loss": "sigmoid", "pref_beta": 0.5, "pref_bco_weight": 0.7},
         {"name": "hinge", "pref_loss": "hinge", "pref_beta": 0.3, "pref_bco_weight": 2.0, "ld_alpha": 0.4},
         {"name": "ipo", "pref_loss": "ipo", "pref_beta": 0.2, "pref_bco_weight": 0.3}]


def inputs(directory, build):
    """The files that both train from, and the pairs' token ids and labels."""
    settings = settings_of(directory, stage="dpo", dataset="pairs", compute_dtype="float32", learning_rate=LR, adam_epsilon=EPSILON,
                           num_train_epochs=EPOCHS, global_batch_size=BATCH)
    model = settings["model_name_or_path"]
    made = {"settings": settings, "model": model, "adapter": str(make_adapter(directory / "adapter", model))}
    return made, items_of(build, directory, settings, "dpo", "pairs")
