#include "qft/config/parallel_args.h"

namespace qft::config {

void ParallelArgs::visit(const FieldVisitor& field) {
  field(
      Field("strategy", "what is split over the ranks")
          .one_of({"auto", "ddp", "zero0", "zero1", "zero2", "shard_grad_op", "zero3", "full_shard", "hsdp"}),
      &strategy);
  field(Field("offload_optimizer", "where the optimizer's state lives between steps").one_of({"none", "cpu"}),
        &offload_optimizer);
  field(Field("offload_param", "where sharded weights live between uses").one_of({"none", "cpu"}),
        &offload_param);
}

}  // namespace qft::config
