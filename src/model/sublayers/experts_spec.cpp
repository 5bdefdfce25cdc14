#include "descriptions.h"

namespace qft::model {
namespace {

constexpr const char *kRouter = "gate", *kSharedRouter = "shared_expert_gate";

}  // namespace

bool is_router(std::string_view name) {
  return name == kRouter || name == kSharedRouter;
}

SubLayerSpec describe_experts(const ModelConfig& c) {
  const ExpertsConfig& e = c.experts;
  const std::int64_t hidden = c.hidden_size, inner = e.intermediate_size, shared = e.shared_size, k = e.per_token;
  SubLayerSpec spec;
  spec.kind = SubLayerKind::experts;
  const std::string block = e.block + ".", experts = block + "experts";
  spec.params = {{.linears = {{kRouter, block + kRouter, e.count, hidden}}},
                 {.linears = {{e.gate, e.gate, inner, hidden}, {e.up, e.up, inner, hidden}},
                  .stack = {e.count, k, experts, "gate_up_proj", e.fused}},
                 {.linears = {{e.down, e.down, hidden, inner, false, Split::columns}},
                  .stack = {e.count, k, experts, "down_proj", e.fused}}};
  spec.saved = {{.columns = e.count, .type = SavedType::statistic},  // the router's probabilities
                {.columns = 1, .type = SavedType::statistic},        // log of the sum by which they are divided
                {.columns = k, .type = SavedType::index},            // a token's experts
                {.columns = k},                                      // and the experts' weights
                {.columns = k * 2 * inner}};                         // each expert's gate and up
  spec.scratch = {{"experts_x", k * hidden},
                  {"experts_act", k * inner},
                  {"experts_y", k * hidden},
                  {"experts_gact", k * inner, /*backward_only=*/true}};
  spec.input_groups = 2;
  const auto h = static_cast<double>(hidden), rows = static_cast<double>(k), i = static_cast<double>(inner);
  spec.forward.values = 5 * h + 4 * static_cast<double>(e.count) + rows * (3 * h + 5 * i);  // copied to experts' rows and back
  spec.backward.values = 6 * h + 6 * static_cast<double>(e.count) + rows * (7 * h + 12 * i);
  if (shared == 0) return spec;
  // Inserted before the experts' down projection: linears that read the sub-layer's input come first.
  spec.params.insert(spec.params.begin() + 2, {{.linears = {{"gate_proj", block + "shared_expert.gate_proj", shared, hidden},
                                                            {"up_proj", block + "shared_expert.up_proj", shared, hidden}}},
                                               {.linears = {{kSharedRouter, block + kSharedRouter, 1, hidden}}}});
  spec.params.push_back({.linears = {{"down_proj", block + "shared_expert.down_proj", hidden, shared, false, Split::columns}}});
  spec.input_groups = 4;
  spec.saved.push_back({.columns = 2 * shared});
  spec.saved.push_back({.columns = 1});  // the shared expert's gate
  spec.scratch.push_back({"shared_act", shared});
  spec.scratch.push_back({"shared_gact", shared, /*backward_only=*/true});
  spec.scratch.push_back({"shared_y", hidden});
  const auto s = static_cast<double>(shared);
  spec.forward.values += 3 * h + 5 * s;
  spec.backward.values += 3 * h + 12 * s;
  return spec;
}

}  // namespace qft::model
