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

/// For messages: the operation of LibTorch that this thread is in, the outermost one; empty: none.
std::string current_operation();
/// From now on LibTorch says which that is.
void watch_operations();

const std::string& current_label();

}  // namespace qft::sim
