// Labels of texts in records.
#include "qft/core/error.h"
#include "qft/encode/item.h"
#include "qft/encode/record_converter.h"

#include "fixture.h"

namespace {

using qft::encode::Conversation;
using qft::encode::DatasetSpec;
using qft::encode::Formatting;
using qft::encode::RecordConverter;
using qft::test::expect_error;

using Values = std::vector<double>;

TEST(Labels, AreNumbersListsOrTextsOfThese) {
  const auto values = [](const char* label) { return qft::encode::parse_targets(label); };
  EXPECT_EQ(values("2"), Values{2});
  EXPECT_EQ(values("-0.25"), Values{-0.25});
  EXPECT_EQ(values("True"), Values{1});
  EXPECT_EQ(values("[]"), Values{});
  EXPECT_EQ(values("[0, 2.5]"), (Values{0, 2.5}));
  expect_error<qft::Error>([&] { values("good"); }, {"a label is 'good', expected a number or a list of numbers"});
  expect_error<qft::Error>([&] { values("[1, \"x\"]"); }, {"a label is [1, \"x\"], expected a number"});
  expect_error<qft::Error>([&] { values(""); }, {"a label is an empty text"});
}

Conversation converted(const DatasetSpec& spec, const std::string& text) {
  RecordConverter converter(spec, false);
  auto result = converter.convert({.text = text});
  EXPECT_TRUE(std::holds_alternative<Conversation>(result)) << text;
  return std::get<Conversation>(std::move(result));
}

TEST(Labels, OfConversationsThatEndWithTheQuestion) {
  DatasetSpec spec;
  spec.formatting = Formatting::sharegpt;
  spec.columns.messages = "messages";
  spec.columns.label = "label";
  spec.tags.role = "role", spec.tags.content = "content", spec.tags.user = "user", spec.tags.assistant = "assistant";
  const Conversation asks = converted(spec, R"({"messages": [{"role": "user", "content": "How?"}], "label": [0, 2]})");
  EXPECT_EQ(asks.label, "[0, 2]");
  EXPECT_EQ(asks.prompt.size(), 1U);
  EXPECT_TRUE(asks.responses.empty());
  const Conversation answered = converted(
      spec, R"({"messages": [{"role": "user", "content": "How?"}, {"role": "assistant", "content": "So."}], "label": 0.5})");
  EXPECT_EQ(answered.label, "0.5");
  ASSERT_EQ(answered.responses.size(), 1U);
  EXPECT_EQ(answered.responses.front().text, "So.");
}

TEST(Labels, OfTextsWithoutAnAnswer) {
  DatasetSpec spec;
  spec.columns.prompt = "sentence", spec.columns.query = spec.columns.response = "", spec.columns.label = "label";
  EXPECT_EQ(converted(spec, R"({"sentence": "Good.", "label": "1"})").label, "1");
  EXPECT_EQ(converted(spec, R"({"sentence": "Good.", "label": null})").label, "");
  RecordConverter converter(spec, false);
  expect_error<qft::Error>([&] { converter.convert({.text = R"({"sentence": "Good.", "label": "fine"})"}); },
                           {"'label' is 'fine'"});
}

TEST(Labels, AreTagsOfItems) {
  EXPECT_EQ(qft::encode::targets_from_tags({{"source", "web"}, {"label", "[1]"}}), Values{1});
  EXPECT_FALSE(qft::encode::targets_from_tags({{"source", "web"}}).has_value());
}

}  // namespace
