// Formats summaries, reports and comparisons as text, and comparisons as JSON.
#include "qft/checkpoint/diff.h"
#include "qft/checkpoint/inspect.h"
#include "qft/core/error.h"
#include "qft/core/units.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace qft::checkpoint {
namespace {

using nlohmann::ordered_json;

std::string format_age(std::int64_t seconds) {
  if (seconds < 120) return fmt::format("{} s", seconds);
  if (seconds < 7200) return fmt::format("{} min", seconds / 60);
  if (seconds < 172800) return fmt::format("{} h", seconds / 3600);
  return fmt::format("{} days", seconds / 86400);
}

std::string plain(const ordered_json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) return fmt::format("{:.4g}", value.get<double>());
  if (!value.is_array()) return value.dump();
  std::string text;
  for (const ordered_json& item : value) text += (text.empty() ? "" : ", ") + plain(item);
  return text;
}

std::string format_adapter(const ordered_json& adapter) {
  std::string text;
  for (const auto& [key, value] : adapter.items())
    text += (text.empty() ? "" : "; ") + (key == "type" ? plain(value) : key + " " + plain(value));
  return text;
}

std::string format_dtypes(const ordered_json& dtypes) {
  std::string text;
  for (const auto& [name, bytes] : dtypes.items())
    text += (text.empty() ? "" : ", ") + name + " " + format_bytes(bytes.get<double>());
  return text;
}

struct Line {
  const char* key;
  const char* label;
  std::string (*format)(const ordered_json&);
};
const Line kLines[] = {
    {"kind", "kind", plain},
    {"step", "step", plain},
    {"epoch", "epoch", plain},
    {"loss", "loss", plain},
    {"world_size", "written by", [](const ordered_json& v) { return plain(v) + (v == 1 ? " rank" : " ranks"); }},
    {"strategy", "strategy", plain},
    {"global_batch_size", "global batch", plain},
    {"base_model", "base model", plain},
    {"architecture", "architecture", plain},
    {"adapter", "adapter", format_adapter},
    {"tensors", "tensors", plain},
    {"parameters", "elements", [](const ordered_json& v) { return format_count(v.get<double>()); }},
    {"dtypes", "dtypes", format_dtypes},
    {"bytes", "on disk", [](const ordered_json& v) { return format_bytes(v.get<double>()); }},
    {"age_seconds", "age", [](const ordered_json& v) { return format_age(v.get<std::int64_t>()); }},
    {"run", "run", plain},
    {"parent", "began at", plain},
    {"qft_version", "qft", plain},
};

using nlohmann::json;

constexpr std::size_t kNames = 10;  // listed tensors that only one side has

ordered_json number(double value) {
  return std::isfinite(value) ? ordered_json(value) : ordered_json("inf");
}

std::string shape_text(const TensorDifference& t, int side) {
  return fmt::format("{} [{}]", safetensors_name(t.dtype[side]), fmt::join(t.shape[side], ", "));
}

ordered_json to_json(const TensorDifference& t) {
  ordered_json out = {{"name", t.name}, {"equal", t.equal()}};
  if (t.same_layout()) {
    out["dtype"] = safetensors_name(t.dtype[0]);
    out["shape"] = t.shape[0];
  } else {
    out["dtype"] = {safetensors_name(t.dtype[0]), safetensors_name(t.dtype[1])};
    out["shape"] = {t.shape[0], t.shape[1]};
  }
  out["elements"] = t.elements;
  if (t.shape[0] != t.shape[1]) return out;
  out["changed"] = t.changed;
  out["max_abs"] = number(t.max_abs);
  out["relative"] = number(t.relative);
  return out;
}

ordered_json to_json(const std::vector<ValueDifference>& values) {
  ordered_json list = ordered_json::array();
  for (const ValueDifference& v : values) list.push_back({{"key", v.key}, {"a", v.a}, {"b", v.b}});
  return list;
}

std::string value_text(const json& value) {
  if (value.is_null()) return "-";
  const std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  constexpr std::size_t kWidth = 60;
  return text.size() <= kWidth ? text : text.substr(0, kWidth - 3) + "...";
}

void add_values(std::string& text, const char* title, const std::vector<ValueDifference>& values) {
  if (values.empty()) return;
  text += fmt::format("{}\n", title);
  for (const ValueDifference& v : values) text += fmt::format("  {:<34} {}  ->  {}\n", v.key, value_text(v.a), value_text(v.b));
}

void add_names(std::string& text, const char* side, const std::vector<std::string>& names) {
  if (names.empty()) return;
  const auto shown = static_cast<std::ptrdiff_t>(std::min(names.size(), kNames));
  text += fmt::format("only in {}: {} tensors: {}{}\n", side, names.size(), fmt::join(names.begin(), names.begin() + shown, ", "),
                      names.size() > kNames ? ", ..." : "");
}

