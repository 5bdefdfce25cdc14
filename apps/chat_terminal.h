// A conversation on a terminal: messages are edited, commands begin with a slash, Ctrl-C stops an answer.
#pragma once

#include "qft/config/run_config.h"
#include "qft/encode/chat_template.h"
#include "qft/engine/instance.h"

namespace qft::apps {

/// Returns the program's exit code. console::Terminal::present() must hold.
int chat_on_terminal(const config::RunConfig& config, const encode::ChatTemplate& chat, engine::Instance& instance);

}  // namespace qft::apps
