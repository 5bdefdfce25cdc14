#!/usr/bin/env python3
"""Makes one mistake at a time in the sources and runs tests: a test that still passes would miss that mistake.

    scripts/nightly_mutations.py [--set streams] [--checkout build-mutations] [--only PATTERN] [--list]
    scripts/nightly_mutations.py --set mesh [--build build] [--only PATTERN] [--list]

streams: removes every wait, record, pinned allocation, lifetime and choice of a stream; the tests of the simulated device must notice.
The build is of a checkout of its own. Prints a line for each site: caught (and by which test) or SURVIVED; for a survivor that
EXPLAINED has a reason for, the reason; at the end how many of each.
mesh: the mistakes of MESH, which make ranks learn something else than one rank; the grid (tests/parallel/grid.h) must notice. Compiles
only the changed sources of a finished build, in BUILD/mutations. Prints a table: mistake, its first failing case, seconds.

All mistakes are compiled into one program, where the variable QFT_MUTATION says which one is made. Exit code 1 where a site survives
without a reason, or a test fails while no mistake is made."""
import argparse
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

from changed_program import ChangedProgram

ROOT = Path(__file__).resolve().parent.parent
# Where queued work of a run is ordered. Not the parts that measure or check, whose waits are their subject.
FOLDERS = ("comm", "device", "infer", "model", "ops", "optim", "parallel", "engine", "train", "checkpoint")
SKIPPED = ("comm/bandwidth.cpp", "comm/verify_collectives.cpp", "comm/communicator_mpi.cpp", "comm/progress.cpp",
           "comm/checked.cpp", "comm/mpi_support.cpp", "comm/communicator.cpp", "device/stream.cpp")


class Test(NamedTuple):
    ranks: int
    program: str
    filter: str = "*"
    environment: dict = {}

    def __str__(self):
        return f"{self.program} on {self.ranks}" + (f" {self.filter}" if self.filter != "*" else "")


SHARDING = {"QFT_EQUIVALENCE": "sharding"}
TESTS = [Test(2, "comm_device_test"), Test(2, "comm_fault_test"), Test(2, "train_save_test"), Test(1, "sim_qft_operations_test"),
         Test(1, "sim_growth_test"), Test(1, "selftest_test"), Test(2, "sim_layer_graphs_test"),
         Test(2, "parallel_mpi_test", "Equivalence.Half*:SequenceLevel.*:Deterministic.IsThe*:Metrics.*:UsedExperts.*Cross*:UsedExperts.AreGathered*"),
         Test(2, "parallel_device_test", "-Equivalence.*"), Test(2, "parallel_device_test", "Equivalence.*", SHARDING),
         Test(1, "parallel_device_test", "Equivalence.*", SHARDING)]
FIRST = {"QFT_DEVICE": "cpu", "QFT_GRID": "first"}
GRID = [Test(ranks, "parallel_grid_test", "Grid.*", FIRST) for ranks in (2, 3, 4, 8)]

# Sites that no test can catch, by file and statement, and why.
EXPLAINED = {
    ("src/device/graph.cpp", "const StreamGuard on_stream(stream_);"):
        "calls run once on the stream that is captured later, because libraries such as cuBLAS make memory at their first call on a stream: "
        "the simulated device has none",
    ("src/parallel/sharded_buffer.cpp", "gather_.wait();  // the gather after the previous change: MPI's gathers may overtake each other"):
        "a device runs a group's gathers in the order of their calls",
    ("src/parallel/sharded_store.cpp", "for (comm::Work& work : works) work.wait();"):
        "a Work that goes waits too; this is for what a wait throws",
}

# What stands at the head of a changed file.
SWITCH = """#include <cstdlib>
#ifndef QFT_MUTATION
#define QFT_MUTATION
namespace qft::mutation { inline bool is(int site) { static const char* chosen = std::getenv("QFT_MUTATION"); return chosen != nullptr && std::atoi(chosen) == site; } }
#endif
"""
MADE = "qft::mutation::is(%d)"  # a mistake's condition


def call_end(text, start):
    """The place behind the parenthesis that closes the one at `start`."""
    depth = 0
    for i in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[i], 0)
        if depth == 0:
            return i + 1
    return None


