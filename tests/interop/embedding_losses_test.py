"""The oracle of embedding_losses.py against sentence-transformers' own losses, scipy and sklearn: values and gradients, and what two ranks
that gather each other's vectors make of a batch."""
import os
import tempfile

import torch
import torch.multiprocessing
from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss, MultipleNegativesRankingLoss as CrossEncoderRanking
from sentence_transformers.sentence_transformer.losses import (ContrastiveLoss, CosineSimilarityLoss, MatryoshkaLoss,
                                                               MultipleNegativesRankingLoss, OnlineContrastiveLoss)
from torch.nn.functional import normalize

import embedding_losses as ours
from common import Report, arguments

ROWS, NEGATIVES, WIDTH = 6, 3, 16
SAME = 1e-12  # of losses and gradients in fp64


def vectors(rows=ROWS, negatives=NEGATIVES, seed=0):
    """[rows, 2 + negatives, WIDTH], of length 1, near each other: similarities from about 0 to 1."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(rows, 1, WIDTH, generator=generator, dtype=torch.float64)
    noise = torch.randn(rows, 2 + negatives, WIDTH, generator=generator, dtype=torch.float64)
    return normalize(centres + noise + 0.7, dim=-1)


def compare(report, what, mine, theirs, given, prepare=lambda x: normalize(x, dim=-1)):
    """Both functions of the vectors, with their gradients by what the vectors are made of: sentence-transformers makes them of length 1 again."""
    results = []
    for function in (mine, theirs):
        x = given.clone().requires_grad_()
        loss = function(prepare(x))
        loss.backward()
        results.append((loss.item(), x.grad))
    (loss, gradient), (their_loss, their_gradient) = results
    report.check(f"{what}: the loss", abs(loss - their_loss), SAME)
    report.check(f"{what}: its gradient", (gradient - their_gradient).abs().max().item(), SAME)
    report.holds(f"{what}: there is a gradient", their_gradient.abs().max() > 1e-3)


class GivenVectors(torch.nn.Module):
    """A SentenceTransformer whose vectors are its features, for losses that call the model."""

    def forward(self, features):
        return {"sentence_embedding": features["vectors"]}

    def get_embedding_dimension(self):
        return WIDTH


class SquaredError(torch.nn.MSELoss):
    """Takes the labels, which CosineSimilarityLoss makes fp32, in the similarities' type: torch has no gradient of mixed types."""

    def forward(self, similarities, labels):
        return super().forward(similarities, labels.to(similarities.dtype))


class BinaryCrossEntropy(torch.nn.BCEWithLogitsLoss):
    def forward(self, scores, labels):
        return super().forward(scores, labels.to(scores.dtype))


class GivenScores:
    """A CrossEncoder whose texts are numbers of rows and columns of `scores`."""
    device, num_labels = torch.device("cpu"), 1

    def __init__(self, scores):
        self.scores = scores

    def preprocess(self, pairs, **_):
        return {"pairs": torch.tensor([[int(query), int(document)] for query, document in pairs])}

    def __call__(self, features):
        return {"scores": self.scores[tuple(features["pairs"].T)][:, None]}


def cross_encoder_loss(kind, model, **parts):
    """A loss over it; the constructor wants a CrossEncoder."""
    loss = kind.__new__(kind)
    torch.nn.Module.__init__(loss)
    loss.model = model
    for name, part in parts.items():
        setattr(loss, name, part)
    return loss


def columns(x):
    return list(x.unbind(1))


