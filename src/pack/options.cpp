#include "qft/pack/options.h"

#include "qft/core/error.h"
#include "qft/encode/template_spec.h"
#include "qft/io/file.h"
#include "qft/pack/corpus.h"
#include "qft/pack/reader.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace qft::pack {
namespace {

using config::RunConfig;
using nlohmann::json;
constexpr json::value_t kUnknown = json::value_t::discarded;  // not recorded by an older pack, or not part of its stage

enum class Part : std::uint8_t {
  shape,      // changes the items of a record
  text,       // likewise, through the template; null keeps the template's own text
  selection,  // selects records: compared for training only
};

bool same(const json& ours, const json& theirs) {
  return ours == theirs;
}

/// A key of the run file, with its value in a run and in a pack.
struct Option {
  std::string_view key;
  Part part;
  json (*of_run)(const RunConfig&);
  json (*of_pack)(const PackAttributes&);
  void (*set)(RunConfig&, const json&) = nullptr;  // null: a run cannot take the pack's value
  bool (*agree)(const json& ours, const json& theirs) = same;
};

/// True for a Jinja template: a run can change only the variables that it passes to the template.
bool is_jinja(const RunConfig& c) {
  return c.data.template_name == encode::kOwnTemplate || !c.data.chat_template.empty();
}

bool is_reasoning(const RunConfig& c) {
  return !c.data.template_name.empty() && !is_jinja(c) && encode::find_template(c.data.template_name).reasoning;
}

json thinking_of(const RunConfig& c) {
  if (is_jinja(c)) return c.is_given("enable_thinking") && c.data.enable_thinking ? json(*c.data.enable_thinking) : json();
  return !is_reasoning(c) ? json() : c.data.enable_thinking ? json(*c.data.enable_thinking) : json("null");
}

json preserving_of(const RunConfig& c) {
  if (is_jinja(c)) return c.data.preserve_thinking ? json(true) : json();
  return is_reasoning(c) ? json(c.data.preserve_thinking) : json();
}

json recorded(const PackAttributes& a, const char* key) {
  return a.options.value(key, json(kUnknown));
}

json as_given(const PackAttributes& a, const char* key) {
  return a.template_options.value(key, json(kUnknown));
}

json null_if_empty(const std::string& text) {
  return text.empty() ? json() : json(text);
}

// Returns the size of blocks of joined documents in words; false if documents are not joined.
json blocks(std::int64_t tokens) {
  return tokens > 0 ? json(fmt::format("blocks of {} tokens", tokens)) : json(false);
}

void set_packing(RunConfig& c, const json& blocks_of_pack) {
  c.data.packing = blocks_of_pack != false;
  // Blocks are one token shorter if the key is given.
  if (blocks_of_pack == blocks(c.data.cutoff_len - 1)) c.given["packing"] = "the pack";
}

// Returns the names, with # and the number if only some of the records were drawn.
json datasets_of(const PackAttributes& a) {
  json names = json::array();
  for (const json& dataset : a.options.value("datasets", json::array())) {
    const json drawn = dataset.value("num_samples", json());
    const auto name = dataset.value("name", std::string());
    names.push_back(drawn.is_null() ? name : fmt::format("{}#{}", name, drawn.dump()));
  }
  return names;
}

// A name without # matches any number, because num_samples may be in dataset_info.json.
bool same_datasets(const json& ours, const json& theirs) {
  return std::equal(ours.begin(), ours.end(), theirs.begin(), theirs.end(), [](const json& run, const json& pack) {
    return run == pack || pack.get<std::string>().starts_with(run.get<std::string>() + "#");
  });
}

// True for two files with the same text. If the pack's file is not here, the template's hash decides.
bool same_file(const json& ours, const json& theirs) {
  if (ours == theirs) return true;
  if (!ours.is_string() || !theirs.is_string()) return false;
  const std::filesystem::path mine = ours.get<std::string>(), packed = theirs.get<std::string>();
  if (!std::filesystem::is_regular_file(mine) || !std::filesystem::is_regular_file(packed)) return true;
  return io::read_text_file(mine) == io::read_text_file(packed);
}

// Returns `value`, or null if it does not change the template.
template <class Change>
json null_if_unchanged(const RunConfig& c, const std::string& value, const Change& change) {
  if (is_jinja(c)) return value;
  encode::TemplateSpec spec = encode::find_template(c.data.template_name);
  const std::string own = spec.hash();
  change(spec, value);
  return spec.hash() == own ? json() : json(value);
}

const std::vector<Option>& options() {
  static const std::vector<Option> table{
      {"stage", Part::shape, [](const RunConfig& c) { return json(c.finetuning.stage); },
       [](const PackAttributes& a) { return json(a.stage); }, [](RunConfig& c, const json& v) { c.finetuning.stage = v; }},
      {"template", Part::shape,
       [](const RunConfig& c) {
         return json(is_jinja(c) ? std::string(encode::kOwnTemplate) : encode::find_template(c.data.template_name).name);
       },
       [](const PackAttributes& a) { return json(a.template_name); },
       [](RunConfig& c, const json& v) { c.data.template_name = v; }},
      {"chat_template", Part::text,
       [](const RunConfig& c) {
         return c.data.chat_template.empty() ? json() : json(std::filesystem::absolute(c.data.chat_template).string());
       },
       [](const PackAttributes& a) { return as_given(a, "chat_template"); },
       [](RunConfig& c, const json& v) { c.data.chat_template = v.is_null() ? "" : v.get<std::string>(); }, same_file},
      {"chat_template_kwargs", Part::text,
       [](const RunConfig& c) { return c.data.chat_template_kwargs.empty() ? json() : c.data.chat_template_kwargs; },
       [](const PackAttributes& a) { return as_given(a, "chat_template_kwargs"); },
       [](RunConfig& c, const json& v) { c.data.chat_template_kwargs = v; }},
      {"default_system", Part::text,
       [](const RunConfig& c) {
         if (!c.is_given("default_system") && c.data.default_system.empty()) return json();
         return null_if_unchanged(c, c.data.default_system,
                                  [](encode::TemplateSpec& spec, const std::string& text) { spec.default_system = text; });
       },
       [](const PackAttributes& a) { return as_given(a, "default_system"); },
       [](RunConfig& c, const json& v) {
         if (v.is_null()) return;
         c.data.default_system = v;
         c.given["default_system"] = "the pack";  // an empty one counts only if it is given
       }},
      {"tool_format", Part::text,
       [](const RunConfig& c) {
         return c.data.tool_format.empty() ? json() : null_if_unchanged(c, c.data.tool_format, encode::set_tool_format);
       },
       [](const PackAttributes& a) { return as_given(a, "tool_format"); },
       [](RunConfig& c, const json& v) { c.data.tool_format = v.is_null() ? "" : v.get<std::string>(); }},
      {"enable_thinking", Part::text, thinking_of, [](const PackAttributes& a) { return as_given(a, "enable_thinking"); },
       [](RunConfig& c, const json& v) {
         if (v.is_boolean()) {
           c.data.enable_thinking = v.get<bool>();
           c.given["enable_thinking"] = "the pack";  // a Jinja template receives it only if it is given
         }
         if (v == "null") c.data.enable_thinking.reset();
       }},
      {"preserve_thinking", Part::text, preserving_of, [](const PackAttributes& a) { return as_given(a, "preserve_thinking"); },
       [](RunConfig& c, const json& v) { c.data.preserve_thinking = v == true; }},
      {"cutoff_len", Part::shape, [](const RunConfig& c) { return json(c.data.cutoff_len); },
       [](const PackAttributes& a) { return json(a.cutoff_len); }, [](RunConfig& c, const json& v) { c.data.cutoff_len = v; }},
      {"train_on_prompt", Part::shape, [](const RunConfig& c) { return json(c.data.train_on_prompt); },
       [](const PackAttributes& a) { return recorded(a, "train_on_prompt"); },
       [](RunConfig& c, const json& v) { c.data.train_on_prompt = v; }},
      {"mask_history", Part::shape, [](const RunConfig& c) { return json(c.data.mask_history); },
       [](const PackAttributes& a) { return recorded(a, "mask_history"); },
       [](RunConfig& c, const json& v) { c.data.mask_history = v; }},
      {"loss_scale", Part::shape,
       [](const RunConfig& c) { return null_if_empty(config::parse_loss_scale(c.data.loss_scale).schemes); },
       [](const PackAttributes& a) { return a.options.value("loss_scale", json()); },
       [](RunConfig& c, const json& v) { c.data.loss_scale = v.is_null() ? "" : v.get<std::string>(); }},
      {"query_prompt", Part::shape, [](const RunConfig& c) { return null_if_empty(c.data.query_prompt); },
       [](const PackAttributes& a) { return a.options.value("query_prompt", json()); },
       [](RunConfig& c, const json& v) { c.data.query_prompt = v.is_null() ? "" : v.get<std::string>(); }},
      {"document_prompt", Part::shape, [](const RunConfig& c) { return null_if_empty(c.data.document_prompt); },
       [](const PackAttributes& a) { return a.options.value("document_prompt", json()); },
       [](RunConfig& c, const json& v) { c.data.document_prompt = v.is_null() ? "" : v.get<std::string>(); }},
      {"packing", Part::shape,  // for documents only: rows of samples are packed at loading
       [](const RunConfig& c) { return blocks(joins_documents(c) ? document_block_tokens(c) : 0); },
       [](const PackAttributes& a) {
         return a.stage_row().has_documents() ? blocks(a.options.value("block_tokens", INT64_C(0))) : json(kUnknown);
       },
       set_packing},
      {"preprocessing_batch_size", Part::selection, [](const RunConfig& c) { return json(c.data.preprocessing_batch_size); },
       [](const PackAttributes& a) { return recorded(a, "chunk_records"); }},
      {"dataset", Part::selection, [](const RunConfig& c) { return json(c.data.dataset); }, datasets_of, nullptr, same_datasets},
      {"max_samples", Part::selection, [](const RunConfig& c) { return c.data.max_samples ? json(*c.data.max_samples) : json(); },
       [](const PackAttributes& a) { return a.options.value("max_samples", json()); }},
      {"mix_strategy", Part::selection, [](const RunConfig& c) { return json(c.data.mix_strategy); },
       [](const PackAttributes& a) { return recorded(a, "mix_strategy"); }},
      {"interleave_probs", Part::selection, [](const RunConfig& c) { return json(c.data.interleave_probs); },
       [](const PackAttributes& a) { return recorded(a, "interleave_probs"); }},
  };
  return table;
}

// Returns the place that gives the key, for messages.
std::string place_of(const RunConfig& config, std::string_view key) {
  const auto given = config.given.find(key);
  return given == config.given.end() ? std::string(key) : fmt::format("{}: {}", given->second, key);
}

void append(std::string& list, std::string_view separator, const std::string& item) {
  list.append(list.empty() ? "" : separator).append(item);
}

// Formats a value for people.
std::string shown(const Option& option, const json& value) {
  if (value.is_null()) return option.part == Part::text ? "the template's own" : "not set";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

void take(RunConfig& config, const PackAttributes& pack, const std::filesystem::path& path, bool for_training) {
  std::string faults, taken;
  for (const Option& option : options()) {
    if (option.part == Part::selection && !for_training) continue;
    const json theirs = option.of_pack(pack);
    const bool given = config.is_given(option.key) || (option.key == "packing" && config.data.neat_packing);
    if (theirs.is_discarded() || (!given && option.set == nullptr)) continue;
    const bool no_template = option.key == "template" && !given;  // no name to look up
    const json ours = no_template ? json() : option.of_run(config);
    if (option.agree(ours, theirs)) continue;
    if (given) {
      append(faults, "; ",
             fmt::format("{} is {}, {} in the pack", place_of(config, option.key), shown(option, ours), shown(option, theirs)));
    } else {
      option.set(config, theirs);
      append(taken, ", ", fmt::format("{} {}", option.key, shown(option, theirs)));
    }
  }
  if (!faults.empty())
    fail_config(
        "pack '{}' was made with other options: {}. Leave a key out to take the pack's value, or pack again with "
        "qft-pack and this run file",
        path.string(), faults);
  if (!taken.empty()) config.notes.push_back(fmt::format("taken from pack '{}': {}", path.string(), taken));
}

}  // namespace

nlohmann::json template_options(const RunConfig& config) {
  json values = json::object();
  if (config.data.template_name.empty()) return values;  // stage pt: no template
  for (const Option& option : options())
    if (option.part == Part::text) values[std::string(option.key)] = option.of_run(config);
  return values;
}

void take_pack_options(RunConfig& config, const PackAttributes& pack, const std::filesystem::path& path) {
  take(config, pack, path, true);
}

void take_pack_options(RunConfig& config, config::Purpose purpose) {
  const std::string train = config.folder_of(config.data.pack), eval = config.folder_of(config.data.eval_pack);
  // An evaluation with its own data does not need the training pack.
  const bool has_own = purpose == config::Purpose::eval && !(eval.empty() && config.data.eval_dataset.empty());
  if (!train.empty() && (!has_own || std::filesystem::exists(train)))
    take(config, PackReader::open(train)->attributes(), train, true);
  if (!eval.empty()) take(config, PackReader::open(eval)->attributes(), eval, false);
  if (!train.empty() || !eval.empty()) config.validate();
}

}  // namespace qft::pack
