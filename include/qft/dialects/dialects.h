// Run files, command lines and launcher files of other tools: LLaMA-Factory (both formats), transformers, ms-swift, TRL and
// training scripts, DeepSpeed, accelerate and FSDP; and the settings of the run that wrote an adapter or model.
#pragma once

#include "qft/config/dialects.h"

namespace qft::dialects {

/// Returns the dialects of all these tools, for parse_command_line(), load_run_config() and describe_key().
const config::Dialects& all();

}  // namespace qft::dialects
