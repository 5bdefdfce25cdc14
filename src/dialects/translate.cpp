#include "translate.h"

#include "qft/config/bound_field.h"
#include "qft/config/start.h"
#include "qft/config/store.h"
#include "qft/core/error.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <sstream>
#include <utility>

#include "degrees.h"
#include "foreign_keys.h"
#include "llama_factory_v1.h"
#include "megatron.h"
#include "sections.h"
#include "setting_values.h"

namespace qft::dialects {
namespace {

// Translates words of the value, also inside lists. One word may become several: "q_proj,k_proj".
Value with_words(const Value& value, std::initializer_list<Word> words) {
  Value out = value;
  if (value.kind == Value::Kind::list) {
    out.items.clear();
    for (const Value& item : value.items) {
      Value made = with_words(item, words);
      const bool translated = made.kind == Value::Kind::scalar && made.text != item.text;
      std::istringstream parts(translated ? made.text : "");
      if (!translated) out.items.push_back(std::move(made));
      for (std::string part; std::getline(parts, part, ',');) out.items.push_back(scalar(part, item.line));
    }
    return out;
  }
  const std::string word = word_of(value);
  for (const Word& row : words)
    if (row.theirs == word) return scalar(row.ours, value.line);
  return out;
}

// Drops repeated settings: keeps the last value at the first position.
std::vector<Setting> without_repeats(const std::vector<Setting>& settings) {
  std::vector<Setting> kept;
  for (const Setting& setting : settings) {
    const auto earlier = std::find_if(kept.begin(), kept.end(), [&](const Setting& s) { return s.key == setting.key; });
    if (earlier == kept.end()) {
      kept.push_back(setting);
    } else {
      *earlier = setting;
    }
  }
  return kept;
}

// Looks into lists and mappings on the command line. A key with two meanings may be a message, which must stay a text.
void parse_typed(std::vector<Setting>& settings) {
  for (Setting& setting : settings) {
    const ForeignKey* foreign = setting.from_file() ? nullptr : find_foreign(setting.key);
    if (foreign != nullptr && foreign->as<Either>() == nullptr) setting.value = parse_nested(setting.value, setting.where);
  }
}

class Translator {
 public:
  Translator(const std::vector<Setting>& settings, Purpose purpose)
      : settings_(settings),
        purpose_(purpose),
        v1_(read_v1(settings)),
        megatron_(read_megatron(settings)),
        swift_(dialect_of(settings) == Dialect::swift || megatron_.used) {
    out_.notes = std::move(megatron_.used ? megatron_.notes : v1_.notes);
    out_.defaults = std::move(megatron_.used ? megatron_.defaults : v1_.defaults);
    out_.defaults_reason =
        megatron_.used ? "this run has keys of Megatron, so its defaults apply"
                       : fmt::format("{} is a key of LLaMA-Factory's version 1, so that version's defaults apply", v1_.key);
    out_.claims = std::move(megatron_.claims);
  }

  Translation run() && {
    for (const Setting& setting : settings_) {
      const ForeignKey* foreign = find_foreign(setting.key);
      if (foreign == nullptr) {
        out_.settings.push_back(setting);
        // In version 1 "auto" means the newest checkpoint if there is one, which is qft's behaviour without the key.
        if (v1_.used && setting.key == "resume_from_checkpoint" && setting.value.text == "auto")
          out_.settings.back().value = scalar("null", setting.value.line);
      } else {
        take(setting, *foreign);
      }
    }
    Degrees degrees = read_degrees(settings_);
    for (auto* more : {&v1_.settings, &megatron_.settings, &degrees.settings})
      for (Setting& setting : *more) out_.settings.push_back(std::move(setting));
    out_.claims.insert(out_.claims.end(), degrees.claims.begin(), degrees.claims.end());
    evaluate_as_swift();
    hold_out_as_swift();
    order_as_swift();
    bound_epochs();
    leave_texts_plain();
    require_metric_of_loss();
    read_environment();
    if (swift_) take_most_probable();
    load_earlier_run();
    refuse_of_methods();
    note_without_effect();
    return std::move(out_);
  }

