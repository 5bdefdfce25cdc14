// Checks training steps of a small model, in every way that its ranks can share it, against one CPU rank in fp64.
#include "qft/core/error.h"
#include "qft/device/backends.h"
#include "qft/ops/attention.h"
#include "qft/selftest/small_run.h"

#include <cmath>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "runner.h"

namespace qft::selftest {
namespace {

constexpr const char* kMeaning = "a run with these settings learns something different than one rank on a CPU";
constexpr const char* kAdvice =
    "if lines of other groups fail too, solve those first; otherwise train with settings whose lines are ok, and report this "
    "line with the output of qft --version";
constexpr int kSteps = 2, kPack = 2;  // sequences of a micro-batch: there are five micro-batches
constexpr double kEps = 1e-2;         // AdamW's: near the size of the gradients, because their signs alone may depend on rounding

/// A variation besides the strategy.
struct Way {
  const char* name;
  bool recompute = false;
  parallel::Offload offload = {};
  int group = 1;
  std::int64_t prefetch_budget = 1;
};
constexpr Way kWays[] = {{"plain"},
                         {"recompute", true},
                         {"offload optimizer", false, {.optimizer = true}},
                         {"offload parameters", false, {.weights = true}},
                         {"offload activations", true, {.activations = true}},
                         {"offload all", true, {true, true, true}, 2, std::int64_t{1} << 40},
                         {"breadth-first, prefetch", false, {}, 3, std::int64_t{1} << 40}};

/// Ranks that share matrices and sequences.
struct Mesh {
  const char* name;
  int tensor = 1, context = 1;
  std::int64_t heads = 3;  ///< of queries
};
constexpr Mesh kMeshes[] = {{"2 share matrices", 2},     {"3 share matrices", 3},     {"4 share matrices", 4, 1, 6},
                            {"2 share sequences", 1, 2}, {"3 share sequences", 1, 3}, {"2 x 2 share both", 2, 2, 6}};

struct Reference {
  std::vector<parallel::StepResult> steps;
  std::vector<double> before, after;
};

Reference train(const SmallCase& c, comm::Communicator& comm, c10::Device device, int steps) {
  SmallRun run(c, comm, device);
  Reference r;
  r.before = run.weights();
  for (int s = 0; s < steps; ++s) r.steps.push_back(run.step(s, kPack));
  r.after = run.weights();
  if (const auto* graphs = run.executor().graphs(); graphs != nullptr && graphs->counts().replayed == 0 && comm.size() <= 5)
    fail("no graph was replayed in {} steps: layers ran kernel by kernel", steps);
  return r;
}

/// Runs on one CPU rank, depth-first, without recomputation, sharding and offloading.
Reference reference_of(const SmallCase& c, int steps) {
  const auto self = comm::make_self_communicator();
  const SmallCase alone{
      .model_type = c.model_type, .heads = c.heads, .tied = c.tied, .lora = c.lora, .dropout = c.dropout, .eps = kEps};
  return train(alone, *self, c10::kCPU, steps);
}

void compare(Outcome& out, const Reference& got, const Reference& want, const Limits& limits) {
  for (std::size_t s = 0; s < want.steps.size(); ++s) {
    out.compare(fmt::format("the loss of step {}", s + 1), got.steps[s].loss, want.steps[s].loss, limits.step);
    out.compare(fmt::format("the gradient norm of step {}", s + 1), got.steps[s].grad_norm, want.steps[s].grad_norm, limits.step);
    out.hold("finite", got.steps[s].finite, fmt::format("step {} is not finite", s + 1));
  }
  if (got.after.size() != want.after.size())
    return out.fail(fmt::format("{} weights, not {}", got.after.size(), want.after.size()));
  double difference = 0.0, moved = 0.0;
  for (std::size_t i = 0; i < want.after.size(); ++i) {
    difference += std::pow(got.after[i] - want.after[i], 2);
    moved += std::pow(want.after[i] - want.before[i], 2);
  }
  out.judge("the update of the weights", std::sqrt(difference / moved), limits.update);
}

struct Kind {
  const char* name;
  bool lora;
};
constexpr Kind kKinds[] = {{"full", false}, {"LoRA", true}};

SmallCase case_of(const Kind& kind, std::string_view strategy, const Way& way, const optim::Precision& precision) {
  return {.model_type = kind.lora ? "qwen3" : "qwen2",
          .tied = !kind.lora,
          .lora = kind.lora,
          .recompute = way.recompute,
          .dropout = kind.lora ? 0.3 : 0.0,
          .group = way.group,
          .strategy = std::string(strategy),
          .hsdp_group = strategy == "hsdp" ? 2 : 1,
          .prefetch_budget = way.prefetch_budget,
          .offload = way.offload,
          .precision = precision,
          .loss_scale = precision.compute == at::kHalf ? 1024.0 : 1.0,
          .eps = kEps};
}

/// With one rank two strategies differ: whole weights, and sharded weights with a single shard.
std::vector<std::string_view> strategies_for(int ranks) {
  if (ranks == 1) return {"ddp", "zero3"};
  std::vector<std::string_view> all;
  for (const parallel::Strategy& s : parallel::strategies())
    if (!s.grouped || (ranks >= 4 && ranks % 2 == 0)) all.push_back(s.name);
  return all;
}

class Steps {
 public:
  explicit Steps(Runner& runner) : runner_(runner) {}

