#include "megatron.h"

#include "qft/core/error.h"

#include <algorithm>

#include "foreign_keys.h"
#include "setting_values.h"

namespace qft::dialects {
namespace {

// Defaults that differ from LLaMA-Factory's, which hold without these keys. The learning rate depends on the method: below.
constexpr Translation::Default kLanguageModelDefaults[] = {
    {"weight_decay", "0.01"},
    {"per_device_train_batch_size", "1"},
    {"eval_steps", "1000"},
    {"logging_steps", "100"},
};
constexpr std::int64_t kGlobalBatch = 16;
constexpr Translation::Default kSwiftMegatronDefaults[] = {
    {"lr_scheduler_type", "cosine"},
    {"weight_decay", "0.1"},
    {"adam_beta2", "0.95"},
    {"per_device_train_batch_size", "1"},
    {"global_batch_size", "16", {"gradient_accumulation_steps"}},
    {"bf16", "true", {"fp16", "pure_bf16", "compute_dtype", "infer_dtype"}},
    {"logging_steps", "5"},
    {"eval_steps", "500", {"save_steps"}},
};
constexpr Translation::Default kLoraDefaults[] = {{"learning_rate", "1e-4"}, {"lora_alpha", "32"}, {"lora_dropout", "0.05"}};
constexpr Translation::Default kFullDefaults[] = {{"learning_rate", "1e-5"}};

bool is_zero(const Setting& setting) {
  return as_double(setting.value) == 0.0;
}

class MegatronReader {
 public:
  explicit MegatronReader(const std::vector<Setting>& settings) : settings_(settings) {
    out_.used = dialect_of(settings) == Dialect::megatron;
    swift_ = std::ranges::any_of(settings, [](const Setting& s) {
      const ForeignKey* foreign = find_foreign(s.key);
      return foreign != nullptr && foreign->tool == ForeignKey::Tool::swift && foreign->as<Either>() == nullptr;
    });
  }

  MegatronRun run() && {
    read_schedule();
    if (!out_.used) return {};
    read_optimizer();
    claim_batch();
    take_defaults();
    if (given("moe_aux_loss_coeff") != nullptr && !is_zero(*given("moe_aux_loss_coeff")))
      out_.notes.push_back(
          fmt::format("{}: the load-balancing loss is that of transformers, over all layers and each sequence; Megatron's is a "
                      "loss per layer and micro-batch",
                      given("moe_aux_loss_coeff")->where));
    if (swift_ && given("truncation_strategy") == nullptr)
      out_.notes.emplace_back("samples longer than cutoff_len (max_length) are cut at their end; ms-swift leaves them out");
    return std::move(out_);
  }

 private:
  const Setting* given(std::string_view key) const { return latest_value(settings_, key); }

  void set(std::string_view key, Value value, const Setting& by) { out_.settings.push_back(as(by, key, std::move(value))); }

  // The learning rate falls to min_lr by the style; a run of ms-swift falls by a cosine without the key, Megatron-LM's linearly.
  void read_schedule() {
    const Setting *style = given("lr_decay_style"), *least = given("min_lr");
    const bool falls_to = least != nullptr && !is_zero(*least);
    if (falls_to && (!out_.used || given("lr_scheduler_type") != nullptr))
      fail_config(
          "{}: {} is refused: write lr_scheduler_type: cosine_with_min_lr and lr_scheduler_kwargs: {{min_lr: 1.0e-6}} (or "
          "min_lr_rate: 0.1)",
          least->where, describe(least->value));
    if (style == nullptr && !falls_to) return;
    const Setting& by = style != nullptr ? *style : *least;
    const std::string word = style != nullptr ? word_of(style->value) : swift_ ? "cosine" : "linear";
    const auto kwargs = [&](std::string_view name) {
      Value map{.kind = Value::Kind::map, .line = least->value.line};
      map.entries.emplace_back(name, least->value);
      return map;
    };
    if (word == "constant") {
      set("lr_scheduler_type", scalar("constant_with_warmup", by.value.line), by);
    } else if (word == "cosine") {
      set("lr_scheduler_type", scalar(falls_to ? "cosine_with_min_lr" : "cosine", by.value.line), by);
      if (falls_to) set("lr_scheduler_kwargs", kwargs("min_lr"), *least);
    } else if (word == "linear") {
      set("lr_scheduler_type", scalar(falls_to ? "polynomial" : "linear", by.value.line), by);
      if (falls_to) set("lr_scheduler_kwargs", kwargs("lr_end"), *least);
    } else {
      fail_config(
          "{}: {} is refused: constant, linear and cosine are translated; write lr_scheduler_type: inverse_sqrt or "
          "warmup_stable_decay with lr_scheduler_kwargs",
          by.where, describe(by.value));
    }
  }

