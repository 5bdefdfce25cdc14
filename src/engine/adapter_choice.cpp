#include "adapter_choice.h"

#include "qft/core/error.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

#include <nlohmann/json.hpp>

namespace qft::engine {
namespace {

std::string join(const std::vector<std::string>& words) {
  std::string text;
  for (const auto& w : words) text += (text.empty() ? "" : ",") + w;
  return text;
}

std::vector<std::string> sorted(std::vector<std::string> words) {
  std::ranges::sort(words);
  return words;
}

/// Parses rank_pattern or alpha_pattern: a mapping of expressions to numbers.
template <class Number>
std::map<std::string, Number> pattern_of(const config::RunConfig& config, const char* key, const nlohmann::json& pattern) {
  if (pattern.is_null()) return {};
  const auto given = config.given.find(key);
  const std::string where = given == config.given.end() ? key : given->second + ": " + key;
  if (!pattern.is_object())
    fail_config("{}: expected a mapping of modules to numbers, as in {{q_proj: 16}}, got {}", where, pattern.dump());
  std::map<std::string, Number> numbers;
  for (const auto& [expression, number] : pattern.items()) {
    constexpr bool kWhole = std::is_integral_v<Number>;
    const bool fits = kWhole ? number.is_number_integer() : number.is_number();
    if (!fits || number.template get<double>() <= 0 || number.template get<double>() > 65536)
      fail_config("{}: '{}' is {}, expected {} up to 65536", where, expression, number.dump(),
                  kWhole ? "a whole number from 1" : "a number above 0");
    numbers[expression] = number.template get<Number>();
  }
  return numbers;
}

/// Training continues an existing adapter unchanged: throws ConfigError for keys that ask for different settings.
class AdapterKeyCheck {
 public:
  AdapterKeyCheck(const config::RunConfig& config, const ModelSource& source)
      : config_(config), dir_(source.live()->dir), modules_(model::lora_modules(source.own_config())) {}

  template <class Asked, class Theirs>
  void same(const char* key, bool equal, const Asked& asked, const Theirs& theirs) const {
    if (!config_.is_given(key) || equal) return;
    fail_config(
        "{}: {} is {}, but the adapter '{}' that training starts from has {}: remove the key to continue with that adapter, or "
        "set create_new_adapter: true, which merges it and trains a new one",
        config_.given.find(key)->second, key, asked, dir_.string(), theirs);
  }
  void same_targets(const std::vector<std::string>& asked, const model::AdapterTargets& theirs) const {
    model::AdapterTargets wish;
    wish.key = theirs.key;
    wish.set_targets(join(asked));
    same(theirs.key, of_model(wish) == of_model(theirs), join(asked), theirs.targets_text());
    const auto& saved = config_.finetuning.additional_target;
    same("additional_target", sorted(saved) == sorted(theirs.modules_to_save), join(saved), join(theirs.modules_to_save));
  }

 private:
  std::string of_model(model::AdapterTargets targets) const {
    targets.keep_targets(modules_);
    return targets.targets_text();
  }

