// Exchanges small values, texts and errors among ranks. All functions are collective and use host data on any communicator.
#pragma once

#include "qft/comm/communicator.h"

#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace qft::comm {

/// The DType of a C++ arithmetic type.
template <class T>
  requires std::is_arithmetic_v<T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, bool>)
    return DType::boolean;
  else if constexpr (std::is_floating_point_v<T>)
    return sizeof(T) == 8 ? DType::f64 : DType::f32;
  else if constexpr (sizeof(T) == 8)
    return DType::i64;
  else if constexpr (sizeof(T) == 4)
    return DType::i32;
  else if constexpr (sizeof(T) == 2)
    return DType::i16;
  else
    return std::is_signed_v<T> ? DType::i8 : DType::u8;
}

/// Reduces one value. Unsigned 32- and 64-bit values must not exceed the maximum of the signed type.
template <class T>
  requires std::is_arithmetic_v<T>
T all_reduce_value(Communicator& comm, T value, ReduceOp op = ReduceOp::sum) {
  comm.host().all_reduce(&value, 1, dtype_of<T>(), op);
  return value;
}

/// Gathers one value from every rank, ordered by rank.
template <class T>
  requires(std::is_arithmetic_v<T> && !std::is_same_v<T, bool>)
std::vector<T> all_gather_value(Communicator& comm, T value) {
  std::vector<T> all(static_cast<std::size_t>(comm.size()));
  comm.host().all_gather(&value, all.data(), 1, dtype_of<T>());
  return all;
}

/// Sends the root's value to all ranks.
template <class T>
  requires std::is_arithmetic_v<T>
T broadcast_value(Communicator& comm, T value, int root = 0) {
  comm.host().broadcast(&value, 1, dtype_of<T>(), root);
  return value;
}

/// Sends the root's text (any bytes) to all ranks.
std::string broadcast_string(Communicator& comm, std::string text, int root = 0);
/// Throws Error on all ranks if it is not UTF-8.
nlohmann::json broadcast_json(Communicator& comm, const nlohmann::json& value, int root = 0);

/// Gathers every rank's text (any bytes, any length), ordered by rank.
std::vector<std::string> all_gather_strings(Communicator& comm, const std::string& text);

/// Checks that no rank has failed. Returns if `local_error` is empty on every rank; otherwise all ranks throw the same Error,
/// with each distinct message and the ranks it came from. Its exit code is the code of the lowest failing rank; with kExitUsage
/// it is a ConfigError.
void all_agree(Communicator& comm, const std::string& local_error, int exit_code = 1);

/// Runs `body` on this rank. An exception on any rank becomes the same Error on all ranks (through all_agree). `body` must not be
/// collective.
void agreed(Communicator& comm, const std::function<void()>& body);

/// Runs `body` only on `root`. All ranks get its text or its error.
std::string on_root(Communicator& comm, const std::function<std::string()>& body, int root = 0);

}  // namespace qft::comm
