// Other tools' names of the degrees of tensor and context parallelism.
#include "dialect_files.h"

namespace qft::dialects {
namespace {

config::ParallelArgs parallel(const std::string& text) {
  return load_text(text).parallel;
}

constexpr const char* kTensorNames[] = {"tensor_model_parallel_size", "tensor_parallel_size",  "tp",          "tp_size",
                                        "tensor_parallel_degree",     "deepspeed_autotp_size", "parallel.tp", "tp_degree"};
constexpr const char* kContextNames[] = {"context_parallel_size",
                                         "cp",
                                         "cp_size",
                                         "cp_degree",
                                         "sp_size",
                                         "ulysses_degree",
                                         "context_parallel_degree",
                                         "ulysses_size",
                                         "sequence_parallel_size",
                                         "ulysses_sequence_parallel_size",
                                         "sequence_parallel_degree",
                                         "parallel.cp"};

TEST(ParallelKeys, HaveManyNames) {
  for (const char* name : kTensorNames) {
    EXPECT_EQ(parallel(fmt::format("{}: 2\n", name)).tensor_parallel, 2) << name;
    EXPECT_EQ(parallel(fmt::format("{}: null\n", name)).tensor_parallel, 1) << name;
    EXPECT_EQ(load_text("", {fmt::format("--{}=4", name)}).parallel.tensor_parallel, 4) << name;
  }
  for (const char* name : kContextNames) {
    EXPECT_EQ(parallel(fmt::format("{}: 2\n", name)).context_parallel, 2) << name;
    EXPECT_EQ(parallel(fmt::format("{}: null\n", name)).context_parallel, 1) << name;
  }
  EXPECT_EQ(parallel("tp_size: 0\n").tensor_parallel, 1) << "transformers' default";
}

TEST(ParallelKeys, OfOneDegreeMustAgree) {
  EXPECT_EQ(parallel("tp: 2\ntensor_model_parallel_size: 2\ntensor_parallel: 2\n").tensor_parallel, 2);
  EXPECT_CONTAINS(error_of_text("tp: 2\ntensor_parallel_size: 4\n"),
                  "run.yaml:2: tensor_parallel_size is '4', but run.yaml:1: tp is '2', and both set tensor_parallel: keep one");
  EXPECT_CONTAINS(error_of_text("sequence_parallel_size: 2\ncontext_parallel: 1\n"),
                  "run.yaml:2: context_parallel is '1', but run.yaml:1: sequence_parallel_size is '2'");
  EXPECT_CONTAINS(error_of_text("cp_size: 2\nparallel: {cp: 4}\n"), "both set context_parallel");
}

TEST(ParallelKeys, AreIntegersOfAtLeastOne) {
  for (const char* name : kTensorNames)
    for (const char* value : {"-1", "1.5", "many"})
      EXPECT_CONTAINS(error_of_text(fmt::format("{}: {}\n", name, value)),
                      fmt::format("{}: expected an integer from 1 to ", name))
          << value;
  for (const char* name : kContextNames)
    for (const char* value : {"0", "-1", "1.5", "many"})
      EXPECT_CONTAINS(error_of_text(fmt::format("{}: {}\n", name, value)),
                      fmt::format("{}: expected an integer from 1 to ", name))
          << value;
  EXPECT_CONTAINS(error_of_text("tensor_model_parallel_size: 0\n"),
                  "run.yaml:1: tensor_model_parallel_size: expected an integer");
}

TEST(ParallelKeys, OfAnotherEngineHaveNoEffect) {
  for (const char* beside : {"vllm_max_model_len: 512\n", "infer_backend: vllm\n", "infer_backend: sglang\n", "max_num_seqs: 4\n",
                             "sglang_tp_size: 2\n", "gpu_memory_utilization: 0.9\n"}) {
    const RunConfig c = load_text(fmt::format("tensor_parallel_size: 4\n{}", beside));
    EXPECT_EQ(c.parallel.tensor_parallel, 1) << beside;
    EXPECT_TRUE(has_note(c, "tensor_parallel_size has no effect in qft: beside ")) << beside;
    const std::string engine(beside, std::string_view(beside).find(':'));
    EXPECT_TRUE(has_note(c, fmt::format("run.yaml:2: {} it is a degree of that inference engine", engine))) << beside;
    EXPECT_TRUE(has_note(c, "for ranks of qft that share each matrix write tensor_parallel: 4")) << beside;
  }
  EXPECT_FALSE(has_note(load_text("tensor_parallel_size: 1\ninfer_backend: vllm\n"), "tensor_parallel_size"));
  EXPECT_EQ(parallel("tensor_parallel_size: 4\ninfer_backend: huggingface\n").tensor_parallel, 4);
  EXPECT_EQ(parallel("vllm_tensor_parallel_size: 4\n").tensor_parallel, 1);
}

TEST(ParallelKeys, SharingOfRowsIsAlwaysOn) {
  for (const char* value : {"true", "false"}) {
    const RunConfig c = load_text(fmt::format("tp: 2\nsequence_parallel: {}\n", value));
    EXPECT_EQ(c.parallel.tensor_parallel, 2);
    EXPECT_EQ(c.parallel.context_parallel, 1);
    EXPECT_TRUE(has_note(c, "sequence_parallel has no effect in qft: tensor ranks always share the rows")) << value;
  }
}

TEST(ParallelKeys, ANumberIsNoSharingOfRows) {
  EXPECT_NO_THROW(load_text("sequence_parallel: 1\nsp: true\n"));
  EXPECT_CONTAINS(error_of_text("tp: 2\nsequence_parallel: 2\n"),
                  "run.yaml:2: sequence_parallel: '2' is refused: true and false are Megatron's, where it goes with tensor "
                  "parallelism; for a number of ranks that share each sequence write context_parallel (or "
                  "sequence_parallel_size)");
  EXPECT_CONTAINS(error_of_text("sp: 2\n"), "run.yaml:1: sp: '2' is refused: a number has two meanings: ranks that share each ");
  EXPECT_CONTAINS(error_of_text("sp: 2\n"), "(write context_parallel), or Megatron's sequence parallelism");
  EXPECT_CONTAINS(all().describe("sequence_parallel"), "qft refuses values other than true|false|0|1: ");
}

TEST(ParallelKeys, HelpListsTheNamesThatAreRead) {
  const auto names = all().names_of("tensor_parallel");
  for (const char* name : kTensorNames) EXPECT_NE(std::ranges::find(names, name), names.end()) << name;
  EXPECT_NE(std::ranges::find(names, "parallelism_config.tp_size"), names.end());
  const auto contexts = all().names_of("context_parallel");
  for (const char* name : kContextNames) EXPECT_NE(std::ranges::find(contexts, name), contexts.end()) << name;
  EXPECT_EQ(all().launcher_names_of("tensor_parallel"),
            (std::vector<std::string>{"tensor_parallel.autotp_size (DeepSpeed)", "parallelism_config.tp_size (accelerate)"}));
  EXPECT_EQ(all().launcher_names_of("context_parallel").size(), 3U);
  EXPECT_TRUE(all().launcher_names_of("seed").empty());
}

TEST(ParallelKeys, ContextIsSharedByHeads) {
  EXPECT_FALSE(has_note(load_text("cp_size: 2\ncp_mode: ulysses\n"), "version 1")) << "other tools have this key too";
  EXPECT_EQ(parallel("cp_size: 2\ncp_mode: ulysses\n").context_parallel, 2);
  EXPECT_CONTAINS(error_of_text("cp_size: 2\ncp_mode: ring\n"),
                  "run.yaml:2: cp_mode: 'ring' is refused: only ulysses is implemented: context ranks exchange the heads of "
                  "attention; ring attention is not supported yet");
}

TEST(ParallelKeys, AMappingHasThemAll) {
  const RunConfig c = load_text("parallel:\n  tp: 2\n  cp: 2\n  dp: 3\n  pp: 1\n");
  EXPECT_EQ(c.parallel.tensor_parallel, 2);
  EXPECT_EQ(c.parallel.context_parallel, 2);
  EXPECT_NO_THROW(c.check_world(12));
  EXPECT_CONTAINS(
      error_of([&] { c.check_world(8); }),
      "run.yaml:4: parallel.dp is 3, but the job has 2 data ranks (8 ranks / tensor_parallel 2 / context_parallel 2): "
      "start with mpirun -np 12");
  EXPECT_EQ(load_text("", {"parallel={tp: 4}"}).parallel.tensor_parallel, 4);
  EXPECT_EQ(load_text("parallel: {tp: 2}\n", {"parallel.tp=4"}).parallel.tensor_parallel, 4);
  EXPECT_CONTAINS(error_of_text("parallel:\n  tp: 2\n  pp: 2\n"),
                  "run.yaml:3: parallel.pp: '2' is refused: pipeline parallelism");
  EXPECT_CONTAINS(error_of_text("parallel: {ep: 2}\n"), "parallel.ep: '2' is refused: expert parallelism is not implemented");
  EXPECT_CONTAINS(error_of_text("parallel: {tq: 2}\n"), "parallel.tq: unknown key");
  EXPECT_CONTAINS(error_of_text("parallel: 2\n"), "run.yaml:1: parallel: expected a mapping of keys to values, got '2'");
  EXPECT_CONTAINS(error_of_text("parallel: {dp: 0}\n"), "parallel.dp: expected an integer of at least 1, got '0'");
}

TEST(ParallelKeys, AcceleratesMappingInARunFile) {
  const RunConfig c = load_text(
      "parallelism_config:\n  dp_replicate_size: 2\n  dp_shard_size: 2\n  tp_size: 2\n  cp_size: 1\n  sp_size: 3\n"
      "  sp_backend: deepspeed\n");
  EXPECT_EQ(c.parallel.tensor_parallel, 2);
  EXPECT_EQ(c.parallel.context_parallel, 3);
  EXPECT_EQ(c.parallel.strategy, "hsdp");
  EXPECT_EQ(c.parallel.hsdp_group_size, 2);
  EXPECT_NO_THROW(c.check_world(24));
  EXPECT_CONTAINS(error_of([&] { c.check_world(12); }), "parallelism_config.dp_replicate_size x dp_shard_size is 4, but");
  EXPECT_EQ(parallel("parallelism_config: {parallelism_config_tp_size: 2}\n").tensor_parallel, 2);
  EXPECT_EQ(parallel("parallelism_config: {tp_size: 2, dp_shard_size: 4}\n").strategy, "auto");
  EXPECT_CONTAINS(error_of_text("parallelism_config: {dp_shard_size: 0}\n"), "dp_shard_size: expected an integer from 1");
  EXPECT_CONTAINS(error_of_text("parallelism_config: {tp_size: 2}\ntp: 4\n"), "both set tensor_parallel");
}

TEST(ParallelKeys, PipelinesAndExpertRanksAreRefused) {
  for (const char* name : {"pp", "pp_size", "pipeline_model_parallel_size", "virtual_pipeline_model_parallel_size"}) {
    EXPECT_CONTAINS(error_of_text(fmt::format("{}: 2\n", name)), fmt::format("{}: '2' is refused: pipeline parallelism", name));
    EXPECT_NO_THROW(load_text(fmt::format("{}: 1\n", name)));
  }
  for (const char* name : {"expert_model_parallel_size", "expert_tensor_parallel_size", "ep_size"}) {
    EXPECT_CONTAINS(error_of_text(fmt::format("{}: 2\n", name)), fmt::format("{}: '2' is refused: expert parallelism", name));
    EXPECT_NO_THROW(load_text(fmt::format("{}: 1\n", name)));
  }
}

TEST(ParallelKeys, DeepspeedsFile) {
  const auto load_json = [](const std::string& json, const std::string& more = "") {
    TempFolder folder;
    return load(folder.write("run.yaml", fmt::format("{}deepspeed: {}\n", more, folder.write("ds.json", json))));
  };
  EXPECT_EQ(load_json(R"({"tensor_parallel": {"autotp_size": 2}})").parallel.tensor_parallel, 2);
  EXPECT_EQ(load_json(R"({"tensor_parallel": {"autotp_size": 0}})", "tp: 4\n").parallel.tensor_parallel, 4);
  EXPECT_EQ(load_json(R"({"sequence_parallel_size": 2})").parallel.context_parallel, 2);
  EXPECT_CONTAINS(error_of([&] { load_json(R"({"tensor_parallel": {"autotp_size": 2}})", "tp: 4\n"); }),
                  "tensor_parallel.autotp_size asks for tensor_parallel 2, but run.yaml:1 (tp): tensor_parallel is 4");
  EXPECT_CONTAINS(error_of([&] { load_json(R"({"sequence_parallel_size": -1})"); }),
                  "sequence_parallel_size: expected an integer");
  EXPECT_EQ(load_json(R"({"sequence_parallel_size": 0})", "cp: 2\n").parallel.context_parallel, 2);
  const auto section_error = [&](const std::string& keys) {
    return error_of([&] { load_json(fmt::format(R"({{"tensor_parallel": {{"autotp_size": 2, {}}}}})", keys)); });
  };
  EXPECT_CONTAINS(section_error(R"("autotp_sizes": 4)"), "did you mean 'tensor_parallel.autotp_size'?");
  EXPECT_CONTAINS(
      section_error(R"("tensor_parallel": {"tp_size": 4})"),
      "tensor_parallel.tensor_parallel.tp_size: '4' is refused: in training the degree is tensor_parallel.autotp_size alone");
  EXPECT_CONTAINS(section_error(R"("partition_config": {"use_default_specs": false})"),
                  "qft decides itself where matrices are cut");
  const RunConfig noted = load_json(R"({"tensor_parallel": {"autotp_size": 2, "tp_overlap_comm": true}})");
  EXPECT_TRUE(has_note(noted, "keys without effect in qft: tensor_parallel.tp_overlap_comm: qft cuts matrices"));
  EXPECT_TRUE(has_note(load_json(R"({"aio": {"block_size": 1}})"), "they concern DeepSpeed's own machinery"));
  const RunConfig c = load_json(R"({"train_batch_size": 8, "tensor_parallel": {"autotp_size": 2}})",
                                "per_device_train_batch_size: 2\ngradient_accumulation_steps: 2\n");
  EXPECT_NO_THROW(c.check_world(4)) << "the global batch counts data ranks";
}

TEST(ParallelKeys, AcceleratesFile) {
  const auto load_yaml = [](const std::string& type, const std::string& more, const std::string& run = "") {
    TempFolder folder;
    const std::string file = folder.write("acc.yaml", fmt::format("distributed_type: {}\n{}", type, more));
    return load(folder.write("run.yaml", fmt::format("{}accelerate_config: {}\n", run, file)));
  };
  const std::string section =
      "use_parallelism_config: true\nparallelism_config:\n  parallelism_config_dp_replicate_size: 2\n"
      "  parallelism_config_dp_shard_size: 4\n  parallelism_config_tp_size: 2\n  parallelism_config_cp_size: 3\n"
      "  parallelism_config_cp_comm_strategy: allgather\n";
  const RunConfig c = load_yaml("FSDP", section + "fsdp_config:\n  fsdp_version: 2\n");
  EXPECT_EQ(c.parallel.tensor_parallel, 2);
  EXPECT_EQ(c.parallel.context_parallel, 3);
  EXPECT_EQ(c.parallel.strategy, "hsdp");
  EXPECT_EQ(c.parallel.hsdp_group_size, 4);
  EXPECT_NO_THROW(c.check_world(48));
  EXPECT_CONTAINS(error_of([&] { c.check_world(24); }), "dp_replicate_size x dp_shard_size is 8, but the job has 4 data ranks");
  EXPECT_EQ(load_yaml("FSDP", "parallelism_config: {tp_size: 2, cp_size: 1, sp_size: 1}\n").parallel.strategy, "zero3");
  EXPECT_CONTAINS(error_of([&] { load_yaml("FSDP", "parallelism_config:\n  tp_size: 2\n", "tensor_parallel: 4\n"); }),
                  "tp_size asks for tensor_parallel 2, but");
  EXPECT_CONTAINS(error_of([&] { load_yaml("FSDP", "parallelism_config:\n  tp_size: two\n"); }),
                  "tp_size: expected an integer from 1 to ");
  EXPECT_CONTAINS(error_of([&] { load_yaml("FSDP", "parallelism_config:\n  ep_size: 2\n"); }), "ep_size: unknown key");
}

TEST(ParallelKeys, VersionOnesDataRanks) {
  const RunConfig c = load_text("model: m\nmodel_class: llm\ncp_size: 2\ndp_size: 2\nmp_shard_size: 4\n");
  EXPECT_NO_THROW(c.check_world(4));
  EXPECT_CONTAINS(error_of([&] { c.check_world(8); }), "dp_size is 2, but the job has 4 data ranks");
}

}  // namespace
}  // namespace qft::dialects
