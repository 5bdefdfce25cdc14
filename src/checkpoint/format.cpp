// Formats summaries and reports as text.
#include "qft/checkpoint/inspect.h"
#include "qft/core/error.h"
#include "qft/core/units.h"

#include <array>

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

}  // namespace qft::checkpoint
