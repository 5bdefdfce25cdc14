// A comparison of runs as text.
#include "qft/core/units.h"
#include "qft/watch/compare.h"
#include "qft/watch/page.h"

#include <algorithm>

#include "text.h"
#include <fmt/format.h>

namespace qft::watch {
namespace {

using nlohmann::json;

constexpr std::size_t kLetters = 26;
constexpr int kNarrowest = 60, kWidestValue = 24, kPlotLines = 20;

/// Returns the run's letter in the picture; blank after the first 26 runs.
std::string letter_of(std::size_t run) {
  return run < kLetters ? std::string(1, static_cast<char>('a' + run)) : " ";
}

std::string number_text(double value, int decimals) {
  return std::isfinite(value) ? fmt::format("{:.{}f}", value, decimals) : "-";
}

std::string step_text(std::int64_t step) {
  return step < 0 ? "-" : fmt::format("{}", step);
}

using Row = std::vector<std::string>;

/// Appends rows of equal length as aligned columns: columns in [`right_from`, `right_to`) to the right, the others to the left.
void put_table(const std::vector<Row>& rows, std::size_t right_from, std::size_t right_to, std::string& out) {
  std::vector<int> widths(rows.front().size(), 0);
  for (const Row& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], static_cast<int>(columns_of(row[i])));
  for (const Row& row : rows) {
    std::string text;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const auto space = static_cast<std::size_t>(widths[i]) - columns_of(row[i]);
      const std::string pad(space, ' ');
      text += (i == 0 ? "" : "  ") + (i < right_from || i >= right_to ? row[i] + pad : pad + row[i]);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    out += text + "\n";
  }
}

/// The name comes last and uncut, because the reader needs it for the next command.
std::string figures(const Comparison& c) {
  std::vector<Row> rows{{"", "eval_loss", "at step", "loss", "steps", "tokens/s", "time", "memory", "status", "run"}};
  for (std::size_t i = 0; i < c.runs.size(); ++i) {
    const ComparedRun& run = c.runs[i];
    rows.push_back({letter_of(i), number_text(run.best_eval_loss, 4), step_text(run.best_eval_step),
                    run.view.curves.contains("loss") ? fmt::format("{:.4f}", unsigned_nan(run.loss)) : "-",
                    fmt::format("{}/{}", step_text(run.step), step_text(run.total_steps)), number_text(run.tokens_per_second, 0),
                    format_duration(run.seconds), std::isfinite(run.memory_peak) ? format_bytes(run.memory_peak) : "-",
                    plain(run.view.status), plain(run.name)});
  }
  std::string out;
  put_table(rows, 1, 8, out);
  return out;
}

std::string value_text(const json& value) {
  std::string text;
  if (value.is_null())
    text = "-";
  else if (value.is_string())
    text = value.get<std::string>();
  else if (value.is_array())
    for (const json& item : value) text += (text.empty() ? "" : ",") + value_text(item);
  else
    text = value.dump();
  text = plain(text);
  return columns_of(text) <= kWidestValue ? text : cut(text, kWidestValue - 2) + "..";
}

/// Returns keys as rows and runs as columns, with as many runs side by side as fit.
std::string differences(const Comparison& c, int width) {
  std::string out;
  for (std::size_t begin = 0; begin < c.runs.size();) {
    std::vector<Row> rows{{""}};
    int taken = 0;
    for (const auto& [key, values] : c.differing) {
      rows.push_back({cut(plain(key), kWidestValue)});
      taken = std::max(taken, static_cast<int>(columns_of(rows.back()[0])));
    }
    for (const std::size_t first = begin; begin < c.runs.size(); ++begin) {
      Row column{begin < kLetters ? letter_of(begin) : fmt::format("run {}", begin + 1)};
      for (const auto& [key, values] : c.differing) column.push_back(value_text(values[begin]));
      int widest = 0;
      for (const std::string& text : column) widest = std::max(widest, static_cast<int>(columns_of(text)));
      taken += 2 + widest;
      if (taken > width && begin > first) break;
      for (std::size_t i = 0; i < column.size(); ++i) rows[i].push_back(column[i]);
    }
    put_table(rows, 1, rows.front().size(), out);
  }
  return out;
}

std::string picture(const Comparison& c, int width) {
  std::vector<LetteredCurve> curves;
  bool evaluated = false;
  for (std::size_t i = 0; i < std::min(c.runs.size(), kLetters); ++i) {
    const auto& all = c.runs[i].view.curves;
    const char letter = letter_of(i)[0];
    if (const auto it = all.find("loss"); it != all.end()) curves.push_back({letter, it->second, false});
    if (const auto it = all.find("eval_loss"); it != all.end()) {
      curves.push_back({static_cast<char>(letter - 'a' + 'A'), it->second, true});
      evaluated = true;
    }
  }
  if (curves.empty()) return "";
  std::string out = evaluated ? "loss (small letters) and eval_loss (capitals), by step" : "loss, by step";
  if (c.runs.size() > kLetters) out += fmt::format("; of the first {} of {} runs", kLetters, c.runs.size());
  out += "\n";
  for (const std::string& row : draw_letters(curves, width, kPlotLines)) out += row + "\n";
  return out + "\n";
}

}  // namespace

std::string compare_text(const Comparison& c, int width) {
  width = std::max(width, kNarrowest);
  std::string out = figures(c) + "\n";
  const auto described = std::ranges::count_if(c.runs, [](const ComparedRun& run) { return run.view.description.is_object(); });
  if (described > 1) {
    out += c.differing.empty() ? "no key of the runs differs\n" : "keys that differ\n" + differences(c, width);
    out += "\n";
  }
  out += picture(c, width);
  for (const std::string& problem : c.problems) out += "! " + plain(problem) + "\n";
  return out;
}

}  // namespace qft::watch