void add_rows(std::string& text, const std::vector<const TensorDifference*>& changed, std::size_t rows) {
  if (changed.empty()) return;
  text += fmt::format("  {:>10} {:>10} {:>9}  tensor\n", "relative", "max abs", "changed");
  for (std::size_t i = 0; i < std::min(rows, changed.size()); ++i) {
    const TensorDifference& t = *changed[i];
    if (t.shape[0] != t.shape[1])
      text += fmt::format("  {:>10} {:>10} {:>9}  {}: {} -> {}\n", "-", "-", "-", t.name, shape_text(t, 0), shape_text(t, 1));
    else
      text += fmt::format("  {:>10.3g} {:>10.3g} {:>8.1f}%  {}{}\n", t.relative, t.max_abs,
                          100.0 * static_cast<double>(t.changed) / static_cast<double>(std::max<std::uint64_t>(t.elements, 1)),
                          t.name, t.same_layout() ? "" : fmt::format(": {} -> {}", shape_text(t, 0), shape_text(t, 1)));
  }
  if (changed.size() > rows) text += fmt::format("  ... and {} more\n", changed.size() - rows);
}

}  // namespace

std::string format_summary(const ordered_json& summary) {
  std::string text = summary.at("path").get<std::string>() + "\n";
  for (const Line& line : kLines)
    if (summary.contains(line.key)) text += fmt::format("  {:<13} {}\n", line.label, line.format(summary[line.key]));
  if (!summary.at("manifest").get<bool>()) text += "  manifest      none: written by another program, or unfinished\n";
  text += "  files\n";
  for (const ordered_json& file : summary.at("files"))
    text += fmt::format("    {:>10}  {}\n", format_bytes(file.at("bytes").get<double>()), file.at("name").get<std::string>());
  return text;
}

ordered_json to_json(const std::filesystem::path& dir, const VerifyReport& report) {
  ordered_json not_finite = ordered_json::array();
  for (const auto& t : report.not_finite) not_finite.push_back({{"tensor", t.tensor}, {"nan", t.nan}, {"infinite", t.infinite}});
  return {{"path", dir.string()},    {"ok", report.ok()},           {"manifest", report.has_manifest},
          {"files", report.files},   {"bytes", report.bytes},       {"tensors", report.tensors},
          {"errors", report.errors}, {"warnings", report.warnings}, {"not_finite", not_finite}};
}

std::string format_report(const std::filesystem::path& dir, const VerifyReport& report) {
  std::string text;
  for (const std::string& error : report.errors) text += "error: " + error + "\n";
  for (const std::string& warning : report.warnings) text += "note: " + warning + "\n";
  return text + fmt::format("{}: {} ({} files, {}, {} tensors)\n", dir.string(), report.ok() ? "ok" : "damaged", report.files,
                            format_bytes(static_cast<double>(report.bytes)), report.tensors);
}

ordered_json to_json(const Difference& d) {
  ordered_json out = {{"equal", d.equal()}, {"identical", d.identical()}, {"a", d.a.string()}, {"b", d.b.string()}};
  out["tensors"] = ordered_json::array();
  for (const TensorDifference& t : d.tensors) out["tensors"].push_back(to_json(t));
  out["only_a"] = d.only_a;
  out["only_b"] = d.only_b;
  out["model"] = to_json(d.model);
  out["position"] = to_json(d.position);
  out["configuration"] = to_json(d.configuration);
  out["layout"] = to_json(d.layout);
  return out;
}

std::string format_difference(const Difference& d, std::size_t rows) {
  std::vector<const TensorDifference*> changed;
  for (const TensorDifference& t : d.tensors)
    if (!t.equal()) changed.push_back(&t);
  // Different shapes first: they matter most and have no number.
  std::stable_sort(changed.begin(), changed.end(), [](const TensorDifference* x, const TensorDifference* y) {
    return std::pair(x->shape[0] != x->shape[1], x->relative) > std::pair(y->shape[0] != y->shape[1], y->relative);
  });
  std::string text = fmt::format("A  {}\nB  {}\n", d.a.string(), d.b.string());
  text += fmt::format("tensors in both: {}, of which {} differ\n", d.tensors.size(), changed.size());
  add_rows(text, changed, rows);
  add_names(text, "A", d.only_a);
  add_names(text, "B", d.only_b);
  add_values(text, "model", d.model);
  add_values(text, "position", d.position);
  add_values(text, "configuration (does not count)", d.configuration);
  add_values(text, "layout (does not count)", d.layout);
  text += d.identical() ? "identical\n" : d.equal() ? "equal: same tensors, same position\n" : "different\n";
  return text;
}

}  // namespace qft::checkpoint
