// Token for token what LLaMA-Factory makes of the same data: every golden file beside the checkout.
#include <zlib.h>

#include "encode_fixture.h"
#include "test_paths.h"
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace {

using nlohmann::json;
namespace fs = std::filesystem;

std::vector<json> read_gzip_lines(const fs::path& path) {
  std::string text;
  gzFile file = gzopen(path.c_str(), "rb");
  char buffer[1 << 16];
  for (int n; (n = gzread(file, buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<std::size_t>(n));
  gzclose(file);
  std::vector<json> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(json::parse(line));
  return lines;
}

// The run that a golden's first line describes.
qft::config::RunConfig config_of(const json& header, const fs::path& shared) {
  qft::config::RunConfig config;
  config.data.dataset_dir = (shared / "data").string();
  config.data.dataset = {header["dataset"].get<std::string>()};
  config.data.template_name = header["template"];
  config.model.model_name_or_path = (shared / "tokenizers" / header["tokenizer"].get<std::string>()).string();
  const std::string stage = header["stage"];
  config.finetuning.stage = stage == "rm" ? "dpo" : stage;
  config.data.cutoff_len = header.value("cut", 2048);
  config.data.train_on_prompt = header.value("train_on_prompt", false);
  config.data.mask_history = header.value("mask_history", false);
  if (header.contains("packing")) {
    config.data.packing = header["packing"].get<bool>();
    config.given["packing"] = "the golden's first line";
  }
  return config;
}

json to_json(const qft::data::EncodedSequence& sequence, bool with_spans) {
  json result = {{"ids", sequence.ids}};
  if (!with_spans) return result;
  result["label_spans"] = json::array();
  for (const qft::data::Span& span : sequence.label_spans)
    result["label_spans"].push_back({span.begin, span.end});
  return result;
}

json golden_part(const json& line) {
  json result = {{"ids", line["ids"]}};
  if (line.contains("label_spans")) result["label_spans"] = line["label_spans"];
  return result;
}

class Golden : public testing::TestWithParam<std::string> {};

TEST_P(Golden, IsReproducedExactly) {
  const fs::path shared = qft::test::shared_dir();
  if (shared.empty()) GTEST_SKIP() << "no shared test data";
  const std::vector<json> lines = read_gzip_lines(shared / "golden/sft" / GetParam());
  ASSERT_GT(lines.size(), 1u);
  const auto encoded = qft::test::encode_all(config_of(lines[0], shared));
  ASSERT_EQ(encoded.items.size(), lines.size() - 1);
  for (std::size_t i = 0; i < encoded.items.size(); ++i) {
    const json& line = lines[i + 1];
    const auto& sequences = encoded.items[i].sequences;
    if (line.contains("chosen")) {
      ASSERT_EQ(sequences.size(), 2u);
      ASSERT_EQ(to_json(sequences[0], true), golden_part(line["chosen"])) << "item " << i;
      ASSERT_EQ(to_json(sequences[1], true), golden_part(line["rejected"])) << "item " << i;
    } else {
      ASSERT_EQ(sequences.size(), 1u);
      ASSERT_EQ(to_json(sequences[0], line.contains("label_spans")), golden_part(line)) << "item " << i;
    }
  }
}

std::vector<std::string> golden_files() {
  std::vector<std::string> names;
  const fs::path shared = qft::test::shared_dir();
  std::error_code error;
  if (!shared.empty())
    for (const auto& entry : fs::directory_iterator(shared / "golden/sft", error))
      if (entry.path().extension() == ".gz") names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

std::string test_name(const testing::TestParamInfo<std::string>& info) {
  return info.param.substr(0, info.param.find('.'));
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Golden);
INSTANTIATE_TEST_SUITE_P(Sft, Golden, testing::ValuesIn(golden_files()), test_name);

}  // namespace
