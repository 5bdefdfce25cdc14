"""Losses, gradients and metrics of embedding_losses.py on a few vectors and scores: tests/engine/embedding_losses.json, which the C++ tests of
stages embedding and reranker read. `embedding_fixture.py --write` makes the file; as a test this compares it with the formulas of today."""
import json
import sys
from pathlib import Path

import torch
from torch.nn.functional import normalize

import embedding_losses as losses

FILE = Path(__file__).parents[1] / "engine/embedding_losses.json"
WIDTH = 8


def numbers(count, step):
    """Values from -0.6 to 1.4 that no random generator decides."""
    return torch.sin(torch.arange(count, dtype=torch.float64).square() * step + 1) + 0.4


def embedding_case(name, options, sizes, loss, labels=None, metrics=None):
    """`sizes`: of the groups. The vectors are not of length 1: the gradient goes through the normalisation."""
    x = numbers(sum(sizes) * WIDTH, 0.73).view(-1, WIDTH).requires_grad_()
    value = loss([normalize(g, dim=1) for g in x.split(sizes)])
    value.backward()
    groups = [normalize(g, dim=1) for g in x.detach().split(sizes)]
    return {"name": name, "options": options, "sizes": sizes, "labels": labels or [], "vectors": x.detach().flatten().tolist(),
            "loss": value.item(), "gradient": x.grad.flatten().tolist(), "metrics": metrics(groups) if metrics else {}}


def embedding_cases():
    uneven, even, pairs = [3, 5, 2, 4], [4, 4, 4], [2] * 6
    binary, shares = [1.0, 0.0, 0.0, 1.0, 1.0, 0.0], [0.0, 0.25, 0.5, 0.75, 1.0, 0.5]
    y, z = torch.tensor(binary, dtype=torch.float64), torch.tensor(shares, dtype=torch.float64)
    widths = {2: 1.0, 4: 0.5, WIDTH: 2.0}
    own = {"infonce_use_batch": False}
    return [
        embedding_case("infonce", {}, uneven, losses.info_nce, metrics=losses.info_nce_metrics),
        embedding_case("temperature", {"infonce_temperature": 0.5}, uneven, lambda g: losses.info_nce(g, 0.5)),
        embedding_case("own negatives", own, even, lambda g: losses.info_nce(g, use_batch=False),
                       metrics=lambda g: losses.info_nce_metrics(g, use_batch=False)),
        embedding_case("other anchors", {"infonce_include_qq": True}, uneven, lambda g: losses.info_nce(g, include_qq=True)),
        embedding_case("other documents", {"infonce_include_dd": True}, uneven, lambda g: losses.info_nce(g, include_dd=True)),
        embedding_case("mask", {"infonce_mask_fake_negative": True, "infonce_fake_neg_margin": 0.05}, uneven,
                       lambda g: losses.info_nce(g, fake_negative_margin=0.05)),
        embedding_case("all blocks", {"infonce_include_qq": True, "infonce_include_dd": True, "infonce_mask_fake_negative": True,
                                      "infonce_fake_neg_margin": 0.05}, uneven,
                       lambda g: losses.info_nce(g, include_qq=True, include_dd=True, fake_negative_margin=0.05)),
        embedding_case("widths", {"mrl_dims": {str(w): x for w, x in widths.items()}}, uneven,
                       lambda g: losses.matryoshka(losses.info_nce, g, widths)),
        embedding_case("cosine_similarity", {"embedding_loss": "cosine_similarity"}, pairs, lambda g: losses.cosine_error(g, z), shares,
                       lambda g: losses.pair_metrics(g, z)),
        embedding_case("contrastive", {"embedding_loss": "contrastive"}, pairs, lambda g: losses.contrastive(g, y), binary),
        embedding_case("contrastive, margin", {"embedding_loss": "contrastive", "contrastive_margin": 1.2}, pairs,
                       lambda g: losses.contrastive(g, y, 1.2), binary),
        embedding_case("online_contrastive", {"embedding_loss": "online_contrastive", "contrastive_margin": 1.5}, pairs,
                       lambda g: losses.online_contrastive(g, y, 1.5), binary),
        embedding_case("online_contrastive, no far pair", {"embedding_loss": "online_contrastive"}, pairs,
                       lambda g: losses.online_contrastive(g, torch.ones(6)), [1.0] * 6),
        embedding_case("online_contrastive, widths", {"embedding_loss": "online_contrastive", "contrastive_margin": 1.5,
                                                      "mrl_dims": {str(w): x for w, x in widths.items()}}, pairs,
                       lambda g: losses.matryoshka(lambda h: losses.online_contrastive(h, y, 1.5), g, widths), binary),
    ]


def reranker_case(name, options, sizes, loss, metrics):
    """A query of each size, its first document the relevant one."""
    x = (numbers(sum(sizes), 1.31) * 3).requires_grad_()
    value = loss(list(x.split(sizes)))
    value.backward()
    scores = list(x.detach().split(sizes))
    return {"name": name, "options": options, "sizes": sizes, "scores": x.detach().tolist(), "loss": value.item(), "gradient": x.grad.tolist(),
            "metrics": {"acc": metrics(scores), **losses.ranking_metrics(scores)}}


def labels_of(scores):
    return [torch.tensor([1.0] + [0.0] * (len(s) - 1), dtype=torch.float64) for s in scores]


def reranker_cases():
    sizes = [3, 1, 4, 2]
    return [
        reranker_case("pointwise", {}, sizes, lambda s: losses.pointwise(s, labels_of(s)), lambda s: losses.pointwise_accuracy(s, labels_of(s))),
        reranker_case("listwise", {"reranker_loss": "listwise"}, sizes, losses.listwise, losses.listwise_accuracy),
        reranker_case("listwise, temperature", {"reranker_loss": "listwise", "listwise_temperature": 0.4, "listwise_min_group_size": 3}, sizes,
                      lambda s: losses.listwise(s, 0.4, 3), losses.listwise_accuracy),
    ]


def difference(a, b):
    """The largest one of numbers at the same place; infinite if anything else differs."""
    if isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
        return max([difference(a[key], b[key]) for key in a], default=0.0)
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        return max([difference(x, y) for x, y in zip(a, b)], default=0.0)
    if isinstance(a, float) and isinstance(b, float):
        return abs(a - b)
    return 0.0 if a == b else float("inf")


def main():
    torch.set_num_threads(1)
    made = {"embedding": embedding_cases(), "reranker": reranker_cases()}
    if "--write" in sys.argv:
        FILE.write_text("{" + ",\n".join(f'"{kind}": [\n' + ",\n".join(map(json.dumps, cases)) + "]" for kind, cases in made.items()) + "}\n")
        return
    from common import Report

    report = Report()
    report.check("the numbers in tests/engine", difference(made, json.loads(FILE.read_text())), 1e-12)
    report.finish()


if __name__ == "__main__":
    main()
