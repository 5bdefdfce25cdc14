#include "qft/checkpoint/diff.h"

#include "qft/core/convert.h"
#include "qft/io/file.h"
#include "qft/io/model_files.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "tensor_source.h"

namespace qft::checkpoint {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Sums over all pieces of one tensor.
struct Sums {
  std::uint64_t changed = 0;
  double max_abs = 0, difference = 0, reference = 0;  // the last two are sums of squares
  bool broken = false;                                // finite on one side only

  void add(double a, double b) {
    if (std::isfinite(a)) reference += a * a;
    if (a == b || (std::isnan(a) && std::isnan(b))) return;
    ++changed;
    const double delta = std::abs(a - b);
    broken |= !std::isfinite(delta);
    max_abs = std::max(max_abs, delta);
    difference += delta * delta;
  }
  void write(TensorDifference& out) const {
    constexpr double kInfinite = std::numeric_limits<double>::infinity();
    out.changed = changed;
    out.max_abs = broken ? kInfinite : max_abs;
    out.relative = changed == 0 ? 0 : broken || reference == 0 ? kInfinite : std::sqrt(difference / reference);
  }
};

TensorDifference compare(const std::string& name, const TensorSource& a, const TensorSource& b) {
  const auto &ta = a.tensors().at(name), &tb = b.tensors().at(name);
  TensorDifference result{name, {ta.dtype, tb.dtype}, {ta.shape, tb.shape}, ta.elements};
  if (ta.shape != tb.shape) return result;
  const std::size_t room = std::min(ta.elements, kPieceElements);
  std::vector<char> bytes_a(room * size_of(ta.dtype)), bytes_b(room * size_of(tb.dtype));
  std::vector<double> va(room), vb(room);
  Sums sums;
  for_each_piece(ta.elements, [&](std::uint64_t begin, std::uint64_t end) {
    const std::uint64_t n = end - begin;
    a.read(name, begin, end, bytes_a.data());
    b.read(name, begin, end, bytes_b.data());
    to_double(ta.dtype, bytes_a.data(), n, va.data());
    to_double(tb.dtype, bytes_b.data(), n, vb.data());
    for (std::uint64_t i = 0; i < n; ++i) sums.add(va[i], vb[i]);
    // Doubles cannot distinguish integers beyond 2^53.
    if (sums.changed == 0 && ta.dtype == tb.dtype && !is_floating(ta.dtype) &&
        std::memcmp(bytes_a.data(), bytes_b.data(), n * size_of(ta.dtype)) != 0)
      sums.changed = 1;
  });
  sums.write(result);
  return result;
}

void compare_tensors(const TensorSource& a, const TensorSource& b, Difference& out) {
  for (const auto& [name, tensor] : a.tensors()) {
    if (b.tensors().count(name))
      out.tensors.push_back(compare(name, a, b));
    else
      out.only_a.push_back(name);
  }
  for (const auto& [name, tensor] : b.tensors())
    if (!a.tensors().count(name)) out.only_b.push_back(name);
}

// Compares objects key by key; everything else is a value.
void compare_values(const std::string& key, const json& a, const json& b, std::vector<ValueDifference>& out) {
  if (!a.is_object() || !b.is_object()) {
    if (a != b) out.push_back({key, a, b});
    return;
  }
  std::set<std::string> keys;
  for (const json* side : {&a, &b})
    for (const auto& [name, value] : side->items()) keys.insert(name);
  for (const std::string& name : keys)
    compare_values(key.empty() ? name : key + "." + name, a.value(name, json()), b.value(name, json()), out);
}

// The values of a manifest, grouped by the meaning of a difference.
struct Groups {
  json position, configuration = json::object(), layout;
};

Groups groups_of(const Manifest& manifest) {
  Groups groups;
  groups.position = {{"step", manifest.step}};
  groups.layout = {{"world_size", manifest.world_size}, {"qft_version", manifest.qft_version}};
  for (const auto& [key, value] : manifest.state.items()) {
    const bool configuration = key == "config" || key == "model_name_or_path";
    (configuration ? groups.configuration : key == "strategy" ? groups.layout : groups.position)[key] = value;
  }
  // Seconds differ between any two runs.
  if (const auto it = groups.position.find("progression"); it != groups.position.end() && it->is_object())
    for (const char* seconds : {"elapsed_seconds", "exchange_seconds"}) it->erase(seconds);
  return groups;
}

// Keys that describe the origin of a model or adapter, not its computation.
const std::set<std::string> kDescriptive = {
    "base_model_name_or_path", "_name_or_path", "inference_mode", "revision", "auto_mapping",
    "transformers_version",    "peft_version"};

void compare_model_files(const fs::path& a, const fs::path& b, Difference& out) {
  for (const char* name : {io::kModelConfigFile, "adapter_config.json"}) {
    const auto read = [&](const fs::path& dir) {
      if (!fs::exists(dir / name)) return json();
      json value = io::read_json(dir / name);
      for (const std::string& key : kDescriptive)
        if (value.is_object()) value.erase(key);
      // A set: its order has no meaning.
      if (value.is_object() && value.contains("target_modules") && value["target_modules"].is_array())
        std::sort(value["target_modules"].begin(), value["target_modules"].end());
      return value;
    };
    compare_values("", read(a), read(b), out.model);
  }
}

}  // namespace

bool Difference::equal() const {
  return only_a.empty() && only_b.empty() && model.empty() && position.empty() &&
         std::all_of(tensors.begin(), tensors.end(), [](const TensorDifference& t) { return t.equal(); });
}

Difference diff(const fs::path& a, const fs::path& b) {
  const TensorSource source_a = TensorSource::open(a), source_b = TensorSource::open(b);
  Difference result;
  result.a = a;
  result.b = b;
  compare_tensors(source_a, source_b, result);
  compare_model_files(a, b, result);
  if (source_a.manifest() != nullptr && source_b.manifest() != nullptr) {
    const Groups ga = groups_of(*source_a.manifest()), gb = groups_of(*source_b.manifest());
    compare_values("", ga.position, gb.position, result.position);
    compare_values("", ga.configuration, gb.configuration, result.configuration);
    compare_values("", ga.layout, gb.layout, result.layout);
  }
  return result;
}

}  // namespace qft::checkpoint
