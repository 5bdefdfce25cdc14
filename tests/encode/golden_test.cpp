// Compares with LLaMA-Factory's tokens on the same data: the goldens in golden/ (make_goldens.py), and any goldens next to the
// checkout.
#include <algorithm>
#include <map>
#include <sstream>
#include <zlib.h>

#include "fixture.h"
#include "test_paths.h"
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace {

using nlohmann::json;
namespace fs = std::filesystem;

// A folder of goldens, their data, and the tokenizers named in their first lines.
struct GoldenSet {
  fs::path goldens, data;
  fs::path (*tokenizer)(const std::string& name);
  std::string suffix;
};

GoldenSet own_goldens() {
  const fs::path folder = fs::path(qft::test::kSourceDir) / "tests/encode/golden";
  const auto tokenizer = [](const std::string& name) {
    const fs::path source = qft::test::kSourceDir;
    return name == "tiny" ? source / "tests/tokenizer/data/tiny" : source / "models" / name;
  };
  return {folder, folder, tokenizer, ".golden.jsonl"};
}

GoldenSet shared_goldens() {
  const fs::path shared = qft::test::shared_dir();
  return {shared / "golden/sft", shared / "data",
          [](const std::string& name) { return qft::test::shared_dir() / "tokenizers" / name; }, ".jsonl.gz"};
}

// Also reads plain text.
std::vector<json> read_lines(const fs::path& path) {
  std::string text;
  gzFile file = gzopen(path.c_str(), "rb");
  char buffer[1 << 16];
  for (int n; (n = gzread(file, buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<std::size_t>(n));
  gzclose(file);
  std::vector<json> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(json::parse(line));
  return lines;
}

// Returns the run that a golden's first line describes.
qft::config::RunConfig config_of(const json& header, const GoldenSet& set) {
  qft::config::RunConfig config;
  config.data.dataset_dir = set.data.string();
  config.data.dataset = {header["dataset"].get<std::string>()};
  config.data.template_name = header["template"];
  config.model.model_name_or_path = set.tokenizer(header["tokenizer"]).string();
  const std::string stage = header["stage"];
  config.finetuning.stage = stage == "rm" ? "dpo" : stage;
  config.data.cutoff_len = header.value("cutoff_len", header.value("cut", 2048));
  config.data.train_on_prompt = header.value("train_on_prompt", false);
  config.data.mask_history = header.value("mask_history", false);
  config.data.enable_thinking = header.value("enable_thinking", true);
  config.data.default_system = header.value("default_system", "");
  config.data.tool_format = header.value("tool_format", "");
  if (header.contains("packing")) {
    config.data.packing = header["packing"].get<bool>();
    config.given["packing"] = "the golden's first line";
  }
  return config;
}

json to_json(const qft::encode::EncodedSequence& sequence, bool with_spans) {
  json result = {{"ids", sequence.ids}};
  if (!with_spans) return result;
  result["label_spans"] = json::array();
  for (const qft::encode::Span& span : sequence.label_spans) result["label_spans"].push_back({span.begin, span.end});
  return result;
}

json golden_part(const json& line) {
  json result = {{"ids", line["ids"]}};
  if (line.contains("label_spans")) result["label_spans"] = line["label_spans"];
  return result;
}

void expect_reproduced(const GoldenSet& set, const std::string& name) {
  const std::vector<json> lines = read_lines(set.goldens / name);
  ASSERT_GT(lines.size(), 1u);
  const fs::path tokenizer = set.tokenizer(lines[0]["tokenizer"]);
  if (!fs::exists(tokenizer / "tokenizer.json"))
    GTEST_SKIP() << "no " << tokenizer << ": scripts/setup.sh test, then examples/make_smollm2.py";
  const auto encoded = qft::test::encode_all(config_of(lines[0], set));
  const auto as_golden = [](const qft::encode::EncodedItem& item, const json& line) {
    const auto& sequences = item.sequences;
    if (line.contains("chosen"))
      return json{{"chosen", to_json(sequences.at(0), true)}, {"rejected", to_json(sequences.at(1), true)}};
    return to_json(sequences.at(0), line.contains("label_spans"));
  };
  const auto golden = [](const json& line) {
    if (line.contains("chosen"))
      return json{{"chosen", golden_part(line["chosen"])}, {"rejected", golden_part(line["rejected"])}};
    return golden_part(line);
  };
  const auto expected = qft::test::without_empty_answers(
      std::vector<json>(lines.begin() + 1, lines.end()), encoded,
      [&](const qft::encode::EncodedItem& item, const json& line) { return as_golden(item, line) == golden(line); });
  ASSERT_EQ(encoded.items.size(), expected.size());
  for (std::size_t i = 0; i < encoded.items.size(); ++i)
    ASSERT_EQ(as_golden(encoded.items[i], expected[i]), golden(expected[i])) << "item " << i;
}

std::vector<std::string> files_of(const GoldenSet& set) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(set.goldens, error))
    if (entry.path().string().ends_with(set.suffix)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

std::string test_name(const testing::TestParamInfo<std::string>& info) {
  return info.param.substr(0, info.param.find('.'));
}

// A separate suite: without files the parametrised one has no tests, and this one fails.
TEST(Golden, HaveCasesForEveryStage) {
  std::size_t with_tiny_tokenizer = 0;
  std::map<std::string, int> stages;
  for (const std::string& name : files_of(own_goldens())) {
    const json header = read_lines(own_goldens().goldens / name).at(0);
    ++stages[header["stage"]];
    with_tiny_tokenizer += header["tokenizer"] == "tiny";
  }
  EXPECT_GE(with_tiny_tokenizer, 10u);
  for (const char* stage : {"sft", "pt", "rm"}) EXPECT_GE(stages[stage], 2) << stage;
}

class OwnGolden : public testing::TestWithParam<std::string> {};
TEST_P(OwnGolden, IsReproducedExactly) {
  expect_reproduced(own_goldens(), GetParam());
}
INSTANTIATE_TEST_SUITE_P(LlamaFactory, OwnGolden, testing::ValuesIn(files_of(own_goldens())), test_name);

class SharedGolden : public testing::TestWithParam<std::string> {};
TEST_P(SharedGolden, IsReproducedExactly) {
  if (qft::test::shared_dir().empty()) GTEST_SKIP() << "no shared test data";
  expect_reproduced(shared_goldens(), GetParam());
}
std::vector<std::string> shared_files() {
  const auto files = qft::test::shared_dir().empty() ? std::vector<std::string>() : files_of(shared_goldens());
  return files.empty() ? std::vector<std::string>{"none"} : files;  // one test, which is skipped visibly or fails
}
INSTANTIATE_TEST_SUITE_P(LlamaFactory, SharedGolden, testing::ValuesIn(shared_files()), test_name);

}  // namespace
