// The interface of libqft_arrow.so: tables of Parquet and Arrow files, row by row as JSON. It has C functions only, so that
// neither side sees the other's C++ library.
#pragma once

#include <cstdint>

namespace qft::io {

/// Receives the reason before a table function reports failure.
struct TableFault {
  void* context;
  void (*say)(void* context, const char* reason);
};
/// Receives each row as a JSON object, and a notice if null members in descriptions of tools or calls were left out.
struct TableSink {
  void* context;
  void (*row)(void* context, const char* json, std::uint64_t bytes);
  void (*left_out)(void* context);
};

struct TablePlugin {
  std::uint32_t version;  ///< kTablePluginVersion of the plug-in's build
  /// Returns null on failure. A table is immutable; all functions may be called from any thread.
  void* (*open)(const char* path, TableFault fault);
  void (*close)(void* table);
  std::uint64_t (*groups)(void* table);  ///< number of row groups; a group is read as a whole
  std::int64_t (*rows)(void* table, std::uint64_t group);
  bool (*read)(void* table, std::uint64_t group, TableSink sink, TableFault fault);
};

inline constexpr std::uint32_t kTablePluginVersion = 2;
inline constexpr const char* kTablePluginFile = "libqft_arrow.so";
inline constexpr const char* kTablePluginFunction = "qft_table_plugin";  // const TablePlugin* (*)()

}  // namespace qft::io