# Each of the following gives a line's insertions, (place, text) with MADE in it, or None where the line has no such statement.


def last_argument(line, start):
    """Where the last argument of the call with the parenthesis at `start` begins."""
    end = call_end(line, start)
    return line.rfind(",", start, end) + 1 or start + 1


def without_call(line, method):
    """`object.method(argument);`"""
    found = re.search(rf"^(\s*(?:(?:if|for) \(.*?\) |void \w+\(\) override {{ |~\w+\(\) override {{ )?)([^;{{]*?)(?:\.|->){method}\(", line)
    if not found or re.search(r"\breturn\b|=", found.group(2)):
        return None
    end = call_end(line, found.end() - 1)
    if end is None or not line[end:].startswith(";"):
        return None
    return [(found.end(1), f"{{ if (!{MADE}) "), (end + 1, " }")]


def without_guard(line):
    found = re.search(r"const ((?:device::)?)StreamGuard \w+\((.*)\);", line)
    return found and [(found.start(2), f"{MADE} ? {found.group(1)}Stream::current({found.group(2)}.device()) : ")]


def own_stream(line):
    """The current stream in place of one beside it."""
    found = re.search(r"((?:device::)?Stream)::make\((\w+)(?:, \w+)?\)", line)
    return found and [(found.start(), f"({MADE} ? {found.group(1)}::current({found.group(2)}) : "), (found.end(), ")")]


def pageable(line):
    on_cpu = f"{MADE} ? c10::Device(c10::kCPU) : "
    found = re.search(r"(?:host_tensor|BlockPool)\((?=.*device)|PinnedBuffer\((?=[^;]*, \w*device\w*\))", line)
    if found and not line.startswith("at::Tensor"):
        return [(last_argument(line, found.end() - 1), " " + on_cpu)]
    found = re.search(r"\.pinned_memory\((?!false)", line)
    return found and [(found.end(), f"!{MADE} && ("), (call_end(line, found.end() - 1), ")")]


def not_awaited(line):
    found = re.search(r"[\w.>-]*\b(settle|transfers_\.join)\(\);", line)
    return found and [(found.start(), f"if (!{MADE}) ")]


KINDS = {"wait": lambda line: without_call(line, "wait") or without_call(line, "synchronize") or without_call(line, "wait_host"),
         "record": lambda line: without_call(line, "record"), "stream": lambda line: without_guard(line) or own_stream(line),
         "pin": pageable, "lifetime": not_awaited}

# Mistakes in tables are (what, file, a text that is there once, what goes in front of it, and behind it).

# What frees memory before its last use.
EARLY = [
    ("an upload's source", "src/device/upload.cpp", "wait_for(device); }", f"if (!{MADE}) ", ""),
    ("gradients that are reduced", "src/parallel/sharded_store.cpp", "    r.work.wait();\n    r.copied.synchronize();\n", f"    if (at::Tensor early = r.grads; {MADE} && strategy_.gradients) free_storage(early);\n", ""),
    ("gathered weights", "src/parallel/sharded_buffer.cpp", "  settle();\n  free_storage(whole_);\n", f"  if (at::Tensor early = whole_; {MADE}) free_storage(early);\n", ""),
    ("a bucket that is summed", "src/parallel/gradient_sum.cpp", "data = bucket.staging = data.to(at::kFloat);",
     f"if ({MADE}) {{ bucket.staging = data.to(at::kFloat); data = data.to(at::kFloat); }} else ", ""),
    ("activations that are copied to the host", "src/parallel/offloaded_activations.cpp", "}\n\nvoid OffloadedActivations::start_fetch",
     f"  if ({MADE}) {{ memory_[l].reset(); kept_[l] = kept_[l].clone(); }}\n", ""),
]


