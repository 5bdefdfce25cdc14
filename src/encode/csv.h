// Parses rows of comma-separated values by RFC 4180. Private to encode.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace qft::encode {

/// Reads the row that begins at `at` and advances `at` past its line end. Quoted fields may contain commas, line breaks and
/// doubled quotes. Returns false, without fields, for an empty line. Throws Error, without the place, if quotes are not closed
/// or if text follows a closing quote.
bool read_csv_row(std::string_view bytes, std::size_t& at, std::vector<std::string>& fields);

/// Writes the row as a JSON object: a text per column, null for an empty field. Throws Error if the numbers of fields and
/// columns differ.
void csv_record(const std::vector<std::string>& columns, const std::vector<std::string>& fields, std::string& record);

/// Returns error text ": its first line is separated by ';', ..." if the start of a csv file shows another separator than the
/// comma; else "".
std::string separator_advice(std::string_view bytes);
/// Does the same for a file; "" if it is of another type.
std::string separator_advice(const std::filesystem::path& file);

}  // namespace qft::encode
