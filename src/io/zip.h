// Reads the directory of a zip archive, including 64-bit sizes; compressed records are reported, not read. Private to io.
// Format: APPNOTE.TXT 6.3 of PKWARE, sections 4.3 and 4.5.3.
#pragma once

#include "qft/io/file.h"

#include <cstdint>
#include <map>
#include <string>

namespace qft::io {

struct ZipRecord {
  std::uint64_t offset = 0, bytes = 0;  // position and size of the data in the file
  bool stored = true;                   // not compressed
};

/// Returns the records by name. Throws Error, without the file's name, if the directory is damaged, a record lies outside the
/// file, is encrypted, or has a name twice.
std::map<std::string, ZipRecord> read_zip_directory(const File& file);

}  // namespace qft::io
