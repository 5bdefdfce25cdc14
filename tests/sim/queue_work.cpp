#include "queue_work.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "guard.h"
#include "operation_log.h"
#include "raw_tensor.h"
#include "sim.h"
#include <c10/core/DeviceGuard.h>

namespace qft::sim {

void queue_work(std::string name, const Tensors& reads, const Tensors& writes, std::function<void(const Tensors&)> work) {
  std::vector<std::optional<RawTensor>> raw;
  std::vector<Access> accesses;
  const auto add = [&](const Tensors& tensors, bool write) {
    for (const at::Tensor& t : tensors) {
      TORCH_CHECK(!t.defined() || on_sim(t), "sim: '", name, "' of a tensor on ", t.device());
      raw.push_back(t.defined() ? std::optional<RawTensor>(t) : std::nullopt);
      if (t.defined()) raw.back()->add_accesses(write, accesses);
    }
  };
  Tensors all = reads;
  all.insert(all.end(), writes.begin(), writes.end());
  log_operation(name, all);
  add(reads, false);
  add(writes, true);
  const auto any = std::find_if(writes.begin(), writes.end(), on_sim);
  TORCH_CHECK(any != writes.end(), "sim: '", name, "' writes nothing");
  const c10::DeviceGuard guard(any->device());
  enqueue(current_stream(any->device().index()), std::move(name), std::move(accesses),
          [raw = std::move(raw), work = std::move(work)] {
            Tensors tensors;
            for (const auto& r : raw) tensors.push_back(r ? r->cpu() : at::Tensor());
            work(tensors);
          });
}

}  // namespace qft::sim