# What makes ranks learn something else than one rank.
MESH = [
    ("the norm counts a slice on each of its copies", "src/parallel/sharded_store.cpp", "replicate_.rank() != 0) return", f"!{MADE} && ", ""),
    ("the norm leaves out the last rank's slices", "src/parallel/sharded_store.cpp", "counted.add(u, owned", f"if (!{MADE} || shard_.size() == 1 || shard_.rank() + 1 < shard_.size()) ", ""),
    ("the norm counts whole gradients on each rank", "src/parallel/gradient_sum.cpp", "std::min(begin + share, n)", f"{MADE} ? n : ", ""),
    ("a loss is divided by the number of ranks too", "src/parallel/step_result.cpp", "objective.denominator();", f"({MADE} ? groups.all().size() : 1) * ", ""),
    ("the first data rank's lead alone reports", "src/parallel/step_result.cpp", "groups.is_lead()", f"(!{MADE} || groups.data().rank() == 0) && ", ""),
    ("the denominator is half the labels of the batch", "src/loader/loader.cpp", "batch.global_label_tokens = plan.label_tokens;", "", f" if ({MADE} && schedule_.world_size() > 1) batch.global_label_tokens -= batch.global_label_tokens / 2;"),
    ("each rank reads the first rank's samples", "src/loader/loader.cpp", "round * schedule_.world_size() + rank_", "", f" * ({MADE} ? 0 : 1)"),
    ("sums of a batch lie in the first rank's places", "src/loader/loader.cpp", "batch.first_micro_batch = ", "", f"{MADE} ? 0 : "),
    ("sample numbers begin at 0 in each micro-batch", "src/loader/loader.cpp", "batch.samples.push_back(item.first_sequence + sequence);", "", f" if ({MADE}) batch.samples.back() = std::ssize(batch.samples);"),
    ("a group's gradients replace the earlier groups'", "src/parallel/sharded_store.cpp", "r.unit->sum.add_(slice);", f"if ({MADE}) r.unit->sum.copy_(slice); else ", ""),
    ("copies do not add up their slices", "src/parallel/sharded_store.cpp", "replicate_.size() > 1) add_up_replicas", f"!{MADE} && ", ""),
    ("sums of gradients are kept over a step", "src/parallel/sharded_store.cpp", "u.sum.defined()) u.sum.zero_", f"!{MADE} && ", ""),
    ("whole gradients are kept over a step", "src/parallel/sharded_store.cpp", "u.grads.defined()) u.grads.zero_", f"!{MADE} && ", ""),
    ("the mean of the ranks' gradients in place of the sum", "src/parallel/gradient_sum.cpp", "staged_ = 0;", f"if ({MADE}) {{ grads_.div_(comm_.size()); }} ", ""),
    ("the last bucket is not added up", "src/parallel/gradient_sum.cpp", "comm_.size() == 1) return;", f"({MADE} && &bucket == &buckets_.back()) || ", ""),
    ("each rank updates as if its slice began the unit", "src/parallel/sharded_store.cpp", "units_[u].owned, weights.division().chunk * shard_.rank()", "", f" * ({MADE} ? 0 : 1)"),
    ("gathered weights stay as they were before the update", "src/parallel/gathered_unit.cpp", "trainable_.mark_stale();", f"if (!{MADE}) ", ""),
    ("DoRA's norms stay as they were before the update", "src/parallel/gathered_unit.cpp", "derived_.weights_changed();", f"if (!{MADE}) ", ""),
    ("ranks do not tell each other which experts they use", "src/parallel/gathered_unit.cpp", "shard_->host().all_reduce(mask", f"if (!{MADE}) ", ""),
    ("an adapter starts differently on each rank", "src/engine/instance.cpp", "model::init_adapter(spec, seed", "", f" + ({MADE} ? static_cast<std::uint64_t>(instance.groups().all().rank()) : 0)"),
    ("quantised bytes begin at the tensor's start on every rank", "src/model/load.cpp", "begin - param.packed_offset, end - begin", f"{MADE} ? 0 : ", ""),
    ("a batch's sums are this rank's alone", "src/engine/batch_sums.cpp", "groups.sum_of_data_ranks(", f"if (!{MADE}) ", ""),
    ("each rank compares its own vectors alone", "src/engine/batch_vectors.cpp", "data.host().all_reduce(vectors", f"if (!{MADE}) ", ""),
    ("a checkpoint's masters begin at the tensor's start", "src/train/snapshot.cpp", "append_parts(list, all, p.boxes, shard.begin", "", f" * ({MADE} ? 0 : 1)"),
    ("optimizer state is read as if each slice began the tensor", "src/train/snapshot.cpp", "state.spec.boxes_of(p.shape, p.boxes), state.begin", "", f" * ({MADE} ? 0 : 1)"),
    ("a resumed optimizer counts its steps from 0", "src/train/snapshot.cpp", "instance.optimizer()->set_steps(", f"if (!{MADE}) ", ""),
    ("each copy writes the whole slice to a checkpoint", "src/train/snapshot.cpp", "held.shared + length * owners.rank() / owners.size(),", f"{MADE} ? held.shared : ", ""),
    ("an adapter is saved from one slice of each unit", "src/engine/instance.cpp", "slices.size() == 1) return mine;", f"{MADE} || ", ""),
    ("norms on shared rows are not added up", "src/parallel/tensor_sum.cpp", "!p.trainable || p.placement", f'({MADE} && p.path.ends_with("layernorm.weight")) || ', ""),
    ("the final norm is not added up", "src/parallel/tensor_sum.cpp", "!p.trainable || p.placement", f'({MADE} && p.path == model::kFinalNorm) || ', ""),
    ("norms of q and k of each head are not added up", "src/parallel/tensor_sum.cpp", "!p.trainable || p.placement", f'({MADE} && p.path.ends_with("_norm.weight")) || ', ""),
    ("LoRA's A of cut rows is not added up", "src/parallel/tensor_sum.cpp", "!p.trainable || p.placement", f'({MADE} && p.role == model::Role::lora_a) || ', ""),
    ("LoRA's B of cut columns is not added up", "src/parallel/tensor_sum.cpp", "!p.trainable || p.placement", f'({MADE} && p.role == model::Role::lora_b) || ', ""),
    ("DoRA's magnitudes are not added up", "src/parallel/tensor_sum.cpp", "!p.trainable || p.placement", f'({MADE} && p.role == model::Role::magnitude) || ', ""),
    ("OFT's rotations are not added up", "src/parallel/tensor_sum.cpp", "!p.trainable || p.placement", f'({MADE} && p.role == model::Role::rotation) || ', ""),
    ("value heads are not added up", "src/parallel/tensor_sum.cpp", "!p.trainable || p.placement", f'({MADE} && p.role == model::Role::value_head) || ', ""),
    ("routers are not added up", "src/parallel/tensor_sum.cpp", "!p.trainable || p.placement", f'({MADE} && p.path.ends_with("mlp.gate.weight")) || ', ""),
    ("experts are not added up", "src/parallel/tensor_sum.cpp", "!p.trainable || p.placement", f'({MADE} && p.path.find(".experts.") != std::string::npos) || ', ""),
    ("k and v that ranks have copies of are not added up", "src/parallel/tensor_sum.cpp", "!p.trainable || p.placement", f"({MADE} && p.slots > 1) || ", ""),
    ("different key-value heads are added up", "src/parallel/tensor_sum.cpp", "next + t.slot * t.values.numel()", "", f" * ({MADE} ? 0 : 1)"),
    ("the last element of a term is not added up", "src/parallel/tensor_sum.cpp", "std::min(p.offset + p.numel, begin + values.numel())", "", f" - ({MADE} ? 1 : 0)"),
    ("each tensor rank adds the bias of a linear with cut columns", "src/model/weights.cpp", "group.linears.front().columns.is_cut() && share.rank > 0", f"!{MADE} && ", ""),
    ("the norm counts what several tensor ranks hold on each of them", "src/parallel/layout.cpp", "return param.first_holder;", f"if ({MADE}) return true; ", ""),
    ("each rank of a data rank reports", "src/parallel/step_result.cpp", "groups.is_lead()", f"({MADE} || ", ")"),
    ("each tensor rank looks up the first rows of the vocabulary", "src/model/transformer.cpp", "vocabulary_ = {spec.vocabulary.begin", "", f" * ({MADE} ? 0 : 1)"),
    ("tensor ranks do not agree on the largest logit", "src/model/transformer.cpp", "tensor_.max(t);", f"if (!{MADE}) ", ""),
    ("tensor ranks do not add up the head's sums", "src/model/transformer.cpp", "[this](const at::Tensor& t) { tensor_.sum(t)", "", f"; if ({MADE}) t.div_(tensor_.ranks())"),
    ("a reader of logits sees the sums over its own columns", "src/ops/head/head_chunk.cpp", "if (vocabulary.shared()) vocabulary.add(t);", f"if (!{MADE}) ", ""),
    ("dropout begins at feature 0 on each tensor rank", "src/model/adapters/lora_code.cpp", "part.first_feature = ", f"if (!{MADE}) ", ""),
    ("noise on the embeddings begins at the first row on each tensor rank", "src/model/transformer.cpp", "own.of(in.identity.positions)}, own.of(in.lengths)", f"{MADE} ? in.identity.positions.narrow(0, 0, own.count) : ", ""),
    ("values of sequences begin at the first one on each tensor rank", "src/model/transformer_head.cpp", "rows.first = rows.of_context.begin + first;", "", f" rows.first -= {MADE} ? first : 0;"),
    ("the balance loss sees the routers of a rank's own rows", "src/parallel/executor.cpp", "micro.input().routing.add_up(", f"if (!{MADE}) ", ""),
    ("the z loss counts once for each tensor rank", "src/model/routing.cpp", "of_tokens(log_sums, *this) * 2.0", "", f" * ({MADE} && rows.defined() ? 2.0 : 1.0)"),
    ("rows behind the micro-batch keep what they had", "src/model/row_sharing.cpp", "all.narrow(0, rows, all.size(0) - rows).zero_();", f"if (!{MADE}) ", ""),
    ("rows behind those of the experts keep what they had", "src/model/layer.cpp", "return passes.own.clear_rest(to);", f"if (!{MADE}) ", ""),
    ("a norm of all heads counts a key-value head on each of its ranks", "src/model/sublayers/attention.cpp", "spec_.heads.holder == 0", f"{MADE} || ", ""),
    ("DoRA's norms are of this rank's columns", "src/model/adapters/lora_code.cpp", "tensor.sum(norms);", f"if (!{MADE}) ", ""),
    ("a norm of all heads is of this rank's", "src/model/sublayers/attention.cpp", "if (!normed_whole_ ||", "", f" {MADE} ||"),
    ("the label of the last row before a cut is dropped", "src/model/transformer_head.cpp", "in.num_tokens()) - place_of(in.first_row)};", "",
     f" if ({MADE} && rows.of_context.count > 0 && rows.of_context.end() < std::ssize(all)) --rows.of_context.count;"),
    ("a context rank behind the first takes the row before a label's", "src/model/transformer_head.cpp", "all[static_cast<std::size_t>(i)] - in.first_row", "",
     f" - ({MADE} && all[static_cast<std::size_t>(i)] > in.first_row && in.first_row > 0 ? 1 : 0)"),
    ("context ranks do not add up log-probabilities", "src/model/transformer_head.cpp", "if (values.defined()) context_.sum(values);", f"if (!{MADE}) ", ""),
    ("context ranks do not add up values of sequences", "src/model/transformer_head.cpp", "tensor_.sum(values);", "", f" if (!{MADE})"),
    ("a reader's labels begin at the first one on each context rank", "src/model/transformer_head.cpp", "moved.first += labels.begin;", f"if (!{MADE}) ", ""),
    ("context ranks do not add up what a reader kept", "src/parallel/head_pass.cpp", "if (rows.defined()) block.transformer.context().sum(rows);", f"if (!{MADE}) ", ""),
    ("positions begin anew at a cut", "src/model/transformer.cpp", "first_row = own.first;", "", f" if ({MADE} && own.count > 0) positions = positions.sub(positions[0]).clamp_min(0);"),
    ("identities of rows are the first rows' on each context rank", "src/model/transformer.cpp", "own.of(identity.sample_ids)", f"{MADE} ? identity.sample_ids.narrow(0, 0, own.count) : ", ""),
    ("the balance loss sees the routers of a context rank's rows", "src/model/routing.cpp", "context.sum(all);", f"if (!{MADE}) ", ""),
    ("a router's rows are of the first sequences on each context rank", "src/model/routing.cpp", "own.first += of_context.first;", f"if (!{MADE}) ", ""),
    ("context ranks get copies of the first key head", "src/model/sequence_heads.cpp", "of_rank.key_heads.push_back(head / group", "", f" * ({MADE} ? 0 : 1)"),
    ("of a key head's copies the last one's gradient remains", "src/model/head_exchange.cpp", "return part.of_keys && share_.repeats_keys;", f"if ({MADE}) return false; ", ""),
    ("a delta net's keys are sent from its queries' columns", "src/model/sublayers/delta_net.cpp", "{t.k, /*of_keys=*/true}, {t.v}", f"{MADE} ? RowsOfHeads{{t.q, true}} : RowsOfHeads", ""),
    ("gradients of filters are those of the first channels", "src/model/sublayers/delta_mixer.h", "part.add_(some.narrow(0, first", "", f" * ({MADE} ? 0 : 1)"),
    ("filters of values are the first heads' on each context rank", "src/model/sublayers/delta_mixer.h", "some_->heads.begin * d_.value_dim", "", f" * ({MADE} ? 0 : 1)"),
    ("decays are the first heads' on each context rank", "src/model/sublayers/delta_mixer.h", "all.narrow(0, some_->heads.begin", "", f" * ({MADE} ? 0 : 1)"),
    ("copies do not add up the terms of context ranks", "src/parallel/groups.cpp", "const Axes& axes = ", "static const Axes replicas = {Axis::replicate}; ",
     f"{MADE} && !sharded_ && purpose == Purpose::copies ? replicas : "),
    ("each context rank reports", "src/parallel/groups.cpp", "mesh_.coordinate(Axis::context) == 0", f"({MADE} || ", ")"),
    ("a rule sees this rank's box of a matrix as the matrix", "src/parallel/optimizer_param.cpp", "p.weight_decay ? 1.0 : 0.0, ", "",
     f"{MADE} && param.is_cut() ? optim::Param{{p.boxes.front().extent, param.stack, param.place}} : "),
    ("an owner puts boxes of columns together as boxes of rows", "src/optim/owners.cpp", "if (!view.defined()) device::from_boxes(",
     f"if ({MADE} && !view.defined()) whole.view(-1).narrow(0, std::min(whole.numel() - flat.numel(), t * flat.numel()), flat.numel()).copy_(flat); else ", ""),
    ("an owner puts each slice at the part's start", "src/optim/owners.cpp", "use(flat.narrow(0, done", "", f" * ({MADE} ? 0 : 1)"),
    ("a block of codes has the magnitude of a slice", "src/optim/adamw_8bit.cpp", "slices.comm->all_reduce(", f"if (!{MADE}) ", ""),
    ("quantised columns begin at the row's start", "src/ops/quantized/quantized_copy.cpp", "copy((row + r) * whole.columns + columns.begin", "", f" * ({MADE} ? 0 : 1)"),
    ("scales of quantised columns are the first blocks'", "src/ops/quantized/quantized_copy.cpp", "scales_.from(first", "", f" * ({MADE} ? 0 : 1)"),
    ("a box of columns is saved as a box of rows", "src/parallel/whole_tensors.cpp", "device::from_boxes(part,",
     f"if ({MADE}) whole.view(-1).narrow(0, std::min<std::int64_t>(whole.numel() - count, static_cast<std::int64_t>(from) * count), count).copy_(part); else ", ""),
]