  const config::RunConfig& config_;
  const std::filesystem::path& dir_;
  std::vector<std::string> modules_;
};

void require_same_adapter(const config::RunConfig& config, const model::OftConfig& adapter, const ModelSource& source) {
  const auto& f = config.finetuning;
  const AdapterKeyCheck asked(config, source);
  asked.same("oft_rank", f.oft_rank == adapter.rank, f.oft_rank, adapter.rank);
  asked.same("oft_block_size", f.oft_block_size == adapter.block_size, f.oft_block_size, adapter.block_size);
  asked.same("use_cayley_neumann", f.use_cayley_neumann == adapter.neumann, f.use_cayley_neumann, adapter.neumann);
  asked.same("num_cayley_neumann_terms", f.num_cayley_neumann_terms == adapter.terms, f.num_cayley_neumann_terms, adapter.terms);
  asked.same("block_share", f.block_share == adapter.shared, f.block_share, adapter.shared);
  asked.same_targets(f.oft_target, adapter);
}

void require_same_adapter(const config::RunConfig& config, const model::LoraConfig& adapter, const ModelSource& source) {
  const auto& f = config.finetuning;
  const AdapterKeyCheck asked(config, source);
  const auto same = [&](const char* key, bool equal, const auto& ours, const auto& theirs) {
    asked.same(key, equal, ours, theirs);
  };
  model::LoraConfig wish;
  asked.same_targets(f.lora_target, adapter);
  wish.ranks = pattern_of<std::int64_t>(config, "rank_pattern", f.rank_pattern);
  wish.alphas = pattern_of<double>(config, "alpha_pattern", f.alpha_pattern);
  same("lora_rank", f.lora_rank == adapter.rank, f.lora_rank, adapter.rank);
  same("lora_alpha", static_cast<double>(f.lora_alpha) == adapter.alpha, f.lora_alpha, adapter.alpha);
  same("use_rslora", f.use_rslora == adapter.rslora, f.use_rslora, adapter.rslora);
  same("use_dora", f.use_dora == adapter.dora, f.use_dora, adapter.dora);
  same("pissa_init", !f.pissa_init, f.pissa_init, false);  // already applied when the adapter was made
  same("rank_pattern", wish.ranks == adapter.ranks, f.rank_pattern.dump(), nlohmann::json(adapter.ranks).dump());
  same("alpha_pattern", wish.alphas == adapter.alphas, f.alpha_pattern.dump(), nlohmann::json(adapter.alphas).dump());
  same("lora_target_parameters", f.lora_target_parameters == adapter.target_parameters, join(f.lora_target_parameters),
       join(adapter.target_parameters));
}

model::OftConfig oft_of(const config::FinetuningArgs& f) {
  model::OftConfig oft;
  oft.rank = f.oft_rank;
  oft.block_size = f.oft_block_size;
  oft.shared = f.block_share;
  oft.neumann = f.use_cayley_neumann;
  oft.terms = f.num_cayley_neumann_terms;
  oft.set_targets(join(f.oft_target));
  oft.modules_to_save = f.additional_target;
  return oft;
}

/// No dropout if the loss compares the log-probabilities of an item's sequences, as in TRL and LLaMA-Factory.
double dropout_of(const config::RunConfig& config) {
  return config.stage().lora_dropout ? config.finetuning.lora_dropout : 0.0;
}

model::LoraConfig lora_of(const config::RunConfig& config) {
  model::LoraConfig lora;
  lora.rank = config.finetuning.lora_rank;
  lora.alpha = static_cast<double>(config.finetuning.lora_alpha);
  lora.dropout = dropout_of(config);
  lora.rslora = config.finetuning.use_rslora;
  lora.set_targets(join(config.finetuning.lora_target));
  lora.target_parameters = config.finetuning.lora_target_parameters;
  lora.dora = config.finetuning.use_dora;
  if (config.finetuning.pissa_init)
    lora.pissa = model::LoraConfig::Pissa{config.finetuning.pissa_iter, config.finetuning.pissa_convert};
  lora.ranks = pattern_of<std::int64_t>(config, "rank_pattern", config.finetuning.rank_pattern);
  lora.alphas = pattern_of<double>(config, "alpha_pattern", config.finetuning.alpha_pattern);
  lora.modules_to_save = config.finetuning.additional_target;
  return lora;
}

}  // namespace

/// The key is checked here because a pack may have set stage seq_cls.
std::int64_t labels_of(const config::RunConfig& config) {
  if (config.stage().sample == config::SampleKind::ranking) return 1;
  if (!config.finetuning.num_labels)
    fail_config("stage seq_cls needs num_labels: how many labels there are, or 1 for a regression");
  return *config.finetuning.num_labels;
}

model::AdapterConfig adapter_of(const config::RunConfig& config, const ModelSource& source) {
  if (source.live()) {
    model::AdapterConfig theirs = source.live()->config;
    if (!source.trains()) return theirs;
    const bool oft = theirs.oft.enabled();
    if (const char* kind = oft ? "oft" : "lora"; config.finetuning.finetuning_type != kind)
      fail_config("finetuning_type is {}, but the adapter '{}' that training starts from is {}: set finetuning_type to {}",
                  config.finetuning.finetuning_type, source.live()->dir.string(), oft ? "OFT" : "LoRA", kind);
    if (oft)
      require_same_adapter(config, theirs.oft, source);
    else
      require_same_adapter(config, theirs.lora, source);
    theirs.lora.dropout = oft ? 0.0 : dropout_of(config);
    return theirs;
  }
  if (!source.trains() || !config.finetuning.trains_adapter()) return {};
  model::AdapterConfig own;
  if (config.finetuning.finetuning_type == "oft")
    own = oft_of(config.finetuning);
  else
    own = lora_of(config);
  if (config.stage().classifies()) {
    own.targets().labels = labels_of(config);
    std::erase(own.targets().modules_to_save, "score");  // the head always trains
  }
  return own;
}

}  // namespace qft::engine