def check_info_nce(report):
    x = vectors()
    for scale in (20.0, 10.0):
        theirs = MultipleNegativesRankingLoss(None, scale=scale)
        compare(report, f"infonce, scale {scale}", lambda v: ours.info_nce(list(v), 1 / scale),
                lambda v: theirs.compute_loss_from_embeddings(columns(v), None), x)
    with_queries = MultipleNegativesRankingLoss(None, directions=("query_to_doc", "query_to_query"))
    compare(report, "infonce with the other anchors", lambda v: ours.info_nce(list(v), 0.05, include_qq=True),
            lambda v: with_queries.compute_loss_from_embeddings(columns(v), None), x)
    # Without negatives the two agree about the documents of the own row: sentence-transformers leaves all of them out.
    with_documents = MultipleNegativesRankingLoss(None, directions=("query_to_doc", "doc_to_doc"))
    compare(report, "infonce with the positive's neighbours", lambda v: ours.info_nce(list(v), 0.05, include_dd=True),
            lambda v: with_documents.compute_loss_from_embeddings(columns(v), None), vectors(negatives=0))
    alone = MultipleNegativesRankingLoss(None)
    compare(report, "infonce without the batch", lambda v: ours.info_nce(list(v), 0.05, use_batch=False),
            lambda v: torch.stack([alone.compute_loss_from_embeddings(columns(row[None]), None) for row in v]).mean(), x)
    compare(report, "infonce, two hard negatives", lambda v: ours.info_nce(list(v), 0.05, hard_negatives=2),
            lambda v: alone.compute_loss_from_embeddings(columns(v)[:4], None), x)


def check_uneven(report):
    """Rows with different numbers of negatives: as long as the batch is used, a row's negatives may as well be another's."""
    x, counts = vectors(), [3, 0, 1, 3, 2, 0]
    groups = [v[:2 + n] for v, n in zip(x, counts)]
    documents = torch.cat([g[1:] for g in groups])
    anchors, targets = x[:, 0], torch.tensor([sum(n + 1 for n in counts[:i]) for i in range(ROWS)])
    plain = torch.nn.functional.cross_entropy(anchors @ documents.T / 0.1, targets)
    report.check("infonce, uneven rows", abs(ours.info_nce(groups).item() - plain.item()), SAME)
    margin = 0.02
    similarities = anchors @ documents.T
    bounds = similarities.gather(1, targets[:, None]) + margin
    masked = torch.nn.functional.cross_entropy((similarities / 0.1).masked_fill(similarities > bounds, -torch.inf), targets)
    report.check("infonce, masked", abs(ours.info_nce(groups, fake_negative_margin=margin).item() - masked.item()), SAME)
    report.holds("infonce, masked: the mask matters", abs(plain - masked) > 1e-2, (plain, masked))


def check_pairs(report):
    x = vectors(rows=8, negatives=0)
    shares, binary = torch.tensor([0, 0.25, 0.5, 0.75, 1, 0.125, 0.625, 1.0]), torch.tensor([1, 0, 0, 1, 1, 0, 1, 0])
    cases = [("cosine_similarity", ours.cosine_error, CosineSimilarityLoss(None, loss_fct=SquaredError()), shares),
             ("contrastive", ours.contrastive, ContrastiveLoss(None), binary),
             ("online_contrastive", ours.online_contrastive, OnlineContrastiveLoss(None, margin=1.0), binary),
             ("online_contrastive, one positive", ours.online_contrastive, OnlineContrastiveLoss(None, margin=1.0), torch.tensor([0, 0, 1, 0, 0, 0, 0, 0])),
             ("online_contrastive, no negative", ours.online_contrastive, OnlineContrastiveLoss(None, margin=1.0), torch.ones(8))]
    for what, mine, theirs, labels in cases:
        margin = {"margin": 1.0} if what.startswith("online") else {}
        compare(report, what, lambda v: mine(list(v), labels, **margin), lambda v: theirs.compute_loss_from_embeddings(columns(v), labels), x)


def check_matryoshka(report):
    x, widths = vectors(), {4: 1.0, 8: 0.5, WIDTH: 2.0}
    inner = MultipleNegativesRankingLoss(GivenVectors())
    theirs = MatryoshkaLoss(inner.model, inner, list(widths), list(widths.values()))
    compare(report, "matryoshka", lambda v: ours.matryoshka(lambda groups: ours.info_nce(groups, 0.05), list(v), widths),
            lambda v: theirs([{"vectors": column} for column in columns(v)], None), x)


