// Errors in a program's use of the device: kept until a caller takes them, and thrown if possible.
#pragma once

#include <string>
#include <vector>

namespace qft::sim {

/// Keeps and throws the error.
[[noreturn]] void fail_use(const std::string& error);
/// Keeps the error; this thread's next throw_reported() throws it.
void report(const std::string& error);
void throw_reported();

/// At the end of the process: prints errors that nobody took, and exits with status 1.
void watch_exit();

/// Returns the outermost LibTorch operation that this thread executes, for messages; empty if none.
std::string current_operation();
/// Starts to track LibTorch's operations for current_operation().
void watch_operations();

const std::string& current_label();

}  // namespace qft::sim