  std::string word(std::string_view key, const char* otherwise) const {
    const Setting* setting = given(key);
    return setting == nullptr ? std::string(otherwise) : word_of(setting->value);
  }

  // The optimizer's arguments as optim_args, with Megatron's defaults.
  void read_optimizer() {
    const Setting* optimizer = given("optimizer");
    if (optimizer == nullptr) return;
    const std::string& name = optimizer->value.text;
    std::string args;
    if (name == "sgd") args = fmt::format("momentum={}", word("sgd_momentum", "0.9"));
    if (name == "muon" || name == "dist_muon")
      args = fmt::format("momentum={},nesterov={},ns_steps={},adjust_lr_fn={}", word("muon_momentum", "0.9"),
                         word("muon_use_nesterov", "false"), word("muon_num_ns_steps", "5"), scale_of_muon(*optimizer));
    if (!args.empty()) set("optim_args", scalar(args, optimizer->value.line), *optimizer);
  }

  // Only two of Megatron's scales exist here, and another one would be another learning rate.
  std::string_view scale_of_muon(const Setting& optimizer) const {
    const std::string mode = word("muon_scale_mode", "spectral"), factor = word("muon_extra_scale_factor", "1");
    const double scale = as_double(scalar(factor, 0)).value_or(0);
    if (mode == "spectral" && scale == 0.2) return "match_rms_adamw";
    if (mode == "shape_scaling" && scale == 1) return "original";
    fail_config(
        "{}: Muon's updates with muon_scale_mode {} and muon_extra_scale_factor {} are not implemented: add "
        "muon_extra_scale_factor: 0.2 to spectral, or muon_scale_mode: shape_scaling, and adapt lr",
        optimizer.where, mode, factor);
  }

  void claim_batch() {
    const Setting* batch = given("global_batch_size");
    const bool counted = batch == nullptr && swift_ && given("gradient_accumulation_steps") == nullptr;
    if (counted)
      out_.claims.push_back({WorldClaim::Kind::whole_micro_batches, kGlobalBatch, "global_batch_size (Megatron's default)"});
    const auto number = batch == nullptr ? std::nullopt : as_int(batch->value);
    if (number && *number >= 1) out_.claims.push_back({WorldClaim::Kind::whole_micro_batches, *number, batch->where});
  }

  bool trains_lora() const {
    for (const char* key : {"tuner_type", "train_type", "sft_type", "finetuning_type"})
      if (const Setting* method = given(key)) return word_of(method->value) == "lora";
    return std::ranges::any_of(settings_,
                               [](const Setting& s) { return s.key == "adapters" || s.key == "adapter_name_or_path"; });
  }

  void take_defaults() {
    const auto add = [&](std::span<const Translation::Default> rows) {
      for (const Translation::Default& row : rows) out_.defaults.push_back(row);
    };
    const bool lora = trains_lora();
    if (!lora) out_.defaults.push_back({"finetuning_type", "full"});
    if (!swift_) return add(kLanguageModelDefaults);
    add(lora ? std::span<const Translation::Default>(kLoraDefaults) : kFullDefaults);
    add(kSwiftMegatronDefaults);
  }

  const std::vector<Setting>& settings_;
  bool swift_;
  MegatronRun out_;
};

}  // namespace

MegatronRun read_megatron(const std::vector<Setting>& settings) {
  return MegatronReader(settings).run();
}

}  // namespace qft::dialects
