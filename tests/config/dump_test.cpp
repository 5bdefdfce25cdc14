// Every key can be written and read back, and the help knows every key.
#include "qft/config/help.h"

#include <cmath>
#include <regex>
#include <set>
#include <sstream>

#include "config_files.h"
#include "test_paths.h"
#include <yaml-cpp/yaml.h>

namespace qft::config {
namespace {

/// Returns a value within the key's rule that differs from the default.
struct Change {
  const Field& field;
  void operator()(bool* value) const { *value = !*value; }
  void operator()(std::int64_t* value) const {
    *value = std::isfinite(field.max) ? static_cast<std::int64_t>(field.max) : *value + 7;
  }
  void operator()(double* value) const {
    *value = std::isfinite(field.max) ? field.min + 0.3 * (field.max - field.min) : *value + 3.0;
    if (!std::isfinite(field.max) && !field.whole_from_one) *value += 1e-7 / 3;
  }
  void operator()(std::string* value) const {
    const std::string odd = "a: b # \"c\" \\ 'd'\n\t\u4f60 {e} [f], - ~";
    *value = field.choices.empty() ? (field.is_path ? "/a b/c: d#e" : odd) : field.choices.back();
  }
  void operator()(std::vector<std::string>* value) const { *value = {"one two", "three: #"}; }
  void operator()(std::vector<double>* value) const { *value = {0.1, 2.0 / 3.0}; }
  void operator()(nlohmann::json* value) const { *value = {{"a", 1}, {"b", {1.5, "x", true, nullptr}}}; }
  template <class T>
  void operator()(std::optional<T>* value) const {
    T inner = value->value_or(T{});
    (*this)(&inner);
    *value = inner;
  }
};

/// One configuration per key, with that key changed.
template <class Use>
void for_each_change(Use&& use) {
  std::vector<std::string> names;
  RunConfig defaults;
  defaults.visit([](std::string_view) {}, [&](const Field& field, FieldRef) { names.emplace_back(field.name); });
  for (const std::string& name : names) {
    RunConfig config;
    config.visit([](std::string_view) {},
                 [&](const Field& field, FieldRef ref) {
                   if (field.name == name) std::visit(Change{field}, ref);
                 });
    use(name, config);
  }
}

void expect_same(const RunConfig& a, const RunConfig& b) {
  EXPECT_EQ(a.model, b.model);
  EXPECT_EQ(a.data, b.data);
  EXPECT_EQ(a.finetuning, b.finetuning);
  EXPECT_EQ(a.training, b.training);
  EXPECT_EQ(a.generate, b.generate);
  EXPECT_EQ(a.eval, b.eval);
  EXPECT_EQ(a.exporting, b.exporting);
  EXPECT_EQ(a.parallel, b.parallel);
}

TEST(Dump, EveryKeySurvivesJson) {
  std::size_t count = 0;
  for_each_change([&](const std::string& name, const RunConfig& config) {
    SCOPED_TRACE(name);
    ++count;
    EXPECT_NE(to_json(config), to_json(RunConfig())) << "the change shows";
    const std::string text = to_json(config).dump();
    expect_same(from_json(nlohmann::json::parse(text), "checkpoint"), config);
  });
  EXPECT_GE(count, 100u);
}

TEST(Dump, EveryKeySurvivesYaml) {
  // The test values of these keys are invalid alone; other tests cover the keys.
  const std::set<std::string> related = {"deepspeed",         "fsdp",          "fsdp_config", "accelerate_config", "strategy",
                                         "offload_optimizer", "offload_param", "trace_steps"};
  for_each_change([&](const std::string& name, RunConfig config) {
    SCOPED_TRACE(name);
    if (related.contains(name)) return;
    // Further keys that the relations require.
    config.data.dataset = {"x", "y"};
    if (name != "eval_dataset" && name != "eval_pack" && name != "interleave_probs") config.data.val_size = 3;
    if (name == "interleave_probs") config.data.mix_strategy = "interleave_under";
    if (name == "use_llama_pro") config.finetuning.finetuning_type = "freeze";
    if (name == "stage" || name == "num_labels" || name == "problem_type") {
      config.finetuning.stage = "seq_cls";
      config.finetuning.num_labels = config.finetuning.num_labels.value_or(3);
    }
    if (name == "query_prompt" || name == "document_prompt") config.finetuning.stage = "embedding";
    if (name == "do_predict") config.eval.predict_with_generate = true;
    if (name == "load_best_model_at_end" || name == "early_stopping_steps") {
      config.training.load_best_model_at_end = true;
      config.training.eval_strategy = "steps";
    }
    config.resolve();
    const RunConfig again = load_text(to_yaml(config));
    expect_same(again, config);
    EXPECT_EQ(to_yaml(again), to_yaml(config));
  });
}

TEST(Dump, IsYamlToOtherParsersToo) {
  RunConfig config = load_text("learning_rate: 5e-5\ndataset: a,b\nmax_grad_norm: null\n");
  const YAML::Node node = YAML::Load(to_yaml(config));
  EXPECT_EQ(node["learning_rate"].Scalar(), "5.0e-05") << "with a point, or PyYAML reads a text";
  EXPECT_EQ(node["dataset"].size(), 2u);
  EXPECT_TRUE(node["max_grad_norm"].IsNull());
  EXPECT_EQ(node["eval_strategy"].Tag(), "!") << "quoted, or PyYAML reads false";
}

TEST(Dump, FromJsonRejectsWhatItDoesNotKnow) {
  EXPECT_CONTAINS(error_of([] { from_json({{"lora_rnak", 8}}, "checkpoint-5"); }),
                  "checkpoint-5: lora_rnak: unknown key: did you mean 'lora_rank'?");
  EXPECT_CONTAINS(error_of([] { from_json({{"lora_rank", "x"}}, "checkpoint-5"); }), "checkpoint-5: lora_rank: expected");
}

TEST(Dump, KeepsPathsAsTheyWereExpanded) {
  EXPECT_EQ(from_json({{"output_dir", "$HOME/x"}}, "checkpoint").training.output_dir, "$HOME/x");
}

TEST(Help, ListsEveryKeyWithDefaultAndWords) {
  const std::string help = help_text(Purpose::any);
  RunConfig defaults;
  std::string group;
  defaults.visit([&](std::string_view title) { EXPECT_CONTAINS("\n" + help, fmt::format("\n{}\n", title)); },
                 [&](const Field& field, FieldRef) {
                   EXPECT_CONTAINS(help, fmt::format("\n  {} ", field.name));
                   EXPECT_FALSE(field.help.empty());
                 });
  EXPECT_CONTAINS(help, "learning_rate                    peak learning rate [5e-05]");
  EXPECT_CONTAINS(help, "no | steps | epoch [no]");
  EXPECT_CONTAINS(help, "[lora_rank * 2]");
}

TEST(Help, ListsTheKeysOfAProgramTheRequiredOnesFirst) {
  const std::string help = help_text(Purpose::generate);
  EXPECT_CONTAINS(help, "\n  temperature ");
  EXPECT_EQ(help.find("learning_rate"), std::string::npos);
  EXPECT_EQ(help.find("export_dir"), std::string::npos);
  EXPECT_LT(help.find("\n  model_name_or_path "), help.find("\ngenerate\n"));
  const std::string train = help_text(Purpose::train);
  EXPECT_LT(train.find("\n  output_dir "), train.find("\nmodel\n"));
  EXPECT_EQ(train.find("\n  prompt "), std::string::npos);
}

TEST(Help, MarksWhatIsNotImplemented) {
  const std::string help = help_text(Purpose::train);
  EXPECT_LT(help.find("\n  pissa_init "), help.size());
  EXPECT_CONTAINS(help, "lora | oft | full | freeze");
  EXPECT_CONTAINS(std::regex_replace(help, std::regex("\n +"), " "), "ipo | kto_pair (not implemented) | orpo");
  EXPECT_EQ(help_text(Purpose::pack).find("not implemented"), std::string::npos) << "preference pairs can be packed";
}

TEST(Help, WrapsItsLines) {
  std::istringstream lines(help_text(Purpose::train));
  for (std::string line; std::getline(lines, line);)
    EXPECT_TRUE(line.size() <= 100 || line.find(' ', 35) == std::string::npos) << line;
}

TEST(Help, ExplainsAKey) {
  EXPECT_CONTAINS(describe_key("lora_rank"), "lora_rank: ");
  EXPECT_CONTAINS(describe_key("--lora-rank"), "default  8");
  EXPECT_CONTAINS(describe_key("temperature"), "read by  qft train, qft eval, qft score, qft generate, qft chat");
  EXPECT_CONTAINS(error_of([] { describe_key("lora_rnak"); }), "there is no key 'lora_rnak': did you mean 'lora_rank'?");
  EXPECT_CONTAINS(error_of([] { describe_key("lora"); }), "with this text are lora_rank, lora_alpha");
}

class SampleRunFile : public testing::TestWithParam<Purpose> {};
INSTANTIATE_TEST_SUITE_P(Help, SampleRunFile,
                         testing::Values(Purpose::train, Purpose::eval, Purpose::generate, Purpose::export_model, Purpose::plan,
                                         Purpose::check, Purpose::pack));

TEST_P(SampleRunFile, IsEnough) {
  const std::string sample(sample_run_file(GetParam()));
  const RunConfig config = load_text(sample, {}, GetParam());
  for (const auto& [key, where] : config.given) EXPECT_CONTAINS(help_text(GetParam()), fmt::format("\n  {} ", key));
}

TEST(Keys, HaveOneNameEach) {
  std::set<std::string> names;
  RunConfig defaults;
  defaults.visit([](std::string_view) {},
                 [&](const Field& field, FieldRef) { EXPECT_TRUE(names.emplace(field.name).second) << field.name; });
}

}  // namespace
}  // namespace qft::config