 private:
  static bool is_own(std::string_view name) {
    RunConfig defaults;
    return find_field(bound_fields(defaults), name) != nullptr;
  }

  // True if the key is given under a name with only one meaning.
  bool has(std::string_view key) const {
    return std::any_of(settings_.begin(), settings_.end(), [&](const Setting& s) {
      const ForeignKey* foreign = find_foreign(s.key);
      return s.key == key ? foreign == nullptr || foreign->as<Either>() == nullptr
                          : foreign != nullptr && foreign->as<Renamed>() != nullptr && foreign->own() == key;
    });
  }

  void take(const Setting& setting, const ForeignKey& key) {
    if (const auto* row = key.as<Renamed>()) return rename(setting, *row);
    if (const auto* row = key.as<Converted>()) return convert(setting, *row);
    if (const auto* row = key.as<Either>()) return choose(setting, *row);
    if (key.is<Ranks>()) return claim(setting, WorldClaim::Kind::ranks);
    if (key.is<DataRanks>()) return claim(setting, WorldClaim::Kind::data_ranks);
    if (const auto* row = key.as<NoEffect>(); row != nullptr && !is_harmless(row->harmless, setting.value)) {
      if (row->values.size() > 0 && !is_harmless(row->values, setting.value)) refuse(setting, row->otherwise);
      unused_.push_back({&setting, row->reason});
    }
    const auto* row = key.as<Refused>();
    if (row == nullptr || is_harmless(row->harmless, setting.value)) return;
    // An export reads and writes whole files.
    if (purpose_ == Purpose::export_model && key.tool == ForeignKey::Tool::megatron_core)
      return unused_.emplace_back(&setting, "an export runs as one rank"), void();
    if (row->methods.size() == 0) refuse(setting, row->reason);
    of_methods_.push_back({&setting, row});
  }

  [[noreturn]] static void refuse(const Setting& setting, std::string_view reason) {
    fail_config("{}: {} is refused: {}", setting.where, setting.key.ends_with("_token") ? "it" : describe(setting.value), reason);
  }

  // Refuses keys of a method or an optimizer if the run has it; in other runs they have no effect.
  void refuse_of_methods() {
    for (const auto& [setting, row] : of_methods_) {
      const bool chosen = std::ranges::any_of(out_.settings, [&](const Setting& s) {
        return (s.key == "finetuning_type" || s.key == "optim") && is_harmless(row->methods, s.value);
      });
      if (chosen) refuse(*setting, row->reason);
      unused_.push_back({setting, "the run does not use its method"});
    }
  }

  void rename(const Setting& setting, const Renamed& row) {
    if (purpose_ == Purpose::export_model && matches_export_format(setting, row.key)) return;
    if (row.null == Null::sets_nothing && word_of(setting.value) == "null") return;
    if (setting.key == "tensor_parallel_size" && is_of_engine(setting)) return;
    if (megatron_.used && setting.key == "optimizer") return choose_optimizer(setting);
    // For an export, ms-swift's quant_bits is the format to write.
    const bool written = purpose_ == Purpose::export_model && setting.key == "quant_bits";
    out_.settings.push_back(as(setting, written ? "export_quantization_bit" : row.key, with_words(setting.value, row.words)));
  }

  // True beside a key of another inference engine, which the degree then belongs to. Notes that.
  bool is_of_engine(const Setting& degree) {
    const auto engine = std::ranges::find_if(settings_, names_engine);
    if (engine == settings_.end()) return false;
    if (as_int(degree.value) != 1)
      out_.notes.push_back(fmt::format(
          "{} has no effect in qft: beside {} it is a degree of that inference engine; for ranks of qft that share each matrix "
          "write tensor_parallel: {}",
          degree.where, engine->where, word_of(degree.value)));
    return true;
  }

  // Megatron's names; its adam decouples weight decay.
  void choose_optimizer(const Setting& setting) {
    const std::string word = word_of(setting.value);
    if (word == "null") return;
    out_.settings.push_back(as(setting, "optim", with_words(setting.value, {{"adam", "adamw_torch"}, {"dist_muon", "muon"}})));
  }

