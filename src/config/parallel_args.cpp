#include "qft/config/parallel_args.h"

namespace qft::config {

void ParallelArgs::visit(const FieldVisitor& field) {
  field(Field("strategy", "how weights, gradients and optimizer state are sharded over the ranks")
            .one_of({"auto", "ddp", "zero0", "zero1", "zero2", "shard_grad_op", "zero3", "full_shard", "hsdp"}),
        &strategy);
  field(Field("hsdp_group_size", "ranks that share one sharded copy under hsdp").at_least(1).zero_word("node"), &hsdp_group_size);
  field(Field("prefetch_bytes", "prefetch budget: memory for weights that are gathered ahead of their use")
            .at_least(1)
            .zero_word("auto"),
        &prefetch_bytes);
  field(Field("max_memory",
              "GB that a rank may use; gradient_checkpointing (unless it is set) and the size of logit chunks are chosen to "
              "fit")
            .at_least(0)
            .zero_word("auto"),
        &max_memory);
  field(Field("offload_optimizer", "where the optimizer's state lives between steps").one_of({"none", "cpu"}),
        &offload_optimizer);
  field(Field("offload_param", "where sharded weights live between uses").one_of({"none", "cpu"}), &offload_param);
  field(Field("offload_activations", "where the layers' inputs live from forward to backward").one_of({"none", "cpu"}),
        &offload_activations);
}

}  // namespace qft::config
