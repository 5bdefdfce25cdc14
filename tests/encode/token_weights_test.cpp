// Token weights: loss_scale compared with ms-swift on the same texts (golden/loss_scale.jsonl, by make_loss_scale_goldens.py),
// and weights from records.
#include "qft/encode/token_weights.h"

#include <fstream>

#include "fixture.h"
#include "test_paths.h"

namespace {

using nlohmann::json;
using qft::ConfigError;
using qft::Error;
using qft::encode::TokenWeights;
using qft::encode::WeightedText;
using qft::test::expect_error;
using qft::test::SmallRun;

using Runs = std::vector<std::pair<std::string, float>>;

void append(Runs& runs, const std::string& text, float weight) {
  if (!runs.empty() && runs.back().second == weight)
    runs.back().first += text;
  else if (!text.empty())
    runs.emplace_back(text, weight);
}

/// Returns a sequence as runs of equal weight; 0 is not learned.
Runs runs_of(const SmallRun& run, const qft::encode::EncodedSequence& sequence) {
  Runs runs;
  const auto text = [&](std::int32_t begin, std::int32_t end) {
    return run.text({sequence.ids.begin() + begin, sequence.ids.begin() + end});
  };
  std::int32_t at = 0;
  for (std::size_t s = 0; s < sequence.label_spans.size(); ++s) {
    const qft::encode::Span& span = sequence.label_spans[s];
    append(runs, text(at, span.begin), 0);
    append(runs, text(span.begin, span.end), sequence.span_weights.empty() ? 1 : sequence.span_weights[s]);
    at = span.end;
  }
  append(runs, text(at, static_cast<std::int32_t>(sequence.ids.size())), 0);
  return runs;
}

/// A run over records with messages, with a loss_scale.
struct WeighedRun : SmallRun {
  void set(const std::string& loss_scale) {
    const auto [base, schemes] = qft::config::parse_loss_scale(loss_scale);
    config.data.loss_scale = loss_scale;
    config.data.mask_history = base == "last_round";
    config.data.train_on_prompt = base == "all";
  }
  Runs encode_messages(const json& messages, const json& more = json::object()) {
    config.data.dataset.clear();
    json record = more;
    record["messages"] = messages;
    folder.write("m.jsonl", record.dump() + "\n");
    config.data.dataset = {(folder.path() / "m.jsonl").string()};
    return runs_of(*this, SmallRun::encode().items.at(0).sequences.at(0));
  }
};

std::vector<json> goldens() {
  std::ifstream file(std::filesystem::path(qft::test::kSourceDir) / "tests/encode/weights/loss_scale.jsonl");
  std::vector<json> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(json::parse(line));
  return lines;
}

TEST(LossScale, SplitsTextsAsSwiftDoes) {
  int cases = 0;
  for (const json& line : goldens()) {
    if (!line.contains("text")) continue;
    const std::string text = line["text"], question = line["question"];
    Runs runs;
    for (const WeightedText& part : TokenWeights(line["loss_scale"].get<std::string>()).split(text, question))
      append(runs, std::string(part.text), part.weight);
    EXPECT_EQ(runs, line["parts"].get<Runs>()) << line.dump();
    ++cases;
  }
  EXPECT_GT(cases, 500);
}

/// Only ms-swift learns the marks after an unlearned answer if the answer is the last or prompts are learned; the goldens have
/// no such case.
TEST(LossScale, WeighsConversationsAsSwiftDoes) {
  WeighedRun run;
  int cases = 0;
  for (const json& line : goldens()) {
    if (!line.contains("messages")) continue;
    run.set(line["loss_scale"]);
    EXPECT_EQ(run.encode_messages(line["messages"]), line["runs"].get<Runs>()) << line.dump();
    ++cases;
  }
  EXPECT_GT(cases, 100);
}

TEST(LossScale, NamesItsSchemes) {
  expect_error<ConfigError>([] { TokenWeights("herms"); }, {"loss_scale: 'herms' is not a scheme", "did you mean 'hermes'"});
  expect_error<ConfigError>([] { TokenWeights("hermes+xyzzy"); }, {"'xyzzy'", "react", "ignore_empty_think"});
  EXPECT_TRUE(TokenWeights("").empty());
}

const json kTalk = {{{"role", "user"}, {"content", "Why?"}},
                    {{"role", "assistant"}, {"content", "First."}},
                    {{"role", "user"}, {"content", "How?"}},
                    {{"role", "assistant"}, {"content", "Then."}}};

json with(std::size_t message, const char* key, const json& value) {
  json talk = kTalk;
  talk[message][key] = value;
  return talk;
}

float weight_of(const Runs& runs, const std::string& text) {
  for (const auto& [words, weight] : runs)
    if (words.find(text) != words.npos) return weight;
  return -1;
}

TEST(RecordWeights, OfMessagesSayWhatIsLearned) {
  WeighedRun run;
  for (const char* key : {"loss", "train", "training"})
    EXPECT_EQ(weight_of(run.encode_messages(with(1, key, false)), "First."), 0) << key;
  for (const char* key : {"loss_scale", "weight"}) {
    EXPECT_EQ(weight_of(run.encode_messages(with(1, key, 2.5)), "First."), 2.5F) << key;
    EXPECT_EQ(weight_of(run.encode_messages(with(3, key, 0)), "Then."), 0) << key;
  }
  EXPECT_EQ(run.encode_messages(with(1, "loss", nullptr)), run.encode_messages(kTalk));
  run.set("last_round");
  EXPECT_EQ(weight_of(run.encode_messages(with(1, "loss", true)), "First."), 1);
  EXPECT_EQ(run.encode_messages(with(3, "loss", false)).size(), 1U) << "its end is not learned either";
}

TEST(RecordWeights, OfRecordsMultiply) {
  WeighedRun run;
  for (const char* key : {"loss_scale", "weight"}) {
    const Runs runs = run.encode_messages(with(1, "weight", 3), {{key, 0.5}});
    EXPECT_EQ(weight_of(runs, "First."), 1.5F) << key;
    EXPECT_EQ(weight_of(runs, "Then."), 0.5F) << key;
  }
  run.config.data.dataset.clear();
  run.add("named", "n.json", R"([{"instruction": "q", "output": "a", "w": 2}, {"instruction": "q", "output": "a"}])",
          {{"columns", {{"prompt", "instruction"}, {"response", "output"}, {"weight", "w"}}}});
  const auto items = run.encode().items;
  EXPECT_EQ(items.at(0).sequences[0].span_weights, std::vector<float>{2});
  EXPECT_TRUE(items.at(1).sequences[0].span_weights.empty());
}

TEST(RecordWeights, ThatContradictEachOtherOrDoNothingAreErrors) {
  WeighedRun run;
  const auto refuses = [&](const json& talk, std::vector<std::string> parts) {
    parts.push_back("m.jsonl:1");
    expect_error<Error>([&] { run.encode_messages(talk); }, parts);
  };
  json both = with(1, "loss", true);
  both[1]["train"] = false;
  refuses(both, {"message 2: train is false, but loss is true"});
  both = with(1, "weight", 2);
  both[1]["loss_scale"] = 1;
  refuses(both, {"message 2: weight is 2, but loss_scale is 1"});
  both[1].erase("loss_scale");
  both[1]["loss"] = false;
  refuses(both, {"message 2: loss is false, but weight is 2"});
  refuses(with(1, "loss", 0.5), {"message 2: loss: expected true or false", "use loss_scale or weight"});
  refuses(with(1, "weight", -1), {"message 2: weight: expected a label weight of at least 0"});
  refuses(with(1, "weight", "x"), {"message 2: weight: expected a label weight of at least 0"});
  refuses(with(0, "loss", true), {"question 1 has a weight (loss, train, loss_scale or weight)"});
  refuses(with(1, "train_detail", json::array({1})), {"train_detail"});
  EXPECT_NO_THROW(run.encode_messages(with(0, "loss", false)));
  run.set("all");
  refuses(with(0, "loss", false), {"question 1 has a weight (loss, train, loss_scale or weight)"});
}

/// A stage may learn conversations by a loss that has no place for weights.
TEST(RecordWeights, AreErrorsInAStageThatDoesNotWeighLabels) {
  using qft::encode::Role;
  WeighedRun run;
  run.add("one", "one.json", R"([{"instruction": "q", "output": "a"}])");
  const auto corpus = run.open();
  qft::encode::EncoderOptions options;
  options.weighs_labels = false;
  const qft::encode::Encoder encoder(corpus->chat_template(), options);
  qft::encode::Conversation plain;
  plain.prompt = {
      {.role = Role::user, .text = "Why?", .loss = false}, {.role = Role::assistant, .text = "First."}, {.text = "How?"}};
  plain.responses = {{.role = Role::assistant, .text = "Then.", .loss = true}};
  EXPECT_NO_THROW(encoder.encode(plain)) << "the loss of sft without weights";
  const auto refuses = [&](auto&& change) {
    qft::encode::Conversation weighed = plain;
    change(weighed);
    expect_error<Error>([&] { encoder.encode(weighed); }, {"label weights", "only stage sft uses"});
  };
  refuses([](auto& c) { c.weight = 2; });
  refuses([](auto& c) { c.prompt[1].loss = false; });
  refuses([](auto& c) { c.prompt[1].weight = 0.5F; });
  refuses([](auto& c) { c.responses[0].loss = false; });
  refuses([](auto& c) { c.responses[0].weight = 2; });
}

}  // namespace
