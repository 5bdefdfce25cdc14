#include "qft/selftest/selftest.h"

#include "qft/core/activity.h"

#include "runner.h"
#include <ATen/core/grad_mode.h>

namespace qft::selftest {

Report run(comm::Session& session, const Options& options) {
  const at::NoGradGuard no_gradients;
  Runner runner(session, options);
  struct Group {
    const char* name;
    void (*check)(Runner&);
  };
  constexpr Group kGroups[] = {{"copies", check_copies},     {"kernels", check_kernels},     {"optimizers", check_optimizers},
                               {"products", check_products}, {"attention", check_attention}, {"collectives", check_collectives},
                               {"steps", check_steps},       {"decoding", check_decoding}};
  for (const Group& group : kGroups) {
    const activity::Phase phase(group.name);
    group.check(runner);
  }
  return runner.finish();
}

}  // namespace qft::selftest
