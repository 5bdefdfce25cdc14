// What libqft_arrow.so gives to the programs: tables of Parquet and Arrow files, row by row as JSON. C functions alone, so that
// neither side sees the other's C++ library.
#pragma once

#include <cstdint>

namespace qft::io {

/// Called with a reason before a function of the table reports that it failed.
struct TableFault {
  void* context;
  void (*say)(void* context, const char* reason);
};
/// Called with each row, a JSON object, and where rows had null members in the description of tools or calls, which are left out.
struct TableSink {
  void* context;
  void (*row)(void* context, const char* json, std::uint64_t bytes);
  void (*left_out)(void* context);
};

struct TablePlugin {
  std::uint32_t version;  ///< kTablePluginVersion of the build
  /// Null where it failed. A table is immutable; all functions may be called from any thread.
  void* (*open)(const char* path, TableFault fault);
  void (*close)(void* table);
  std::uint64_t (*groups)(void* table);  ///< of rows, each read as a whole
  std::int64_t (*rows)(void* table, std::uint64_t group);
  bool (*read)(void* table, std::uint64_t group, TableSink sink, TableFault fault);
};

inline constexpr std::uint32_t kTablePluginVersion = 2;
inline constexpr const char* kTablePluginFile = "libqft_arrow.so";
inline constexpr const char* kTablePluginFunction = "qft_table_plugin";  // const TablePlugin* (*)()

}  // namespace qft::io
