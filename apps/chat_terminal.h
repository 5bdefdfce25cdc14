// A conversation on a terminal, with a line editor. Commands begin with a slash; Ctrl-C stops an answer.
#pragma once

#include "qft/config/run_config.h"
#include "qft/encode/chat_template.h"
#include "qft/engine/instance.h"

namespace qft::apps {

/// Runs the conversation and returns the program's exit code. Requires console::Terminal::present().
int chat_on_terminal(const config::RunConfig& config, const encode::ChatTemplate& chat, engine::Instance& instance);

}  // namespace qft::apps
