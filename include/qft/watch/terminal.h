// `qft watch`: the page of a run on a terminal, until a key ends it.
#pragma once

#include <filesystem>

namespace qft::watch {

/// Shows the run until q, Escape or Ctrl-C; n and p select the next and the previous curve. Throws Error if standard output is
/// not a terminal, or the directory holds no run.
void show(const std::filesystem::path& output_dir);

/// Prints one page to standard output, as wide as the terminal or COLUMNS; 100 characters without them.
void print_once(const std::filesystem::path& output_dir);

/// Returns the columns of the terminal on standard output, else COLUMNS, else 100.
int columns_of_output();

/// Writes a run's report.html. Returns its path.
std::filesystem::path write_report(const std::filesystem::path& output_dir);

}  // namespace qft::watch
