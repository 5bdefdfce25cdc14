#include "qft/config/parallel_args.h"

namespace qft::config {
namespace {

constexpr double kMaxDegree = 1 << 20;  // the product of two degrees fits

}  // namespace

void ParallelArgs::visit(const FieldVisitor& field) {
  field(Field("strategy", "how ranks shard weights, gradients and optimizer state")
            .one_of({"auto", "ddp", "zero0", "zero1", "zero2", "shard_grad_op", "zero3", "full_shard", "hsdp"}),
        &strategy);
  field(Field("hsdp_group_size", "hsdp: data ranks that share one sharded copy").at_least(1).zero_word("node"), &hsdp_group_size);
  field(Field("tensor_parallel", "ranks that share each matrix of the model").in(1, kMaxDegree), &tensor_parallel);
  field(Field("context_parallel", "ranks that share the rows of each sequence; for attention each gets some heads of all rows")
            .in(1, kMaxDegree),
        &context_parallel);
  field(Field("prefetch_bytes", "memory in bytes for weights that are gathered ahead of their use").at_least(1).zero_word("auto"),
        &prefetch_bytes);
  field(Field("max_memory",
              "memory limit of a rank in GB; gradient_checkpointing (if not set) and the logit chunk size are chosen to fit")
            .at_least(0)
            .zero_word("auto"),
        &max_memory);
  field(Field("offload_optimizer", "place of the optimizer state between steps").one_of({"none", "cpu"}), &offload_optimizer);
  field(Field("offload_param", "place of sharded weights between uses").one_of({"none", "cpu"}), &offload_param);
  field(Field("offload_activations", "place of the layers' inputs between forward and backward").one_of({"none", "cpu"}),
        &offload_activations);
}

std::string canonical_strategy(const std::string& name) {
  if (name == "zero0") return "ddp";
  if (name == "full_shard") return "zero3";
  return name;
}

}  // namespace qft::config
