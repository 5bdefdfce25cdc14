#include "prompts.h"

#include "qft/core/activity.h"
#include "qft/core/error.h"
#include "qft/core/hash.h"
#include "qft/core/json.h"
#include "qft/core/python_json.h"
#include "qft/encode/dataset_info.h"
#include "qft/encode/dataset_keys.h"
#include "qft/encode/record_converter.h"
#include "qft/encode/record_source.h"
#include "qft/engine/token_rows.h"
#include "qft/infer/generator.h"
#include "qft/io/storage.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <string_view>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <variant>

namespace qft::eval {
namespace {

namespace fs = std::filesystem;

/// A copy of the piped input in a new folder under the system's temporary folder: .json if it begins with { or [, else .txt. The
/// destructor removes both.
class PipedFile {
 public:
  static constexpr std::string_view kName = "standard input";

  /// Reads standard input to its end. Throws ConfigError if it is a terminal or empty, Error if the copy cannot be written.
  PipedFile();
  ~PipedFile();
  PipedFile(const PipedFile&) = delete;
  PipedFile& operator=(const PipedFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// Returns `message` with the copy's path replaced by kName.
  std::string named(std::string message) const;

 private:
  std::filesystem::path path_;
};

PipedFile::PipedFile() {
  if (isatty(STDIN_FILENO) != 0) fail_config("--input is -, but nothing is piped in: cat prompts.jsonl | qft generate ...");
  const std::string bytes(std::istreambuf_iterator<char>(std::cin), {});
  const std::size_t first = bytes.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) fail_config("--input is -, but standard input is empty: pipe records or lines in");
  std::string folder = (fs::temp_directory_path() / "qft-XXXXXX").string();
  require(mkdtemp(folder.data()) != nullptr, "cannot make a folder in '{}' for standard input: set TMPDIR",
          fs::temp_directory_path().string());
  path_ = fs::path(folder) / (bytes[first] == '{' || bytes[first] == '[' ? "input.json" : "input.txt");
  io::write_file(io::posix_storage(), path_, bytes);
}

PipedFile::~PipedFile() {
  std::error_code ignored;
  fs::remove_all(path_.parent_path(), ignored);
}

std::string PipedFile::named(std::string message) const {
  const std::string copy = path_.string();
  for (std::size_t at = message.find(copy); at != message.npos; at = message.find(copy, at + kName.size()))
    message.replace(at, copy.size(), kName);
  return message;
}

/// Returns how to read `input`.
encode::DatasetSpec spec_of(const std::string& input, const config::RunConfig& config) {
  auto specs = encode::load_dataset_info(config.folder_of(config.data.dataset_dir), std::array{input}, config.folders,
                                         config.finetuning.stage);
  encode::DatasetSpec& spec = specs.front();
  if (spec.num_samples)
    fail_config("--input '{}' requests {} samples drawn by the seed, but qft generate answers every record: name the file itself",
                input, *spec.num_samples);
  return std::move(spec);
}

/// Throws ConfigError if the file lacks a column that `spec` needs for the prompt.
void require_prompt_columns(encode::DatasetSpec spec, const encode::RecordSource& source) {
  encode::ColumnNames& c = spec.columns;
  spec.ranking = false;
  for (std::string* of_answers : {&c.response, &c.chosen, &c.rejected, &c.kto_tag, &c.label, &c.category, &c.weight})
    of_answers->clear();
  c.tags.clear();
  encode::require_keys(spec, source);
}

/// Returns the record's own answer (the chosen one of a pair): unchanged if it is plain text; as the template writes it if it has
/// thoughts or calls. Empty if the record has no answer, or an undesirable one.
std::string label_of(const encode::Conversation& conversation, std::size_t answers, const encode::ChatTemplate& chat,
                     bool skip_special) {
  if (conversation.responses.size() != answers || !conversation.desirable.value_or(true)) return "";
  const encode::Message& answer = conversation.responses.front();
  if (answer.calls.empty() && !answer.thought) return answer.text;
  return replace_invalid_utf8(chat.tokenizer().decode(chat.encode_answer(conversation, answer).target, skip_special));
}

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == text.npos;
}

/// Restores the numbers that the record parser holds as marked texts: integers as JSON numbers, the others as texts, because a
/// JSON reader would lose digits.
void write_numbers(nlohmann::ordered_json& value) {
  if (value.is_structured())
    for (auto& member : value) write_numbers(member);
  if (!value.is_string() || !is_quoted_number(value.get_ref<const std::string&>())) return;
  const std::string word = value.get_ref<const std::string&>().substr(1);
  auto number = nlohmann::ordered_json::parse(word, nullptr, /*allow_exceptions=*/false);
  value = number.is_number_integer() ? std::move(number) : nlohmann::ordered_json(word);
}

/// Reads records one after another.
class PromptReader {
 public:
  PromptReader(const encode::DatasetSpec& spec, const encode::RecordSource& source, const encode::ChatTemplate& chat,
               const config::RunConfig& config, const model::ModelConfig& model)
      : is_text_(source.is_text()),
        answers_(spec.ranking ? 2 : 1),
        chat_(chat),
        config_(config),
        model_(model),
        cursor_(source),
        converter_(spec, source.is_text(), encode::Ending::any) {}

