"""The losses and metrics of embedding models and rerankers as formulas of vectors and scores, in the type of what is given: the oracle of
the parity tests. embedding_losses_test.py holds them against sentence-transformers.

A group is one row of the data: [2 + n, D], its anchor, its positive and its n negatives, each of length 1. Labels are tensors."""
import torch
from torch.nn.functional import binary_cross_entropy_with_logits, cosine_similarity, normalize


def info_nce(groups, temperature=0.1, use_batch=True, hard_negatives=None, include_qq=False, include_dd=False, fake_negative_margin=None):
    """Mean over the anchors of -log softmax of the positive's similarity / temperature. The softmax goes over the documents (positives and
    negatives) of all groups; use_batch=False: of the anchor's own. It also goes over

    - include_qq: the similarities of the anchor with the other anchors;
    - include_dd: those of the positive with all documents but itself, its own negatives among them.

    fake_negative_margin leaves out documents and anchors that are nearer to the anchor than its positive by more than this margin; no
    gradient goes through the bound. hard_negatives: the negatives that are used of each group, the first ones."""
    if hard_negatives is not None:
        groups = [group[:2 + hard_negatives] for group in groups]
    anchors, documents = torch.stack([g[0] for g in groups]), torch.cat([g[1:] for g in groups])
    losses, first = [], 0
    for i, group in enumerate(groups):
        positive = (group[0] * group[1]).sum()
        if not use_batch:
            similarities = [group[1:] @ group[0]]
        else:
            others = [anchors[j] @ group[0] for j in range(len(groups)) if j != i] if include_qq else []
            similarities = [documents @ group[0], *[s[None] for s in others]]
            if fake_negative_margin is not None:
                similarities = [s[s <= positive.detach() + fake_negative_margin] for s in similarities]
            if include_dd:
                similarities.append((documents @ group[1])[torch.arange(len(documents)) != first])
        losses.append(torch.logsumexp(torch.cat(similarities) / temperature, 0) - positive / temperature)
        first += len(group) - 1
    return torch.stack(losses).mean()


def pairs_of(groups):
    return torch.stack([g[0] for g in groups]), torch.stack([g[1] for g in groups])


def cosine_error(groups, labels):
    """Mean over the pairs of (cosine - label)^2."""
    return (cosine_similarity(*pairs_of(groups)) - labels).square().mean()


def contrastive(groups, labels, margin=0.5):
    """Mean over the pairs of half the squared distance 1 - cosine of those with label 1, and half of what a pair with label 0 lacks to the
    margin, squared."""
    distances = 1 - cosine_similarity(*pairs_of(groups))
    return (labels * distances.square() + (1 - labels) * (margin - distances).clamp_min(0).square()).mean() / 2


def online_contrastive(groups, labels, margin=0.5):
    """Sum of contrastive()'s squares, not halved, over the hard pairs: those with label 1 beyond the nearest pair with label 0, and those with
    label 0 within the farthest one with label 1. A kind without pairs gives no bound: the other kind's mean takes its place."""
    distances = 1 - cosine_similarity(*pairs_of(groups))
    near, far = distances[labels == 1], distances[labels == 0]
    hard_far = far[far < (near.max() if len(near) else far.mean())]
    hard_near = near[near > (far.min() if len(far) else near.mean())]
    return hard_near.square().sum() + (margin - hard_far).clamp_min(0).square().sum()


def matryoshka(loss, groups, widths):
    """Sum over {width: weight} of weight * loss(the groups cut to their first `width` numbers, of length 1 again)."""
    return sum(weight * loss([normalize(g[:, :width], dim=1) for g in groups]) for width, weight in widths.items())


def pointwise(scores, labels):
    """Mean over the documents of all queries of the binary cross-entropy of their scores. `scores`, `labels`: a tensor for each query."""
    return binary_cross_entropy_with_logits(torch.cat(scores), torch.cat(labels).to(scores[0].dtype))


def listwise(scores, temperature=1.0, min_group_size=2):
    """Mean over the queries of -log softmax of the first document's score / temperature, which is the positive one; those with fewer than
    min_group_size documents are left out. 0 without any."""
    losses = [torch.logsumexp(s / temperature, 0) - s[0] / temperature for s in scores if len(s) >= min_group_size]
    return torch.stack(losses).mean() if losses else scores[0].sum() * 0


def info_nce_metrics(groups, use_batch=True):
    """Means over the anchors of the positive's similarity and of its lead before the nearest negative, and the mean similarity of all
    negatives: the documents of all groups but the positive, or the anchor's own."""
    documents, first = torch.cat([g[1:] for g in groups]), 0
    positives, negatives = [], []
    for group in groups:
        similarities, own = (documents @ group[0], first) if use_batch else (group[1:] @ group[0], 0)
        positives.append(similarities[own])
        negatives.append(similarities[torch.arange(len(similarities)) != own])
        first += len(group) - 1
    leads = [p - n.max() for p, n in zip(positives, negatives)]
    return {"mean_pos": torch.stack(positives).mean().item(), "mean_neg": torch.cat(negatives).mean().item(),
            "margin": torch.stack(leads).mean().item()}


def ranks_of(values):
    """From 1; equal values share the mean of their ranks."""
    below, equal = (values[None] < values[:, None]).sum(1), (values[None] == values[:, None]).sum(1)
    return below.double() + (equal.double() + 1) / 2


def correlation(a, b):
    a, b = a - a.mean(), b - b.mean()
    return ((a @ b) / (a.norm() * b.norm())).item()


def pair_metrics(groups, labels):
    """Correlations of the labels with four measures of nearness."""
    a, b = pairs_of(groups)
    measures = {"cosine": cosine_similarity(a, b), "euclidean": -(a - b).norm(dim=1), "manhattan": -(a - b).abs().sum(1),
                "dot_product": (a * b).sum(1)}
    return {f"pearson_{name}": correlation(labels, m) for name, m in measures.items()} | {
        f"spearman_{name}": correlation(ranks_of(labels), ranks_of(m)) for name, m in measures.items()}


def ranking_metrics(scores):
    """Over the queries with at least two documents, of which the first is the one relevant: the means of 1 / its place and of its discounted
    gain. Documents with its score stand behind it."""
    places = [1 + (s[1:] > s[0]).sum().double() for s in scores if len(s) > 1]
    if not places:
        return {"mrr": 0.0, "ndcg": 0.0}
    places = torch.stack(places)
    return {"mrr": (1 / places).mean().item(), "ndcg": (1 / torch.log2(1 + places)).mean().item()}


def pointwise_accuracy(scores, labels):
    return ((torch.cat(scores) > 0) == (torch.cat(labels) == 1)).double().mean().item()


def listwise_accuracy(scores):
    """Over the queries with at least two documents, as ranking_metrics()."""
    return torch.tensor([s.argmax() == 0 for s in scores if len(s) > 1]).double().mean().item()
