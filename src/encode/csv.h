// Rows of comma-separated values by RFC 4180. Private to encode.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace qft::encode {

/// Reads the row that begins at `at`; its end, behind the line's, becomes `at`. Fields in quotes may hold commas, lines and
/// doubled quotes. False, without fields, for an empty line. Throws Error, without the place, where quotes are not closed or have
/// text behind them.
bool read_csv_row(std::string_view bytes, std::size_t& at, std::vector<std::string>& fields);

/// The row as a JSON object: a text for each column, null for one without letters. Throws Error where there are more or fewer
/// fields than columns.
void csv_record(const std::vector<std::string>& columns, const std::vector<std::string>& fields, std::string& record);

/// For errors: ": its first line is parted by ';', ..." where that holds of a csv file whose bytes begin so; "" where commas part
/// it.
std::string separator_advice(std::string_view bytes);
/// The same of a file; "" for one of another type.
std::string separator_advice(const std::filesystem::path& file);

}  // namespace qft::encode