def check_rerankers(report):
    scores = torch.randn(5, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    labels = torch.zeros(5, 4)
    labels[:, 0] = 1
    rows, texts = [[str(i)] * 4 for i in range(5)], [[str(k) for k in range(4)]] * 5

    def pointwise(s):
        bce = cross_encoder_loss(BinaryCrossEntropyLoss, GivenScores(s), activation_fn=torch.nn.Identity(), bce_with_logits_loss=BinaryCrossEntropy())
        return bce([sum(rows, []), sum(texts, [])], labels.flatten())

    ranking = cross_encoder_loss(CrossEncoderRanking, None, activation_fn=None, scale=2.0, cross_entropy_loss=torch.nn.CrossEntropyLoss())
    as_given = {"prepare": lambda s: s}
    compare(report, "pointwise", lambda s: ours.pointwise(list(s), list(labels)), pointwise, scores, **as_given)
    compare(report, "listwise", lambda s: ours.listwise(list(s), temperature=0.5), lambda s: ranking.calculate_loss(list(s.T), 5), scores, **as_given)
    report.check("listwise, a query without negatives", abs((ours.listwise([*scores, scores[0, :1]]) - ours.listwise(list(scores))).item()), SAME)
    report.equal("listwise, no query with negatives", ours.listwise([scores[0, :1]]).item(), 0.0)


def check_metrics(report):
    from scipy.stats import pearsonr, spearmanr
    from sklearn.metrics import label_ranking_average_precision_score, ndcg_score

    x, labels = vectors(rows=9, negatives=0), torch.tensor([0, 0.2, 0.2, 0.4, 0.9, 1, 1, 0.3, 0.6], dtype=torch.float64)
    near = -(x[:, 0] - x[:, 1]).abs().sum(1)
    found = ours.pair_metrics(list(x), labels)
    report.equal("pairs: metrics", len(found), 8)
    report.check("pairs: Pearson", abs(found["pearson_manhattan"] - pearsonr(labels, near)[0]), 1e-10)
    report.check("pairs: Spearman", abs(found["spearman_manhattan"] - spearmanr(labels, near)[0]), 1e-10)
    scores = torch.randn(7, 5, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    relevant = torch.zeros(7, 5)
    relevant[:, 0] = 1
    found = ours.ranking_metrics([*scores, scores[0, :1]])
    report.check("reranker: mrr", abs(found["mrr"] - label_ranking_average_precision_score(relevant, scores)), 1e-10)
    report.check("reranker: ndcg", abs(found["ndcg"] - ndcg_score(relevant, scores)), 1e-10)


def gathering_rank(rank, ranks, file, results):
    """A rank of `ranks` with its rows; puts its loss and the gradient of its own rows of the mean loss over the ranks."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=ranks)
    own = vectors()[rank * ROWS // ranks:(rank + 1) * ROWS // ranks].clone().requires_grad_()
    loss = MultipleNegativesRankingLoss(None, gather_across_devices=True).compute_loss_from_embeddings(columns(normalize(own, dim=-1)), None)
    (loss / ranks).backward()
    results[rank] = (loss.item(), own.grad.tolist())
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def check_ranks(report, ranks):
    """gather_across_devices: the mean of the ranks' losses is the loss of the whole batch, and so is its gradient."""
    context = torch.multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as tmp, context.Manager() as manager:
        results = manager.dict()
        processes = [context.Process(target=gathering_rank, args=(rank, ranks, os.path.join(tmp, "meet"), results)) for rank in range(ranks)]
        for process in processes:
            process.start()
        for process in processes:
            process.join(120)
        report.equal(f"{ranks} ranks: exit codes", [p.exitcode for p in processes], [0] * ranks)
        found = [results[rank] for rank in range(ranks)]
    x = vectors().requires_grad_()
    loss = ours.info_nce(list(normalize(x, dim=-1)), 0.05)
    loss.backward()
    report.check(f"{ranks} ranks: the loss", abs(sum(value for value, _ in found) / ranks - loss.item()), SAME)
    gradients = torch.tensor(sum((gradient for _, gradient in found), []), dtype=torch.float64)
    report.check(f"{ranks} ranks: the gradient of all vectors", (gradients - x.grad).abs().max().item(), SAME)


def main():
    arguments()
    report = Report()
    torch.set_num_threads(1)
    for check in (check_info_nce, check_uneven, check_pairs, check_matryoshka, check_rerankers, check_metrics):
        check(report)
    for ranks in (2, 3):
        check_ranks(report, ranks)
    report.finish()


if __name__ == "__main__":
    main()