class Site(NamedTuple):
    path: str
    line: int
    kind: str
    statement: str
    insertions: list  # (place in the file, text)

    def __str__(self):
        return f"{self.path}:{self.line}: {self.kind:8} {self.statement}"


def sites_of(text, path):
    place = 0
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        for kind, remove in KINDS.items():
            found = None if line.strip().startswith("//") else remove(line)
            if found:
                yield Site(path, number, kind, line.strip(), [(place + at, what) for at, what in found])
        place += len(line)


def table_sites(table, kind):
    for what, path, there, before, behind in table:
        text = (ROOT / path).read_text()
        if text.count(there) != 1:
            sys.exit(f"{path}: the statement of a mistake is there {text.count(there)} times:\n{there}")
        place = text.index(there)
        yield Site(path, text[:place].count("\n") + 1, kind, what,
                   [(at, change) for at, change in ((place, before), (place + len(there), behind)) if change])


def stream_sites():
    """Of the sources as they are here."""
    for folder in FOLDERS:
        for file in sorted((ROOT / "src" / folder).rglob("*.cpp")):
            path = str(file.relative_to(ROOT))
            if path.removeprefix("src/") not in SKIPPED:
                yield from sites_of(file.read_text(), path)
    yield from table_sites(EARLY, "early")


class Judge:
    """`programs`: the folder of the tests' programs."""

    def __init__(self, programs, tests):
        self.programs = programs
        self.tests = tests
        self.first_case = ""
        self.environment = {**os.environ, "QFT_DEVICE": "sim", "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive",
                            "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                            "OMPI_MCA_orte_tmpdir_base": str(programs / "mpi")}
        (programs / "mpi").mkdir(exist_ok=True)
        self.seconds = {}
        self.last_in = {}

    def passes(self, test, site=-1, limit=1800):
        command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(test.ranks), str(self.programs / test.program),
                   f"--gtest_filter={test.filter}", "--gtest_fail_fast"]
        environment = {**self.environment, **test.environment, "QFT_MUTATION": str(site)}
        self.first_case = ""
        with subprocess.Popen(command, env=environment, text=True, errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
            ender = threading.Timer(limit, process.terminate)  # mpirun ends its ranks
            ender.start()
            # The rest of a test that has failed may take long; the grid ends with its first case and names it.
            failed = False
            for line in process.stdout:
                failed = failed or bool(re.search(r": Failure$|^rank \d+ of \d+: ", line))
                if line.startswith("grid: first failing case: "):
                    self.first_case = line.split(": ", 2)[2].strip()
                if failed and "QFT_GRID" not in test.environment:
                    break
            if failed:
                process.terminate()
            process.stdout.read()
            if not ender.is_alive():
                self.first_case = self.first_case or f"no case: too late after {limit:.0f} s"
            ender.cancel()
            return process.wait() in (0, 77) and not failed

    def check_unchanged(self, test):
        started = time.monotonic()
        if not self.passes(test):
            sys.exit(f"false alarm: {test} fails while no mistake is made{self.first_case and ': ' + self.first_case}")
        self.seconds[str(test)] = time.monotonic() - started
        print(f"passes without a mistake {self.seconds[str(test)]:4.0f} s  {test}", flush=True)

    def verdict(self, number, site):
        """The first test that fails, or None: first the one that caught the last mistake in this file, then the quick ones."""
        for test in sorted(self.tests, key=lambda t: (str(t) != self.last_in.get(site.path), self.seconds[str(t)])):
            if not self.passes(test, number, limit=60 + 5 * self.seconds[str(test)]):
                self.last_in[site.path] = str(test)
                return str(test)
        return None


def reset(checkout):
    """Makes the checkout hold the sources as they are committed here now, whatever an earlier night left in it."""
    head = subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    if checkout.exists():
        subprocess.run(["git", "-C", checkout, "checkout", "--detach", "--force", "--quiet", head], check=True)
    else:
        subprocess.run(["git", "-C", ROOT, "worktree", "add", "--detach", "--quiet", checkout, head], check=True)


def with_mistakes(every):
    """The sources in which each mistake is possible, by path."""
    texts = {}
    for path in sorted({site.path for site in every}):
        text = (ROOT / path).read_text()
        insertions = [(place, what % number if "%d" in what else what, number) for number, site in enumerate(every) if site.path == path
                      for place, what in site.insertions]
        # Where two begin at one place the earlier one goes in front; each site closes what it opened behind its own statement.
        for place, what, _ in sorted(insertions, key=lambda i: (i[0], i[2]), reverse=True):
            text = text[:place] + what + text[place:]
        texts[path] = SWITCH + text
    return texts


def checkout_judge(checkout, every):
    """A checkout of the sources as committed, with every mistake in it, built."""
    reset(checkout)
    for path, text in with_mistakes(every).items():
        if (ROOT / path).read_text() != (checkout / path).read_text():
            sys.exit(f"{path} differs from what is committed")
        (checkout / path).write_text(text)
    if not (checkout / "build").exists():
        for shared in (".venv", "models"):
            if (ROOT / shared).exists() and not (checkout / shared).exists():
                (checkout / shared).symlink_to(ROOT / shared)
        subprocess.run(["cmake", "-S", checkout, "-B", checkout / "build", "-G", "Ninja", "-DQFT_CUDA=OFF"], check=True)
    build = checkout / "build"
    built = subprocess.run(["ninja", "-C", build, "qft_sim", *dict.fromkeys(test.program for test in TESTS)], capture_output=True, text=True)
    if built.returncode != 0:
        sys.exit(f"the sources do not compile:\n{built.stdout[-3000:]}")
    judge = Judge(build / "tests", TESTS)
    for test in TESTS:
        judge.check_unchanged(test)
    return judge


def mesh_judge(build, every):
    """The sources as they are here, with every mistake in them, linked with the rest of a build."""
    folder = build / "mutations"
    program = ChangedProgram(build, folder, GRID[0].program, {str(ROOT / path): text for path, text in with_mistakes(every).items()})
    judge = Judge(program.path.parent, GRID)
    files = folder / "files"  # of the run without a mistake, and so its oracles
    shutil.rmtree(files, ignore_errors=True)
    files.mkdir()
    judge.environment["QFT_GRID_FILES"] = str(files)
    judge.check_unchanged(GRID[0])  # makes files, which all others use
    return judge


def try_each(judge, tried):
    """Returns the survivors."""
    survived = []
    for number, site in tried:
        started = time.monotonic()
        verdict = judge.verdict(number, site)
        reason = EXPLAINED.get((site.path, site.statement))
        note = f"\n    {reason}" if reason and not verdict else ""
        print(f"{verdict or 'SURVIVED':32} {time.monotonic() - started:4.0f} s  {site}{note}", flush=True)
        if verdict is None:
            survived.append(site)
    return survived


def try_on_more_ranks(judge, tried):
    """Returns the mistakes that no number of ranks notices. Those that few ranks notice are not made again on more."""
    for test in judge.tests:
        if not tried:
            break
        judge.check_unchanged(test)
        left = []
        for number, site in tried:
            started = time.monotonic()
            if judge.passes(test, number, limit=30 + 5 * judge.seconds[str(test)]):
                left.append((number, site))
            else:
                print(f"| {site.statement} | {judge.first_case or 'no case: the run failed'}, on {test.ranks} ranks | "
                      f"{time.monotonic() - started:.0f} |", flush=True)
        tried = left
    for _, site in tried:
        print(f"| {site.statement} | SURVIVED: {site} | |", flush=True)
    return [site for _, site in tried]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", choices=("streams", "mesh"), default="streams", help="the mistakes to make (default: streams)")
    parser.add_argument("--checkout", type=Path, default=ROOT / "build-mutations", help="streams: where to change and build the sources")
    parser.add_argument("--build", type=Path, default=ROOT / "build", help="mesh: a finished build of the sources")
    parser.add_argument("--only", default="", help="a pattern of 'file:line: kind statement'")
    parser.add_argument("--list", action="store_true", help="print the sites, change nothing")
    args = parser.parse_args()
    every = list(stream_sites() if args.set == "streams" else table_sites(MESH, "mesh"))
    if args.list:
        print(*every, f"{len(every)} sites", sep="\n")
        return
    tried = [(number, site) for number, site in enumerate(every) if re.search(args.only, str(site))]
    if args.set == "streams":
        survived = try_each(checkout_judge(args.checkout.resolve(), every), tried)
    else:
        survived = try_on_more_ranks(mesh_judge(args.build.resolve(), every), tried)
    unexplained = [site for site in survived if (site.path, site.statement) not in EXPLAINED]
    print(f"of {len(tried)} sites: {len(tried) - len(survived)} caught, {len(survived)} survive, {len(unexplained)} of them without a reason")
    sys.exit(1 if unexplained else 0)


main()
