// The runs of a sweep.
#include "qft/config/sweep.h"

#include <set>

#include "config_files.h"

namespace qft::config {
namespace {

CommandLine base(std::vector<std::string> more = {}) {
  CommandLine line;
  line.overrides = {"model_name_or_path=m", "dataset=d", "template=qwen", "output_dir=out"};
  line.overrides.insert(line.overrides.end(), more.begin(), more.end());
  return line;
}

std::vector<SweepRun> plan(std::vector<std::string> sweeps, std::vector<std::string> more = {}) {
  return plan_sweep(base(std::move(more)), sweeps);
}

TEST(Sweep, IsTheProductAndTheLastKeyChangesFastest) {
  const auto runs = plan({"learning_rate=1e-4,2e-4", "lora-rank=8,16"});
  ASSERT_EQ(runs.size(), 4u);
  std::vector<std::string> names;
  for (const SweepRun& run : runs) names.push_back(run.name);
  EXPECT_EQ(names, (std::vector<std::string>{"learning_rate=1e-4+lora_rank=8", "learning_rate=1e-4+lora_rank=16",
                                             "learning_rate=2e-4+lora_rank=8", "learning_rate=2e-4+lora_rank=16"}));
  const RunConfig config = runs[1].line.load(Purpose::train);
  EXPECT_EQ(config.training.learning_rate, 1e-4);
  EXPECT_EQ(config.finetuning.lora_rank, 16);
  EXPECT_EQ(config.finetuning.lora_alpha, 32) << "what follows from a swept key follows from its value";
  EXPECT_EQ(config.training.output_dir, "out/learning_rate=1e-4+lora_rank=16");
  EXPECT_EQ(config.training.run_name, runs[1].name);
  EXPECT_EQ(&sweep_run_of(runs, 2), &runs[1]);
}

TEST(Sweep, KeepsRunsApartThatOthersShare) {
  const auto runs = plan({"seed=1,2"}, {"run_name=mine", "logging_dir=tb", "log_dir=logs"});
  EXPECT_EQ(runs[1].line.load(Purpose::train).training.run_name, "mine+seed=2");
  EXPECT_EQ(runs[1].line.load(Purpose::train).training.logging_dir, "tb/seed=2");
  EXPECT_EQ(runs[1].line.load(Purpose::train).training.log_dir, "logs/seed=2");
}

TEST(Sweep, QuotesAndBracketsKeepCommas) {
  EXPECT_EQ(plan({"seed=[1,2,3]"}).size(), 3u);
  const auto lists = plan({"lora_target=[q_proj,v_proj],q_proj"});
  ASSERT_EQ(lists.size(), 2u);
  EXPECT_EQ(lists[0].line.load(Purpose::train).finetuning.lora_target, (std::vector<std::string>{"q_proj", "v_proj"}));
  EXPECT_EQ(plan({"lora_target=[[q_proj,v_proj],q_proj]"})[0].name, lists[0].name);
  EXPECT_EQ(plan({"eval_dataset=\"a,b\",c"})[0].overrides[0], "eval_dataset=a,b");
}

TEST(Sweep, NamesAreSafeAndDiffer) {
  const auto runs = plan({"default_system=a/b,a_b,a b,../c"});
  std::set<std::string> names;
  for (const SweepRun& run : runs) {
    names.insert(run.name);
    EXPECT_EQ(run.name.find_first_of("/ ,*\"'"), std::string::npos) << run.name;
    EXPECT_EQ(run.dir.parent_path(), "out");
  }
  EXPECT_EQ(names.size(), 4u);
  EXPECT_LE(plan({"default_system=" + std::string(400, 'x')})[0].name.size(), 160u);
}

TEST(Sweep, RefusesWhatItCannotTrain) {
  const std::pair<const char*, const char*> cases[] = {
      {"learning_rat=1", "did you mean 'learning_rate'?"},
      {"prompt=a,b", "not a key that qft train reads"},
      {"output_dir=a,b", "cannot be swept"},
      {"run_name=a,b", "cannot be swept"},
      {"trace=a,b", "cannot be swept"},
      {"seed", "expected a key and its values"},
      {"seed=", "expected a key and its values"},
      {"seed=1,,2", "empty or null"},
      {"seed=1,1", "given twice"},
      {"seed=[1", "seed"},
      {"lora_rank=8,0", "run 2 of the sweep (lora_rank=0): command line: lora_rank=0"}};
  for (const auto& [sweep, words] : cases) EXPECT_CONTAINS(error_of([&] { plan({sweep}); }), words);
  EXPECT_CONTAINS(error_of([] { plan({"seed=1,2"}, {"do_train=false", "do_eval=true", "val_size=2"}); }), "nothing is trained");
  EXPECT_CONTAINS(error_of([] { plan({"lora_rank=8", "lora-rank=16"}); }), "swept twice");
  EXPECT_CONTAINS(error_of([] { plan({"lora_rank=8,16"}, {"--lora_rank=4"}); }), "also given as --lora_rank=4");
  EXPECT_CONTAINS(error_of([] { sweep_run_of(plan({"seed=1,2"}), 3); }), "has 2 runs");
  EXPECT_CONTAINS(error_of([] { sweep_run_of(plan({"seed=1,2"}), 0); }), "numbered from 1");
}

}  // namespace
}  // namespace qft::config
