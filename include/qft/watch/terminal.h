// `qft watch`: the page of a run on a terminal, until a key ends it.
#pragma once

#include <filesystem>

namespace qft::watch {

/// Shows the run until q, Escape or Ctrl-C. n and p: the next and the previous curve. Throws Error where standard output is no
/// terminal, or the directory holds no run.
void show(const std::filesystem::path& output_dir);

/// One page on standard output, as wide as the terminal or COLUMNS; 100 characters without them.
void print_once(const std::filesystem::path& output_dir);

/// Columns of the terminal on standard output, else COLUMNS, else 100.
int columns_of_output();

/// Writes report.html of a run. Returns its path.
std::filesystem::path write_report(const std::filesystem::path& output_dir);

}  // namespace qft::watch