  // Exports have only one 4-bit format. True if the key is part of it and agrees with it.
  static bool matches_export_format(const Setting& setting, std::string_view key) {
    for (const auto& [name, word] :
         {std::pair{"quantization_method", "bnb"}, {"quantization_type", "nf4"}, {"double_quantization", "true"}}) {
      if (key != name) continue;
      const std::string asked = word_of(setting.value);
      if (asked == word || asked == "null") return true;
      fail_config("{}: {} is refused: exports have 16 bits, or 4 bits in bitsandbytes' nf4 with double quantization",
                  setting.where, describe(setting.value));
    }
    return false;
  }

  /// Refuses losses of another task: the stage's default loss would train in their place.
  void require_loss_of_stage(const Setting& setting, const Converted& row) const {
    std::string stage;
    for (const Setting& s : settings_)
      if (const std::string task = word_of(s.value); s.key == "stage" || s.key == "task_type")
        stage = task == "generative_reranker" ? "reranker" : task;
    const std::string word = word_of(setting.value), key = stage + "_loss";
    if (word == "null" || (stage != "embedding" && stage != "reranker")) return;
    std::string allowed;
    for (const Case& each : row.cases) {
      if (std::ranges::none_of(each.sets, [&](const Assignment& set) { return set.key == key; })) continue;
      for (const std::string_view value : each.values) {
        if (value == word) return;
        allowed += fmt::format("{}{}", allowed.empty() ? "" : ", ", value);
      }
    }
    fail_config("{}: loss_type {} is refused in stage {}: allowed are {}", setting.where, describe(setting.value), stage,
                allowed);
  }

  void convert(const Setting& setting, const Converted& row) {
    if (setting.key == "loss_type") require_loss_of_stage(setting, row);
    const std::string word = word_of(setting.value);
    for (const Case& each : row.cases) {
      const auto fits = std::ranges::find_if(each.values, [&](std::string_view value) {
        return value.ends_with('*') ? word.starts_with(value.substr(0, value.size() - 1)) : value == word;
      });
      if (fits == each.values.end()) continue;
      const std::string_view pattern = *fits;
      const bool begins = pattern.size() > 1 && pattern.ends_with('*');
      const Value rest = begins ? scalar(word.substr(pattern.size() - 1), setting.value.line) : setting.value;
      for (const Assignment& set : each.sets) {
        const bool given = set.value == std::string_view("*");
        Setting made = as(setting, set.key, given ? rest : scalar(set.value, setting.value.line));
        (set.if_unset ? out_.fallbacks : out_.settings).push_back(std::move(made));
      }
      return;
    }
    fail_config("{}: {} is refused: {}", setting.where, describe(setting.value), row.otherwise);
  }

  // Decides a name with two meanings: ms-swift's meaning among keys of ms-swift; the other meaning if the first one's key is
  // given.
  void choose(const Setting& setting, const Either& row) {
    if (word_of(setting.value) == "null") return;
    const bool generates = purpose_ == Purpose::any || purpose_ == Purpose::generate || purpose_ == Purpose::export_model;
    if (!row.other.empty() && (has(row.swift) || (generates && is_own(row.name)))) {
      return out_.settings.push_back(as(setting, row.other, setting.value));
    }
    if (swift_ && row.swift.empty()) {
      out_.notes.push_back(
          fmt::format("{} has no effect in qft, which does not change texts: write the names into the data", setting.where));
      return;
    }
    if (swift_) return out_.settings.push_back(as(setting, row.swift, setting.value));
    fail_config("{}: '{}' has two meanings: {}", setting.where, row.name, row.meanings);
  }

  void claim(const Setting& setting, WorldClaim::Kind kind) {
    if (word_of(setting.value) == "null") return;
    const auto number = as_int(setting.value);
    if (!number || *number < 1)
      fail_config("{}: expected an integer of at least 1, got {}", setting.where, describe(setting.value));
    out_.claims.push_back({kind, *number, setting.where});
  }

