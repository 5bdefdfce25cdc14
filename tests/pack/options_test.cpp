// A pack and a run that names it: keys given in the run must match the pack, other keys are taken from the pack.
#include "qft/pack/options.h"

#include "qft/pack/inputs.h"
#include "qft/pack/reader.h"

#include <functional>

#include "encode/fixture.h"
#include "test_paths.h"

namespace {

using nlohmann::json;
using qft::ConfigError;
using qft::config::Purpose;
using qft::config::RunConfig;
using qft::pack::PackAttributes;
using qft::pack::take_pack_options;
using qft::test::expect_error;
using qft::test::SmallRun;

constexpr const char* kRecords = R"([{"instruction": "q", "input": "", "output": "a"}])";
constexpr const char* kText = "one two three\nfour five\n";

struct ReasoningRun : SmallRun {
  ReasoningRun() {
    add("d", "d.json", kRecords);
    config.data.template_name = "qwen3";
  }
  PackAttributes attributes() { return open()->attributes(); }
};

// Returns the run after `set` gave `key` in its file.
RunConfig with(RunConfig config, const std::string& key, const std::function<void(RunConfig&)>& set) {
  set(config);
  config.given[key] = "run.yaml:7";
  return config;
}

struct Case {
  std::string key;
  std::function<void(RunConfig&)> set;
  std::vector<std::string> words;  // in the error if the pack was made without the key
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {"stage", [](RunConfig& c) { c.finetuning.stage = "kto"; }, {"stage is kto, sft in the pack"}},
      {"template", [](RunConfig& c) { c.data.template_name = "chatml"; }, {"template is chatml, qwen3 in the pack"}},
      {"default_system",
       [](RunConfig& c) { c.data.default_system = "Be brief."; },
       {"default_system is Be brief., the template's own in the pack"}},
      {"tool_format",
       [](RunConfig& c) { c.data.tool_format = "llama3"; },
       {"tool_format is llama3, the template's own in the pack"}},
      {"enable_thinking", [](RunConfig& c) { c.data.enable_thinking = false; }, {"enable_thinking is false, true in the pack"}},
      {"enable_thinking", [](RunConfig& c) { c.data.enable_thinking.reset(); }, {"enable_thinking is null, true in the pack"}},
      {"preserve_thinking",
       [](RunConfig& c) { c.data.preserve_thinking = true; },
       {"preserve_thinking is true, false in the pack"}},
      {"cutoff_len", [](RunConfig& c) { c.data.cutoff_len = 64; }, {"cutoff_len is 64, 2048 in the pack"}},
      {"train_on_prompt", [](RunConfig& c) { c.data.train_on_prompt = true; }, {"train_on_prompt is true, false in the pack"}},
      {"mask_history", [](RunConfig& c) { c.data.mask_history = true; }, {"mask_history is true, false in the pack"}},
      {"loss_scale", [](RunConfig& c) { c.data.loss_scale = "default+react"; }, {"loss_scale is react, not set in the pack"}},
      {"max_samples", [](RunConfig& c) { c.data.max_samples = 1; }, {"max_samples is 1, not set in the pack"}},
      {"dataset", [](RunConfig& c) { c.data.dataset = {"d", "e"}; }, {"dataset is [\"d\",\"e\"], [\"d\"] in the pack"}},
      {"dataset", [](RunConfig& c) { c.data.dataset = {"d#1"}; }, {"dataset is [\"d#1\"], [\"d\"] in the pack"}},
      {"mix_strategy",
       [](RunConfig& c) { c.data.mix_strategy = "interleave_over"; },
       {"mix_strategy is interleave_over, concat in the pack"}},
      {"interleave_probs", [](RunConfig& c) { c.data.interleave_probs = {1.0}; }, {"interleave_probs is [1.0], [] in the pack"}},
  };
  return all;
}

TEST(PackOptions, EveryGivenKeyMustBeThePacks) {
  ReasoningRun run;
  const PackAttributes pack = run.attributes();
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.key);
    std::vector<std::string> words = c.words;
    words.insert(words.end(), {"pack 'p.h5' was made with other options: run.yaml:7: ", "Leave a key out", "qft-pack"});
    expect_error<ConfigError>(
        [&] {
          RunConfig config = with(run.config, c.key, c.set);
          take_pack_options(config, pack, "p.h5");
        },
        words);
  }
}

TEST(PackOptions, AllDifferencesStandInOneError) {
  ReasoningRun run;
  const PackAttributes pack = run.attributes();
  RunConfig config = with(run.config, "cutoff_len", [](RunConfig& c) { c.data.cutoff_len = 9; });
  config = with(config, "mask_history", [](RunConfig& c) { c.data.mask_history = true; });
  expect_error<ConfigError>([&] { take_pack_options(config, pack, "p.h5"); },
                            {"cutoff_len is 9, 2048", "; run.yaml:7: mask_history is true, false"});
}

TEST(PackOptions, ARunThatGivesNoneTakesThePacks) {
  for (const Case& c : cases()) {
    if (c.key == "dataset" || c.key == "interleave_probs" || c.key == "mix_strategy" || c.key == "stage") continue;
    SCOPED_TRACE(c.key);
    ReasoningRun made, taking;
    made.config = with(made.config, c.key, c.set);
    const PackAttributes pack = made.attributes();
    taking.config.data.template_name.clear();
    taking.config.data.dataset.clear();
    take_pack_options(taking.config, pack, "p.h5");
    ASSERT_EQ(taking.config.notes.size(), 1u);
    EXPECT_NE(taking.config.notes[0].find("taken from pack 'p.h5': "), std::string::npos);
    // The run would now make the same pack.
    taking.config.data.dataset = {"d"};
    taking.config.data.max_samples = made.config.data.max_samples;
    const PackAttributes again = taking.attributes();
    EXPECT_EQ(again.template_hash, pack.template_hash);
    EXPECT_EQ(again.cutoff_len, pack.cutoff_len);
    EXPECT_EQ(again.options, pack.options);
    EXPECT_EQ(again.template_options, pack.template_options);
  }
}