  void run() {
    const auto strategies = strategies_for(runner_.session().size());
    // Only fp64 separates small deviations from rounding; fp32 if the device has no fp64.
    const at::ScalarType exact = runner_.has(at::kDouble) ? at::kDouble : at::kFloat;
    for (const Kind& kind : kKinds)
      for (const std::string_view strategy : strategies)
        for (const Way& way : kWays) one(kind, strategy, way, precision_of(exact));
    for (const Kind& kind : kKinds)
      for (const Mesh& mesh : kMeshes) {
        if (runner_.session().size() % (mesh.tensor * mesh.context) != 0) continue;
        for (const char* strategy : {"ddp", "zero3"})
          for (const Way& way : {kWays[0], kWays[1]}) shared(kind, strategy, way, mesh, precision_of(exact));
      }
    for (const Kind& kind : kKinds)
      for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf})
        for (const std::string_view strategy : {strategies.front(), std::string_view("zero3")})
          if (runner_.has(type) && type != exact) one(kind, strategy, kWays[0], precision_of(type));
    for (const Kind& kind : kKinds)
      for (const char* strategy : {"ddp", "zero1"})
        if (runner_.session().size() > 1 || std::string_view(strategy) == "ddp") graphs(kind, strategy);
  }

 private:
  static optim::Precision precision_of(at::ScalarType type) {
    if (type == at::kDouble) return optim::Precision::fp64();
    if (type == at::kHalf) return optim::Precision::fp16();
    return type == at::kBFloat16 ? optim::Precision::bf16() : optim::Precision::fp32();
  }

  const Reference& reference(const SmallCase& c, int steps) {
    Reference& r = references_[{c.lora, c.dropout > 0, c.heads, steps}];
    if (r.steps.empty()) r = reference_of(c, steps);
    return r;
  }

  void one(const Kind& kind, std::string_view strategy, const Way& way, const optim::Precision& precision) {
    check(case_of(kind, strategy, way, precision), fmt::format("{}, {}, {}", kind.name, name_of(precision.compute), way.name));
  }

  void shared(const Kind& kind, std::string_view strategy, const Way& way, const Mesh& mesh, const optim::Precision& precision) {
    SmallCase c = case_of(kind, strategy, way, precision);
    c.tensor_ranks = mesh.tensor;
    c.context_ranks = mesh.context;
    c.heads = mesh.heads;
    check(c, fmt::format("{}, {}, {}, {}", kind.name, name_of(precision.compute), way.name, mesh.name));
  }

  void check(const SmallCase& c, const std::string& setting) {
    const Subject subject{"steps", c.strategy, kMeaning, kAdvice};
    runner_.check(subject, setting, [&](Outcome& out) {
      const Reference& want = reference(c, kSteps);
      compare(out, train(c, runner_.session().world(), runner_.device(), kSteps), want, limits_of(c.precision.compute));
    });
  }

  /// Runs four steps; the later ones are replayed.
  void graphs(const Kind& kind, const char* strategy) {
    const bool cpu = runner_.device().is_cpu();
    const at::ScalarType type = cpu ? at::kDouble : runner_.has(at::kBFloat16) ? at::kBFloat16 : at::kHalf;
    const Subject subject{"steps", strategy, kMeaning,
                          "train without cuda_graphs; report this line with the output of qft --version"};
    runner_.check(subject, fmt::format("{}, {}, graphs", kind.name, name_of(type)), [&](Outcome& out) {
      if (!cpu && !device::records_graphs(runner_.device())) Outcome::skip("this device records no graphs");
      if (!ops::attention_can_be_captured(runner_.device(), type, 8))
        Outcome::skip("graphs need flash attention, but LibTorch does not have it for this device");
      SmallCase c = case_of(kind, strategy, kWays[0], precision_of(type));
      c.dropout = 0.0;
      c.graphs = true;
      constexpr int kGraphSteps = 4;
      const Reference& want = reference(c, kGraphSteps);
      compare(out, train(c, runner_.session().world(), runner_.device(), kGraphSteps), want, limits_of(type));
    });
  }

  Runner& runner_;
  std::map<std::tuple<bool, bool, std::int64_t, int>, Reference> references_;
};

}  // namespace

void check_steps(Runner& runner) {
  Steps(runner).run();
}

}  // namespace qft::selftest