  // If ms-swift's keys name an evaluation set, evaluates it when checkpoints are saved, unless eval_strategy is given. With
  // eval_strategy no, ms-swift holds out nothing.
  void evaluate_as_swift() {
    const auto find = [&](std::string_view key) {
      return std::find_if(out_.settings.rbegin(), out_.settings.rend(), [&](const Setting& s) { return s.key == key; });
    };
    const auto none = out_.settings.rend();
    const auto by_swift = [&](auto at) {
      const ForeignKey* foreign = at == none ? nullptr : find_foreign(at->typed);
      return foreign != nullptr && foreign->tool == ForeignKey::Tool::swift;
    };
    auto data = find("eval_dataset");
    if (!by_swift(data)) data = find("val_size");
    if (!by_swift(data) || as_double(data->value) == 0.0) return;
    const auto strategy = find("eval_strategy"), saves = find("save_strategy");
    if (strategy == none) {
      const auto& when = saves == none ? scalar("steps", data->value.line) : saves->value;
      out_.fallbacks.push_back({"eval_strategy", when, data->source, data->where, data->typed});
      const auto steps = find("save_steps");
      if (steps != none) out_.fallbacks.push_back({"eval_steps", steps->value, steps->source, steps->where, steps->key});
    } else if (data->key == "val_size" && (word_of(strategy->value) == "false" || word_of(strategy->value) == "no")) {
      out_.notes.push_back(
          fmt::format("{} has no effect: with {} nothing is evaluated, so nothing is held out", data->where, strategy->where));
      out_.settings.erase(std::next(data).base());
    }
  }

  // In ms-swift, split_dataset_ratio is 0 if there is a val_dataset.
  void hold_out_as_swift() {
    const auto data =
        std::find_if(out_.settings.rbegin(), out_.settings.rend(), [](const Setting& s) { return s.key == "eval_dataset"; });
    if (data == out_.settings.rend() || word_of(data->value) == "null" ||
        (data->value.kind == Value::Kind::list && data->value.items.empty()))
      return;
    const std::string where = data->where;
    std::erase_if(out_.settings, [&](const Setting& s) {
      if (s.key != "val_size" || find_foreign(s.typed) == nullptr) return false;
      const auto share = as_double(s.value);
      if (!share || *share < 0 || *share >= 1) return false;  // its range check rejects it
      if (*share > 0) out_.notes.push_back(fmt::format("{} has no effect: evaluation uses {}, as in ms-swift", s.where, where));
      return true;
    });
  }

  // Returns the given setting with this name; nullptr if it is missing or null.
  const Setting* find_typed(std::string_view name) const { return latest_value(settings_, name); }

  // Returns the value of a flag that is true by default.
  static bool is_on(const Setting* setting) {
    if (setting == nullptr) return true;
    const auto flag = as_bool(setting->value);
    if (!flag) fail_config("{}: expected true or false, got {}", setting->where, describe(setting->value));
    return *flag;
  }

  // ms-swift shuffles twice: all samples before training, unless dataset_shuffle is false, and then anew in
  // each epoch, unless train_dataloader_shuffle is false or data are streamed.
  void order_as_swift() {
    const Setting *before = find_typed("dataset_shuffle"), *streams = find_typed("streaming");
    const Setting* each_epoch = find_typed("train_dataloader_shuffle");
    if (each_epoch == nullptr) each_epoch = find_typed("train_sampler_random");
    const bool streamed = streams != nullptr && is_on(streams), shuffled = is_on(each_epoch) && !streamed;
    if (!is_on(before) && !shuffled) {
      out_.settings.push_back(as(*before, "disable_shuffling", scalar("true", before->value.line)));
    } else if (!is_on(before)) {
      out_.notes.push_back(
          fmt::format("{}: each epoch still has a new order, as in ms-swift; add train_dataloader_shuffle: false to keep the "
                      "order of the data",
                      before->where));
    } else if (!is_on(each_epoch) && !streamed) {
      fail_config(
          "{}: ms-swift then shuffles once and uses this order in all epochs, which is not implemented: add dataset_shuffle: "
          "false to keep the order of the data, or remove both for a new order in each epoch",
          each_epoch->where);
    }
  }

