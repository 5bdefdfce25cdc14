// One key with its value, as written.
#pragma once

#include "qft/config/value.h"

#include <string>

namespace qft::config {

struct Setting {
  std::string key;
  Value value;
  std::string source;      // "run.yaml:12" or "command line"
  std::string where;       // "run.yaml:12: lora_rank" or "command line: lora_rank=x": the head of error messages
  std::string typed = {};  // the name before translation; empty: `key`

  bool from_file() const { return value.line > 0; }
  const std::string& name() const { return typed.empty() ? key : typed; }
};

}  // namespace qft::config
