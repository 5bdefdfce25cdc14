// Errors in how a program uses the device: kept until they are asked for, and thrown where that can be done.
#pragma once

#include <string>
#include <vector>

namespace qft::sim {

/// Keeps and throws it.
[[noreturn]] void fail_use(const std::string& error);
/// Keeps it; this thread's next throw_reported() throws it.
void report(const std::string& error);
void throw_reported();

/// At the end of the process: says what nobody asked for, and ends it with status 1.
void watch_exit();

/// What this thread does, for messages.
const std::string& current_operation();
class Operation {
 public:
  explicit Operation(std::string name);
  ~Operation();
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

 private:
  std::string before_;
};

const std::string& current_label();

}  // namespace qft::sim