  // In ms-swift, max_epochs is a limit in addition to num_train_epochs. In Lightning and Megatron it is the number of epochs.
  void bound_epochs() {
    const Setting* bound = find_typed("max_epochs");
    if (bound == nullptr) return;
    const auto at = [&](std::string_view key) {
      const auto found =
          std::find_if(out_.settings.rbegin(), out_.settings.rend(), [&](const Setting& s) { return s.key == key; });
      return found == out_.settings.rend() ? nullptr : &*found;
    };
    const Setting* steps = at("max_steps");
    Setting* epochs = at("num_train_epochs");
    const auto most = as_double(bound->value);
    if (!most || *most <= 0) fail_config("{}: expected a number of epochs above 0, got {}", bound->where, describe(bound->value));
    if (steps != nullptr && as_double(steps->value).value_or(0) > 0)
      fail_config("{} and {} end the run at different steps: keep one", bound->where, steps->where);
    const bool given = epochs != nullptr && word_of(epochs->value) != "null";
    const double asked = given ? as_double(epochs->value).value_or(0) : config::TrainingArgs{}.num_train_epochs;
    if (!given && megatron_.used) return out_.settings.push_back(as(*bound, "num_train_epochs", bound->value));
    if (!given && *most > asked)
      fail_config(
          "{}: 'max_epochs' has two meanings: in ms-swift it is a limit in addition to num_train_epochs (default {}), in "
          "Lightning the number of epochs: write num_train_epochs",
          bound->where, asked);
    if (*most >= asked) return;
    out_.notes.push_back(
        fmt::format("{}: the run and its learning-rate schedule have {} epochs instead of {}", bound->where, *most, asked));
    Setting bounded = as(*bound, "num_train_epochs", bound->value);
    if (epochs == nullptr) {
      out_.settings.push_back(std::move(bounded));
    } else {
      *epochs = std::move(bounded);
    }
  }

  // With use_chat_template: false, a classifier reads unchanged texts.
  void leave_texts_plain() {
    const Setting* chat = find_typed("use_chat_template");
    if (is_on(chat)) return;
    const auto in_stage = [&](bool (*is_kind)(const config::Stage&)) {
      return std::ranges::any_of(out_.settings, [&](const Setting& s) {
        const config::Stage* stage = s.key == "stage" ? config::find_stage(word_of(s.value)) : nullptr;
        return stage != nullptr && is_kind(*stage);
      });
    };
    if (in_stage([](const config::Stage& stage) { return stage.head == config::HeadKind::vector; }))
      fail_config(
          "{}: {} is refused for embedding models: write template: qwen3_emb instead (the text and <|endoftext|>, as ms-swift "
          "trains Qwen3-Embedding), or template: empty (the text alone, if the tokenizer appends no token)",
          chat->where, describe(chat->value));
    if (!in_stage([](const config::Stage& stage) { return stage.classifies(); }))
      fail_config("{}: {} is refused: use stage: pt to train on raw texts", chat->where, describe(chat->value));
    std::erase_if(out_.settings, [](const Setting& s) { return s.key == "template"; });
    out_.settings.push_back(as(*chat, "template", scalar("empty", chat->value.line)));
  }

  // ms-swift sets some keys of embedding models and rerankers by environment variables; a script that is run unchanged must not
  // train with other values.
  void read_environment() {
    const auto value_of = [&](std::string_view key) -> const Setting* {
      const auto found = std::ranges::find(out_.settings, key, &Setting::key);
      return found == out_.settings.end() ? nullptr : &*found;
    };
    const Setting* stage = value_of("stage");
    if (stage == nullptr || (word_of(stage->value) != "embedding" && word_of(stage->value) != "reranker")) return;
    for (const ForeignKey& key : foreign_keys()) {
      const auto is_lower = [](unsigned char c) { return std::islower(c) != 0; };
      if (key.as<Renamed>() == nullptr || std::ranges::any_of(key.name, is_lower) || value_of(key.own()) != nullptr) continue;
      const char* value = std::getenv(std::string(key.name).c_str());
      if (value == nullptr || *value == '\0') continue;
      const std::string where = fmt::format("environment: {}={}", key.name, value);
      out_.settings.push_back({std::string(key.own()), scalar(value, 0), "environment", where, std::string(key.name)});
      out_.notes.push_back(fmt::format("{}: {} (from the environment variable {})", key.own(), value, key.name));
    }
  }

