#include "degrees.h"

#include "qft/core/error.h"

#include <string>

#include "setting_values.h"

namespace qft::dialects {
namespace {

void read_accelerate(const std::vector<Setting>& settings, Degrees& out) {
  const Setting* replicate = latest_value(settings, "parallelism_config.dp_replicate_size");
  const Setting* shard = latest_value(settings, "parallelism_config.dp_shard_size");
  if (replicate == nullptr && shard == nullptr) return;
  out.claims.push_back(data_ranks_claim(replicate, shard));
  if (degree_of(replicate) == 1 || degree_of(shard) == 1) return;
  out.settings.push_back(as(*shard, "strategy", scalar("hsdp", shard->value.line)));
  out.settings.push_back(as(*shard, "hsdp_group_size", shard->value));
}

}  // namespace

bool names_engine(const Setting& setting) {
  for (const char* beginning : {"vllm_", "sglang_", "lmdeploy_"})
    if (setting.key.starts_with(beginning)) return true;
  for (const char* name : {"gpu_memory_utilization", "max_num_seqs", "enforce_eager", "limit_mm_per_prompt"})
    if (setting.key == name) return true;
  if (setting.key != "infer_backend") return false;
  const std::string word = word_of(setting.value);
  return word == "vllm" || word == "sglang" || word == "lmdeploy";
}

std::int64_t degree_of(const Value& value, const std::string& where) {
  constexpr std::int64_t kMost = 1 << 20;
  const auto degree = as_int(value);
  if (!degree || *degree < 1 || *degree > kMost)
    fail_config("{}: expected an integer from 1 to {}, got {}", where, kMost, describe(value));
  return *degree;
}

Degrees read_degrees(const std::vector<Setting>& settings) {
  Degrees out;
  read_accelerate(settings, out);
  return out;
}

}  // namespace qft::dialects
