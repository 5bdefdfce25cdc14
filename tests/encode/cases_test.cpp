// Compares with LLaMA-Factory on small generated datasets, in every template, stage and mixing option: cases.jsonl, one case
// per line, written by LLaMA-Factory's own code with the fixture's byte tokenizer.
#include <fstream>
#include <map>
#include <utility>

#include "fixture.h"
#include "test_paths.h"

namespace {

using nlohmann::json;
using qft::test::SmallRun;

std::vector<json> cases() {
  std::ifstream file(std::string(qft::test::kSourceDir) + "/tests/encode/cases.jsonl");
  std::vector<json> all;
  for (std::string line; std::getline(file, line);) all.push_back(json::parse(line));
  return all;
}

void apply(const json& options, qft::config::RunConfig& config) {
  for (const auto& [key, value] : options.items()) {
    config.given[key] = "the case";
    if (key == "template")
      config.data.template_name = value;
    else if (key == "stage")
      config.finetuning.stage = value;
    else if (key == "dataset")
      config.data.dataset = value.get<std::vector<std::string>>();
    else if (key == "cutoff_len")
      config.data.cutoff_len = value;
    else if (key == "mask_history")
      config.data.mask_history = value;
    else if (key == "train_on_prompt")
      config.data.train_on_prompt = value;
    else if (key == "enable_thinking")
      config.data.enable_thinking = value.is_null() ? std::nullopt : std::optional<bool>(value);
    else if (key == "preserve_thinking")
      config.data.preserve_thinking = value;
    else if (key == "default_system")
      config.data.default_system = value;
    else if (key == "tool_format")
      config.data.tool_format = value;
    else if (key == "preprocessing_batch_size")
      config.data.preprocessing_batch_size = value;
    else if (key == "max_samples")
      config.data.max_samples = value.get<std::int64_t>();
    else if (key == "packing")
      config.data.packing = value.get<bool>();
    else if (key == "mix_strategy")
      config.data.mix_strategy = value;
    else if (key == "interleave_probs")
      config.data.interleave_probs = value.get<std::vector<double>>();
    else if (key == "seed")
      config.training.seed = value;
    else
      ADD_FAILURE() << "a case with the unknown option " << key;
  }
}

json to_json(const qft::encode::EncodedSequence& sequence) {
  json spans = json::array();
  for (const qft::encode::Span& span : sequence.label_spans) spans.push_back({span.begin, span.end});
  return {{"ids", sequence.ids}, {"label_spans", spans}};
}

json to_json(const qft::encode::EncodedItem& item, const std::string& stage) {
  if (stage == "rm") return {{"chosen", to_json(item.sequences.at(0))}, {"rejected", to_json(item.sequences.at(1))}};
  json result = to_json(item.sequences.at(0));
  if (stage == "pt") result.erase("label_spans");
  if (stage == "kto") {
    result["kl"] = to_json(item.sequences.at(1));
    EXPECT_EQ(item.tags.back().first, qft::encode::kFeedbackTag);
    result["kto_tag"] = item.tags.back().second == "true";
  }
  return result;
}

// Cases and items in which qft departs from LLaMA-Factory, with the reason (docs/data.md).
constexpr std::string_view kEmpty = "an empty answer is not learned";
constexpr std::string_view kNoTools = "tools: [] is no system message";
constexpr std::string_view kBeforeCalls = "a line end stands between a text and the calls behind it";
constexpr std::string_view kThoughts = "blanks around a thought are those of the model, and any thought is removed";
const std::map<std::pair<std::size_t, std::size_t>, std::string_view> kDepartures = {
    {{0, 0}, kEmpty},        {{2, 0}, kNoTools},      {{5, 0}, kBeforeCalls}, {{7, 0}, kThoughts},     {{7, 1}, kEmpty},
    {{9, 0}, kThoughts},     {{11, 0}, kThoughts},    {{11, 1}, kThoughts},   {{12, 0}, kEmpty},       {{12, 1}, kEmpty},
    {{13, 1}, kBeforeCalls}, {{14, 1}, kBeforeCalls}, {{16, 1}, kEmpty},      {{17, 1}, kEmpty},       {{18, 2}, kEmpty},
    {{20, 0}, kEmpty},       {{20, 2}, kEmpty},       {{26, 0}, kNoTools},    {{28, 0}, kBeforeCalls}, {{28, 2}, kBeforeCalls},
    {{31, 1}, kBeforeCalls}, {{32, 1}, kBeforeCalls}, {{34, 1}, kEmpty},      {{35, 2}, kEmpty},       {{36, 2}, kEmpty},
    {{40, 3}, kBeforeCalls}};

TEST(Cases, AreEncodedAsLlamaFactoryDoes) {
  const std::vector<json> all = cases();
  ASSERT_GT(all.size(), 30u);
  std::size_t number = 0;
  for (const json& one : all) {
    SCOPED_TRACE(one["options"].dump());
    SmallRun run;
    for (const auto& [name, text] : one["files"].items()) run.folder.write(name, text.get<std::string>());
    run.info = one["info"];
    apply(one["options"], run.config);
    const auto encoded = run.encode();
    const std::string stage = one["options"]["stage"];
    const auto expected = qft::test::without_empty_answers(
        one["expected"].get<std::vector<json>>(), encoded,
        [&](const qft::encode::EncodedItem& item, const json& line) { return to_json(item, stage) == line; });
    ASSERT_EQ(encoded.items.size(), expected.size());
    for (std::size_t i = 0; i < encoded.items.size(); ++i) {
      const bool departs = kDepartures.contains({number, i});
      EXPECT_EQ(to_json(encoded.items[i], stage) != expected[i], departs) << "case " << number << ", item " << i;
    }
    ++number;
  }
}

}  // namespace