  // Embeddings and rerankers are evaluated by the metrics of their loss, which are also ms-swift's defaults.
  void require_metric_of_loss() const {
    const Setting* metric = find_typed("eval_metric");
    if (metric == nullptr) return;
    const auto value_of = [&](std::string_view key, const char* fallback) {
      const auto found =
          std::find_if(out_.settings.rbegin(), out_.settings.rend(), [&](const Setting& s) { return s.key == key; });
      return found == out_.settings.rend() ? std::string(fallback) : word_of(found->value);
    };
    const std::string stage = value_of("stage", "sft"), asked = word_of(metric->value);
    const bool ranks = stage == "reranker", embeds = stage == "embedding";
    const std::string own = ranks                                                ? "reranker"
                            : !embeds                                            ? "nlg"
                            : value_of("embedding_loss", "infonce") == "infonce" ? "infonce"
                                                                                 : "paired";
    if (asked != own)
      fail_config("{}: '{}' is refused: {} reports the metrics that ms-swift calls {}: remove the key", metric->where, asked,
                  ranks || embeds ? "evaluation with this loss" : fmt::format("stage {}", stage), own);
  }

  // In ms-swift, temperature 0 takes the most probable token.
  void take_most_probable() {
    for (Setting& setting : out_.settings)
      if (setting.key == "temperature" && as_double(setting.value) == 0.0)
        setting = as(setting, "do_sample", scalar("false", setting.value.line));
  }

  // Writes one note for all: run files of other tools have many such keys, and qft help has the reasons.
  void note_without_effect() {
    if (unused_.size() == 1) {
      const auto& [setting, reason] = unused_.front();
      out_.notes.push_back(fmt::format("{} has no effect in qft: {}", setting->where, reason));
    }
    if (unused_.size() < 2) return;
    std::string names;
    for (const auto& [setting, reason] : unused_) names += (names.empty() ? "" : ", ") + setting->key;
    out_.notes.push_back(fmt::format("keys without effect in qft: {} (qft help KEY explains them)", names));
  }

  // The negation of trains(), for settings.
  bool trains_nothing() const {
    const auto flag = [&](std::string_view key) -> std::optional<bool> {
      const auto found = std::ranges::find(out_.settings, key, &Setting::key);
      return found == out_.settings.end() ? std::nullopt : as_bool(found->value);
    };
    return !config::trains_by(flag("do_train"), flag("do_eval") == true, flag("do_predict") == true);
  }

  // Uses an adapter or model as it was trained, unless load_args is false. load_data_args also takes the run's data.
  void load_earlier_run() {
    if (uses_models(purpose_) || (purpose_ == Purpose::train && trains_nothing())) {
      out_.earlier = settings_of_earlier_run(settings_, out_.settings, purpose_);
      return;
    }
    for (const char* name : {"load_args", "load_data_args", "load_args_from_ckpt_dir", "load_dataset_config"})
      if (const Setting* asked = find_typed(name); swift_ && asked != nullptr && is_on(asked))
        fail_config(
            "{}: it is refused in training, which reads only this run file and the command line: name the data in dataset",
            asked->where);
  }

  const std::vector<Setting>& settings_;
  Purpose purpose_;
  V1Sections v1_;
  MegatronRun megatron_;
  bool swift_;  // ms-swift's meanings apply, as they do in its Megatron commands
  std::vector<std::pair<const Setting*, const Refused*>> of_methods_;  // refused with some methods only
  std::vector<std::pair<const Setting*, std::string_view>> unused_;    // each with its reason
  Translation out_;
};

}  // namespace

Translation translate(std::vector<Setting> settings, Purpose purpose) {
  parse_typed(settings);
  settings = split_sections(std::move(settings));
  Translation translation = Translator(without_repeats(settings), purpose).run();
  translation.given = std::move(settings);
  return translation;
}

}  // namespace qft::dialects