TEST(PackOptions, WhatMakesTheSameTokensIsNoDifference) {
  ReasoningRun run;
  const PackAttributes pack = run.attributes();
  RunConfig config = with(run.config, "default_system", [](RunConfig& c) { c.data.default_system.clear(); });
  EXPECT_NO_THROW(take_pack_options(config, pack, "p.h5"));
  run.config.data.template_name = "qwen";  // no reasoning: the keys for thoughts have no effect
  config = with(run.config, "enable_thinking", [](RunConfig& c) { c.data.enable_thinking = false; });
  EXPECT_NO_THROW(take_pack_options(config, run.attributes(), "p.h5"));
}

TEST(PackOptions, DocumentsAreInBlocksOrWhole) {
  const auto documents = [](std::optional<bool> packing) {
    auto run = std::make_unique<SmallRun>();
    run->add("t", "t.txt", kText, {{"columns", {{"prompt", "text"}}}});
    run->config.finetuning.stage = "pt";
    run->config.data.cutoff_len = 4;
    run->config.data.packing = packing;
    if (packing) run->config.given["packing"] = "run.yaml:7";
    return run;
  };
  const auto by_default = documents(std::nullopt), apart = documents(false), joined = documents(true);
  expect_error<ConfigError>([&] { take_pack_options(apart->config, by_default->open()->attributes(), "p.h5"); },
                            {"packing is false, blocks of 4 tokens in the pack"});
  expect_error<ConfigError>([&] { take_pack_options(joined->config, by_default->open()->attributes(), "p.h5"); },
                            {"packing is blocks of 3 tokens, blocks of 4 tokens in the pack"});
  for (const auto* made : {apart.get(), joined.get()}) {
    auto taking = documents(std::nullopt);
    take_pack_options(taking->config, const_cast<SmallRun*>(made)->open()->attributes(), "p.h5");
    EXPECT_EQ(taking->open()->attributes().options, const_cast<SmallRun*>(made)->open()->attributes().options);
  }
}

TEST(PackOptions, OlderPacksAreHeldAgainstWhatTheyRecord) {
  const std::filesystem::path old = std::filesystem::path(qft::test::kSourceDir) / "tests/fuzz/corpus/pack/sft";
  const auto pack = qft::pack::PackReader::open(old);
  EXPECT_TRUE(pack->attributes().template_options.empty());
  RunConfig config;
  take_pack_options(config, pack->attributes(), old);
  EXPECT_EQ(config.data.template_name, "empty");
  expect_error<ConfigError>(
      [&] {
        RunConfig other = with(RunConfig(), "train_on_prompt", [](RunConfig& c) { c.data.train_on_prompt = true; });
        take_pack_options(other, pack->attributes(), old);
      },
      {"train_on_prompt is true, false in the pack"});
}

TEST(PackOptions, AnEvaluationPackSaysNothingOfTheRecordsToTrainOn) {
  const std::string old = qft::test::kSourceDir + "/tests/fuzz/corpus/pack/sft";
  RunConfig config = with(RunConfig(), "max_samples", [](RunConfig& c) { c.data.max_samples = 3; });
  config.data.eval_pack = old;
  take_pack_options(config, Purpose::eval);
  EXPECT_EQ(config.data.template_name, "empty");
  config.data.pack = old;
  expect_error<ConfigError>([&] { take_pack_options(config, Purpose::train); }, {"max_samples is 3, not set in the pack"});
  // An evaluation with its own data does not need the training pack.
  config.data.pack = "/nowhere/train.h5";
  take_pack_options(config, Purpose::eval);
  EXPECT_THROW(take_pack_options(config, Purpose::train), qft::Error);
}

TEST(PackInputs, OfAResumeThatAreOthersAreToldByDatasetAndFile) {
  SmallRun run;
  const auto record = [](const std::string& answer) {
    return R"([{"instruction": "q", "input": "", "output": ")" + answer + "\"}]";
  };
  run.add("d", "d.json", record("a"));
  run.add("e", "e.json", record("a"));
  const PackAttributes made = run.open()->attributes();
  const json position = {{"pack", made.fingerprint()}, {"made_of", qft::pack::described_inputs(made)}};
  qft::pack::require_same_pack(position, made);
  const auto refusal = [&](const json& saved, const std::vector<std::string>& parts) {
    expect_error<ConfigError>([&] { qft::pack::require_same_pack(saved, run.open()->attributes()); }, parts);
  };
  run.folder.write("d.json", record(std::string(2000, 'b')));
  refusal(position, {"dataset 'd': d.json has changed (was 50 bytes, now 2,049); set it back, or start a new run"});
  json earlier = position;  // from a version without files
  for (json& source : earlier["made_of"]["sources"]) source.erase("files");
  refusal(earlier, {"dataset 'd': its files have changed; set it back"});
  run.folder.write("d.json", record("b"));
  refusal(position, {"dataset 'd': d.json has changed (50 bytes, as before)"});
  run.folder.write("d.json", record("a"));
  run.info["d"]["num_samples"] = 7;
  refusal(position, {"dataset 'd' is described differently in dataset_info.json: num_samples null -> 7"});
  run.info["d"].erase("num_samples");
  run.config.data.dataset = {"d"};
  refusal(position, {"dataset 'e' is no longer there"});
  run.config.data.dataset = {"d", "e"};
  run.config.data.cutoff_len = 64;
  refusal(position, {"cutoff_len 2048 -> 64; set it back"});
}

}  // namespace
