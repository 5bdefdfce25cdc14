// Tests load(): its results, and its errors for unusable files.
#include <random>

#include "fixture.h"

namespace qft::tokenizer {
namespace {

using nlohmann::json;

TEST(Load, ReadsTheConfiguration) {
  const auto tokenizer = Tokenizer::load(tiny_dir());
  EXPECT_FALSE(tokenizer->bos_id());
  EXPECT_FALSE(tokenizer->unk_id());
  EXPECT_EQ(tokenizer->eos_id(), tokenizer->token_to_id("<|im_end|>"));
  EXPECT_EQ(tokenizer->pad_id(), tokenizer->token_to_id("<|endoftext|>"));
  EXPECT_EQ(tokenizer->vocab_size(), tokenizer->token_to_id("<tool_call>").value() + 1);
  EXPECT_TRUE(tokenizer->is_special(*tokenizer->eos_id()));
  EXPECT_FALSE(tokenizer->is_special(*tokenizer->token_to_id("<tool_call>")));
  EXPECT_FALSE(tokenizer->is_special(-1));
  EXPECT_EQ(tokenizer->id_to_token('a'), "a");
  EXPECT_THROW(tokenizer->id_to_token(tokenizer->vocab_size()), Error);
  EXPECT_FALSE(tokenizer->token_to_id("no such token"));
}

TEST(Load, HashesWhatDeterminesTheIdsAndNothingElse) {
  const std::string hash = Tokenizer::load(tiny_dir())->hash();
  EXPECT_EQ(hash.size(), 32u);
  const Changed same([](json&, json& config) { config["model_max_length"] = 7; });
  const Changed same_again([](json&, json& config) { config["chat_template"] = "other"; });
  const Changed eos([](json&, json& config) { config["eos_token"] = "<|endoftext|>"; });
  const Changed merges([](json& t, json&) { t["model"]["merges"].erase(0); });
  EXPECT_EQ(same.load()->hash(), same_again.load()->hash());
  EXPECT_NE(same.load()->hash(), eos.load()->hash());
  EXPECT_NE(same.load()->hash(), merges.load()->hash());
}

TEST(Load, WorksWithoutConfiguration) {
  TemporaryDir dir;
  std::filesystem::copy(tiny_dir() / "tokenizer.json", dir.path() / "tokenizer.json");
  const auto tokenizer = Tokenizer::load(dir.path());
  EXPECT_FALSE(tokenizer->eos_id());
  EXPECT_EQ(tokenizer->encode("the").size(), 1u);
}

TEST(Load, AddsTokensThatOnlyTheConfigurationLists) {
  const Changed changed([](json& t, json& config) {
    const int next = t["added_tokens"].back()["id"].get<int>() + 1;
    config["added_tokens_decoder"][std::to_string(next)] = {{"content", "<extra>"}, {"special", true}};
    config["additional_special_tokens"] = {"<more>"};
  });
  const auto tokenizer = changed.load();
  EXPECT_EQ(tokenizer->encode("<extra><more>").size(), 2u);
  EXPECT_TRUE(tokenizer->is_special(*tokenizer->token_to_id("<more>")));
  EXPECT_EQ(*tokenizer->token_to_id("<more>"), tokenizer->vocab_size() - 1);
}

TEST(Load, ReadsTheOlderFilesWhereTheConfigurationListsNoTokens) {
  const Changed changed([](json&, json& config) { config.erase("added_tokens_decoder"); });
  const int next = changed.load()->vocab_size();
  changed.dir().write("special_tokens_map.json", R"({"eos_token": {"content": "<|endoftext|>"}})");
  changed.dir().write("added_tokens.json", json{{"<old>", next}}.dump());
  const auto tokenizer = changed.load();
  EXPECT_EQ(tokenizer->eos_id(), tokenizer->token_to_id("<|endoftext|>"));
  EXPECT_EQ(tokenizer->encode("<old>"), std::vector<std::int32_t>{next});
}

TEST(Load, SplitsSpecialTokensWhereToldTo) {
  const Changed changed([](json&, json& config) { config["split_special_tokens"] = true; });
  EXPECT_EQ(changed.load()->encode("<|im_end|>").size(), 10u);
  EXPECT_EQ(changed.load()->encode("<tool_call>").size(), 1u);
}

TEST(Load, LetsTheConfigurationDecideOnThePrefixSpace) {
  const auto with = [](bool prefix) {
    return Changed([=](json& t, json& config) {
      t["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
      config["add_prefix_space"] = prefix;
    });
  };
  EXPECT_EQ(with(true).load()->encode("the"), with(false).load()->encode(" the"));
}

struct Refusal {
  const char* name;
  Changed::Edit edit;
  std::vector<std::string> says;  ///< all must be in the message
};

class LoadRefuses : public testing::TestWithParam<Refusal> {};

TEST_P(LoadRefuses, NamesTheFileAndTheFault) {
  const std::string message = Changed(GetParam().edit).error();
  EXPECT_NE(message.find("tokenizer"), std::string::npos);
  for (const std::string& part : GetParam().says)
    EXPECT_NE(message.find(part), std::string::npos) << "'" << part << "' is not in: " << message;
}

json split_of(const std::string& pattern) {
  return {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
}
Changed::Edit with_pattern(const std::string& pattern) {
  return [=](json& t, json&) { t["pre_tokenizer"]["pretokenizers"][0] = split_of(pattern); };
}

const Refusal kRefusals[] = {
    {"merge_of_an_unknown_token",
     [](json& t, json&) { t["model"]["merges"].push_back({"zz", "a"}); },
     {"model.merges[", "'zz'", "model.vocab"}},
    {"merge_into_an_unknown_token", [](json& t, json&) { t["model"]["merges"].push_back({"z", "z"}); }, {"'zz'"}},
    {"merge_that_is_no_pair", [](json& t, json&) { t["model"]["merges"].push_back("a b c"); }, {"model.merges["}},
    {"two_tokens_with_one_id", [](json& t, json&) { t["model"]["vocab"]["zz"] = 97; }, {"id 97", "'zz'", "'a'"}},
    {"negative_id", [](json& t, json&) { t["model"]["vocab"]["zz"] = -1; }, {"'zz'", "not an integer in"}},
    {"enormous_id", [](json& t, json&) { t["model"]["vocab"]["zz"] = 1LL << 40; }, {"'zz'"}},
    {"no_vocabulary", [](json& t, json&) { t["model"].erase("vocab"); }, {"model has no 'vocab'"}},
    {"no_model", [](json& t, json&) { t.erase("model"); }, {"has no 'model'"}},
    {"word_piece", [](json& t, json&) { t["model"]["type"] = "WordPiece"; }, {"model.type", "WordPiece"}},
    {"dropout", [](json& t, json&) { t["model"]["dropout"] = 0.1; }, {"model.dropout"}},
    {"prefix", [](json& t, json&) { t["model"]["continuing_subword_prefix"] = "##"; }, {"continuing_subword_prefix", "##"}},
    {"unknown_model_key", [](json& t, json&) { t["model"]["fancy"] = 1; }, {"'fancy'"}},
    {"missing_unknown_token", [](json& t, json&) { t["model"]["unk_token"] = "<unk>"; }, {"model.unk_token", "<unk>"}},
    {"version", [](json& t, json&) { t["version"] = "2.0"; }, {"version", "2.0"}},
    {"normalizer", [](json& t, json&) { t["normalizer"] = {{"type", "Lowercase"}}; }, {"normalizer", "Lowercase", "NFC"}},
    {"pre_tokenizer",
     [](json& t, json&) { t["pre_tokenizer"]["pretokenizers"][0] = {{"type", "Metaspace"}}; },
     {"pretokenizers[0]", "Metaspace", "ByteLevel"}},
    {"no_pre_tokenizer", [](json& t, json&) { t["pre_tokenizer"] = nullptr; }, {"pre_tokenizer"}},
    {"no_byte_level", [](json& t, json&) { t["pre_tokenizer"]["pretokenizers"].erase(1); }, {"no ByteLevel"}},
    {"byte_level_in_the_middle",
     [](json& t, json&) { t["pre_tokenizer"]["pretokenizers"].push_back(split_of("a")); },
     {"follows ByteLevel"}},
    {"behavior", [](json& t, json&) { t["pre_tokenizer"]["pretokenizers"][0]["behavior"] = "Odd"; }, {"'Odd'", "Contiguous"}},
    {"empty_literal", [](json& t, json&) { t["pre_tokenizer"]["pretokenizers"][0]["pattern"] = {{"String", ""}}; }, {"empty"}},
    {"decoder", [](json& t, json&) { t["decoder"] = {{"type", "Metaspace"}}; }, {"decoder", "ByteLevel"}},
    {"decoder_that_changes_a_token",
     [](json& t, json&) {
       t["decoder"] = {{"type", "Sequence"},
                       {"decoders", {{{"type", "Replace"}, {"pattern", {{"String", "he"}}}, {"content", "x"}}, t["decoder"]}}};
     },
     {"Replace", "changes token"}},
    {"added_id", [](json& t, json&) { t["added_tokens"][0]["id"] = 5000; }, {"<|endoftext|>", "5000"}},
    {"added_key", [](json& t, json&) { t["added_tokens"][0]["odd"] = 1; }, {"added_tokens[0]", "'odd'"}},
    {"added_flag", [](json& t, json&) { t["added_tokens"][0]["lstrip"] = 3; }, {"lstrip"}},
    {"config_type", [](json&, json& config) { config["eos_token"] = 3; }, {"tokenizer_config.json", "eos_token"}},
    {"word_class", with_pattern("\\w+"), {"'\\w'", "Regex"}},
    {"boundary", with_pattern("a\\b"), {"'\\b'"}},
    {"possessive_interval", with_pattern("a{1,3}+"), {"{n,m}"}},
    {"open_interval", with_pattern("a{,3}"), {"{n,m}"}},
    {"nested_class", with_pattern("[a[b]]"), {"class inside"}},
    {"intersection", with_pattern("[a&&b]"), {"'&&'"}},
    {"named_group", with_pattern("(?<n>a)"), {"(?<n"}},
    {"inline_option", with_pattern("a(?i)b"), {"(?i)"}},
    {"fold", with_pattern("(?i:gross)"), {"'ss'"}},
    {"open_class", with_pattern("[ab"), {"']'"}},
    {"open_group", with_pattern("(ab"), {"PCRE2"}},
    {"property", with_pattern("\\p{Nonsense}"), {"PCRE2", "Nonsense"}},
    {"trailing_backslash", with_pattern("a\\"), {"\\"}},
};
INSTANTIATE_TEST_SUITE_P(All, LoadRefuses, testing::ValuesIn(kRefusals),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(LoadRefusesFiles, ThatAreMissingOrNoJson) {
  TemporaryDir dir;
  const auto message = [&]() -> std::string {
    try {
      Tokenizer::load(dir.path());
    } catch (const Error& error) {
      return error.what();
    }
    return {};
  };
  EXPECT_NE(message().find("tokenizer.json does not exist"), std::string::npos) << message();
  for (const char* text : {"", "{", "[1]", "{\"model\": 3}", "{\"a\":1}}", "\xFF"}) {
    dir.write("tokenizer.json", text);
    EXPECT_NE(message().find((dir.path() / "tokenizer.json").string()), std::string::npos) << text;
  }
  std::filesystem::copy(tiny_dir() / "tokenizer.json", dir.path() / "tokenizer.json",
                        std::filesystem::copy_options::overwrite_existing);
  dir.write("tokenizer_config.json", "{\"eos_token\": ");
  EXPECT_NE(message().find("tokenizer_config.json"), std::string::npos) << message();
}

TEST(LoadRefusesFiles, ThatAreDamagedAnywhereWithoutCrashing) {
  std::ifstream in(tiny_dir() / "tokenizer.json");
  const std::string good{std::istreambuf_iterator<char>(in), {}};
  TemporaryDir dir;
  std::mt19937 random(11);
  for (int round = 0; round < 1500; ++round) {
    std::string text = good;
    for (int n = 0; n < 1 + round % 3; ++n) text[random() % text.size()] = "\"{}[]:,0a\\ \xC3\x80"[random() % 13];
    dir.write("tokenizer.json", text);
    try {
      const auto tokenizer = Tokenizer::load(dir.path());
      tokenizer->decode(tokenizer->encode("the <|im_end|> 123 \u4E2D"));
    } catch (const Error&) {
    }
  }
}

}  // namespace
}  // namespace qft::tokenizer