  Prompt read(std::int64_t number) {
    const encode::RecordText record = cursor_.at(number);
    Prompt prompt;
    prompt.blank = is_text_ && is_blank(record.text);
    if (prompt.blank) return prompt;
    try {
      if (!is_text_) prompt.id = id_of(record.text);
      auto converted = converter_.convert(record);
      if (const auto* drop = std::get_if<encode::Drop>(&converted))
        fail("{}{}{}", encode::describe(drop->reason), drop->detail.empty() ? "" : ": ", drop->detail);
      render(std::get<encode::Conversation>(converted), prompt);
    } catch (const Error& error) {
      prompt.error = replace_invalid_utf8(fmt::format("{}: {}", record.where(), error.what()));
      prompt.tokens.clear();
    }
    return prompt;
  }

 private:
  std::string id_of(std::string_view text) {
    simdjson::dom::element element;
    if (converter_.parse(text)["id"].get(element) != simdjson::SUCCESS) return {};
    auto id = nlohmann::ordered_json::parse(simdjson::minify(element));
    write_numbers(id);
    return id.dump();
  }

  void render(encode::Conversation conversation, Prompt& prompt) const {
    const encode::Message& question = conversation.prompt.back();
    if (question.role == encode::Role::user && is_blank(question.text)) fail("there is no prompt: the question's text is empty");
    if (conversation.system.empty() && !conversation.has_system) conversation.system = config_.generate.system;
    prompt.tokens = chat_.render_prompt(conversation);
    prompt.label = label_of(conversation, answers_, chat_, config_.generate.skip_special_tokens);
    engine::require_token_rows(chat_.tokenizer(), prompt.tokens, config_.model.model_name_or_path, model_.vocab_size);
    const auto limit = infer::answer_limit(config_.generate, model_.max_position_embeddings, std::ssize(prompt.tokens));
    prompt.max_new_tokens = limit.tokens;
    prompt.shortened = limit.shortened;
  }

  bool is_text_;
  std::size_t answers_;  ///< per record
  const encode::ChatTemplate& chat_;
  const config::RunConfig& config_;
  const model::ModelConfig& model_;
  encode::RecordCursor cursor_;
  encode::RecordConverter converter_;
};

/// Uses the fixed date of packs: the same as in training, and the same prompts when a stopped run resumes on another day.
encode::ChatTemplate template_of(const encode::DatasetSpec& spec, const config::RunConfig& config) {
  const auto of_dataset = spec.template_name.empty() ? config : encode::with_template(config, spec.template_name);
  return encode::ChatTemplate::from_config(of_dataset, tokenizer::Tokenizer::load(config.tokenizer_path()), /*fixed_date=*/true);
}

Prompts prompts_of(const std::string& input, const config::RunConfig& config, const model::ModelConfig& model) {
  const encode::DatasetSpec spec = spec_of(input, config);
  const auto source = encode::RecordSource::open(spec.files);
  require_prompt_columns(spec, *source);
  Prompts prompts{.all = {}, .hash = {}, .stop_ids = {}, .chat = template_of(spec, config)};
  prompts.stop_ids = infer::stop_tokens(prompts.chat.stop_token_ids(), prompts.chat.tokenizer(), model);
  PromptReader reader(spec, *source, prompts.chat, config, model);
  Hasher hasher;
  hasher.update(source->hash());
  for (const encode::RecordRange& part : spec.split.ranges(source->size()))
    for (std::int64_t i = part.from; i < part.to; ++i) {
      const Prompt& prompt = prompts.all.emplace_back(reader.read(i));
      hasher.update(fmt::format("{}:", prompt.tokens.size()));
      hasher.update(prompt.tokens.data(), prompt.tokens.size() * sizeof(std::int32_t));
      activity::tick();
    }
  prompts.hash = hasher.hex();
  const std::int64_t errors = prompts.errors(), records = std::ssize(prompts.all) - prompts.blanks();
  if (records == 0) fail_config("'{}' has no prompt: all its lines are blank", input);
  if (errors == records)
    fail_config("none of the {} records in '{}' can be answered; the first error: {}", records, input, prompts.first_error());
  return prompts;
}

}  // namespace

std::int64_t Prompts::blanks() const {
  return std::ranges::count_if(all, &Prompt::blank);
}

std::int64_t Prompts::errors() const {
  return std::ranges::count_if(all, [](const Prompt& p) { return !p.error.empty(); });
}

std::string Prompts::first_error() const {
  const auto first = std::ranges::find_if(all, [](const Prompt& p) { return !p.error.empty(); });
  return first == all.end() ? std::string() : first->error;
}

Prompts read_prompts(const std::string& input, const config::RunConfig& config, const model::ModelConfig& model) {
  if (input != "-") return prompts_of(input, config, model);
  const PipedFile piped;
  const std::string name(PipedFile::kName);
  config::RunConfig with_copy = config;
  with_copy.folders[name] = piped.path().string();
  try {
    Prompts prompts = prompts_of(name, with_copy, model);
    for (Prompt& prompt : prompts.all) prompt.error = piped.named(std::move(prompt.error));
    return prompts;
  } catch (const ConfigError& error) {
    throw ConfigError(piped.named(error.what()));
  } catch (const Error& error) {
    throw Error(piped.named(error.what()));
  }
}

}  // namespace qft::eval
